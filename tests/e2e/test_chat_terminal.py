"""`playhead chat` as a person has it: typing, music meanwhile, questions, and Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from tests.e2e.chat_kit import Stuck, calls, model_words, says, servers_file, tagged, typing
from tests.servers.scripted_http import Answering, scripted_http
from tests.servers.shared import SharedServers

PLAY = ("music__musicPlayer", {"query": "first light"})
CTRL_C, CTRL_D = "\x03", "\x04"


async def test_music_plays_while_one_goes_on_typing(tmp_path: Path, shared: SharedServers) -> None:
    servers_file(tmp_path, shared)
    async with (
        scripted_http(calls(PLAY, text="Here it is."), says("You are ", "welcome.")) as (url, asked),
        typing(*model_words(url), "--sink", "null", cwd=tmp_path) as person,
    ):
        await person.see("/help")
        await person.see("> ")
        person.type("play something calm")
        await person.see("Here it is.")
        await person.see("♪ First Light")
        await person.see("> ")
        person.type("/pause")
        await person.see("paused · 0:00 · First Light")
        person.type("/volume 30")
        await person.see("volume 30")
        person.type("/volume 300")
        await person.see("from 0 to 100")
        person.type("/resume")
        await person.see("First Light")
        person.type("thank you")
        await person.see("You are welcome.")
        person.type("/stop")
        await person.see("stopped")
        person.type("/resume")
        await person.see("stopped ·")
        person.press(CTRL_D)
        assert await person.end() == 0
    roles = [message["role"] for message in asked[1].body["messages"]]
    assert roles == ["user", "assistant", "tool", "user"], "the conversation goes on"


@pytest.mark.parametrize("provider", ["openai", "prompt"])
async def test_the_model_controls_the_music_and_is_silent_after_it(
    provider: str, tmp_path: Path, shared: SharedServers
) -> None:
    servers_file(tmp_path, shared)
    wanted: list[tuple[str, dict[str, Any]]] = [
        PLAY,
        ("pause", {}),
        ("seek", {"seconds": 30}),
        ("resume", {}),
        ("set_volume", {"volume": 30}),
        ("stop", {}),
    ]
    if provider == "openai":
        script = [calls(each) for each in wanted]
    else:
        script = [says(tagged(*each)) for each in wanted]
    async with (
        scripted_http(*script) as (url, asked),
        typing(*model_words(url, provider=provider), "--sink", "null", cwd=tmp_path) as person,
    ):
        await person.see("tools; /help")
        await person.see("> ")
        person.type("play something calm")
        await person.see("♪ First Light")
        await person.see("> ")
        for said, done, command, state in (
            ("wait", "✓ pause", "/pause", "paused ·"),
            ("to half a minute", "✓ seek", "/pause", "paused · 0:30"),
            ("go on", "✓ resume", "/volume", "volume 100"),
            ("quieter", "✓ set_volume", "/volume", "volume 30"),
            ("enough", "✓ stop", "/resume", "stopped ·"),
        ):
            person.type(said)
            await person.see(done)
            await person.see("> ")
            person.type(command)
            await person.see(state)
            await person.see("> ")
        person.type("/quit")
        assert await person.end() == 0
    assert len(asked) == 6, "no request follows an action"


async def test_a_time_is_sought(tmp_path: Path, shared: SharedServers) -> None:
    servers_file(tmp_path, shared)
    async with (
        scripted_http(calls(PLAY)) as (url, _),
        typing(*model_words(url), "--sink", "null", cwd=tmp_path) as person,
    ):
        await person.see("> ")
        person.type("play something calm")
        await person.see("♪ First Light")
        await person.see("> ")
        person.type("/pause")
        await person.see("paused ·")
        for typed, shown in (
            ("30", "paused · 0:30 · First Light"),
            ("+10", "paused · 0:40"),
            ("-15.5", "paused · 0:24"),
            ("1:05", "paused · 1:05"),
            ("0:00:07", "paused · 0:07"),
            ("half", "expected a time such as 90, 1:30, +10 or -10, got 'half'"),
            ("", "got ''"),
        ):
            person.type(f"/seek {typed}")
            await person.see(shown)
        person.type("/quit")
        assert await person.end() == 0


async def test_the_queue_is_listed_and_its_pieces_are_chosen(tmp_path: Path, shared: SharedServers) -> None:
    servers_file(tmp_path, shared)
    async with (
        scripted_http(calls(PLAY, PLAY)) as (url, _),
        typing(*model_words(url), "--sink", "null", cwd=tmp_path) as person,
    ):
        await person.see("> ")
        person.type("/queue")
        await person.see("the queue is empty")
        person.type("/queue 1")
        await person.see("expected items in the queue, got '1'")
        person.type("play it twice")
        await person.see("♪ First Light")
        await person.see("♪ First Light")
        await person.see("> ")
        person.type("/queue")
        await person.see("→ 1  First Light")
        await person.see("  2  First Light")
        person.type("/queue 2")
        await person.see(" · First Light")
        person.type("/queue")
        await person.see("→ 2  First Light")
        person.type("/previous")
        await person.see(" · First Light")
        person.type("/queue")
        await person.see("→ 1  First Light")
        person.type("/queue 3")
        await person.see("expected a number from 1 to 2, got '3'")
        person.type("/quit")
        assert await person.end() == 0


async def test_the_commands_tell_of_tools_and_servers_and_begin_anew(
    tmp_path: Path, shared: SharedServers
) -> None:
    servers_file(tmp_path, shared, dead={"command": "/nonexistent/server"})
    async with (
        scripted_http(says("One."), says("Two.")) as (url, asked),
        typing(*model_words(url), "--sink", "null", cwd=tmp_path) as person,
    ):
        await person.see("dead is not connected")
        await person.see("> ")
        person.type("/tools")
        await person.see("music__set_volume")
        await person.see("play_from_queue")
        person.type("/servers")
        await person.see("home: connected (4 tools)")
        await person.see("dead: failed")
        person.type("/volum")
        await person.see("did you mean /volume?")
        person.type("/help")
        await person.see("/resume")
        person.type("first")
        await person.see("One.")
        person.type("/new")
        await person.see("new conversation")
        person.type("//tools is what I say")
        await person.see("Two.")
        person.type("/quit")
        assert await person.end() == 0
    assert [message["content"] for message in asked[1].body["messages"]] == ["/tools is what I say"]
    assert max(len(line) for line in person.screen.replace("\r", "").splitlines()) <= 80 + len("> /tools")


async def test_ctrl_c_ends_a_reply_on_the_wire_and_the_conversation_goes_on(tmp_path: Path) -> None:
    stuck = Stuck("Once upon a time")
    async with (
        scripted_http(stuck, says("Yes?")) as (url, asked),
        typing(*model_words(url), "--sink", "null", cwd=tmp_path) as person,
    ):
        await person.see("> ")
        person.type("a long story")
        await person.see("Once upon a time")
        person.press(CTRL_C)
        await person.see("the turn was aborted")
        await person.see("> ")
        await stuck.left.wait()
        person.type("hello?")
        await person.see("Yes?")
        person.press(CTRL_D)
        assert await person.end() == 0
    history = asked[1].body["messages"]
    assert [message["content"] for message in history] == ["a long story", "Once upon a time", "hello?"]


async def noted(note: trio.Path, text: str) -> None:
    with trio.fail_after(60):
        while not await note.exists() or await note.read_text() != text:
            pass


async def test_ctrl_c_ends_a_tool_call_on_the_wire_and_its_call_has_a_result(tmp_path: Path) -> None:
    servers_file(tmp_path)
    note = trio.Path(tmp_path / "note")
    async with (
        scripted_http(calls(("home__hang", {"note": str(note)})), says("Yes?")) as (url, asked),
        typing(*model_words(url), "--sink", "null", cwd=tmp_path) as person,
    ):
        await person.see("> ")
        person.type("hang")
        await person.see("→ home__hang")
        await noted(note, "called")
        person.press(CTRL_C)
        await person.see("✗ home__hang: The call was cancelled")
        await person.see("> ")
        person.type("hello?")
        await person.see("Yes?")
        await noted(note, "cancelled")
        person.type("/quit")
        assert await person.end() == 0
    call, result = asked[1].body["messages"][1:3]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert "cancelled" in result["content"]


async def test_a_second_ctrl_c_leaves_with_130(tmp_path: Path, shared: SharedServers) -> None:
    servers_file(tmp_path, shared)
    stuck = Stuck("Once upon a time")
    async with (
        scripted_http(stuck) as (url, _),
        typing(*model_words(url), "--sink", "null", cwd=tmp_path) as person,
    ):
        await person.see("> ")
        person.type("a long story")
        await person.see("Once upon a time")
        person.press(CTRL_C)
        await person.see("aborted")
        await person.see("> ")
        person.press(CTRL_C)
        assert await person.end() == 130


async def test_ctrl_c_at_the_prompt_says_how_to_leave_and_a_line_disarms_it(tmp_path: Path) -> None:
    async with (
        scripted_http() as (url, _),
        typing(*model_words(url), "--sink", "null", cwd=tmp_path) as person,
    ):
        await person.see("> ")
        person.press(CTRL_C)
        await person.see("press Ctrl-C again")
        await person.see("> ")
        person.type("/volume")
        await person.see("volume 100")
        person.press(CTRL_C)
        await person.see("press Ctrl-C again")
        await person.see("> ")
        person.press(CTRL_C)
        assert await person.end() == 130


async def test_a_call_that_destroys_is_asked_about_and_an_always_holds(
    tmp_path: Path, shared: SharedServers
) -> None:
    servers_file(tmp_path, shared)
    wipe = ("home__wipe", {"what": "the \x1b[2Jdisk"})
    async with (
        scripted_http(*[step for _ in range(3) for step in (calls(wipe), says("Hm."))]) as (url, asked),
        typing(*model_words(url), "--sink", "null", cwd=tmp_path) as person,
    ):
        await person.see("> ")
        person.type("wipe it")
        shown = await person.see("Run it?")
        assert "home.wipe wants to run (marked as destructive)" in shown
        assert "the \\\\u001b[2Jdisk" in shown or "\\u001b[2J" in shown
        await person.see("no: ")
        person.type("n")
        await person.see("declined by the user")
        await person.see("> ")
        person.type("wipe it!")
        await person.see("no: ")
        person.type("a")
        await person.see("✓ home__wipe")
        await person.see("> ")
        person.type("again")
        await person.see("✓ home__wipe")
        await person.see("> ")
        person.type("/quit")
        assert await person.end() == 0
    assert person.screen.count("Run it?") == 2
    assert "\x1b[2J" not in person.screen
    answers = [asked[index].body["messages"][-1]["content"] for index in (1, 3, 5)]
    assert "declined by the user" in answers[0]
    assert answers[1] == answers[2] == "wiped the \x1b[2Jdisk"


async def test_ctrl_c_at_a_question_cancels_the_call_and_its_answer_is_no_answer_later(
    tmp_path: Path, shared: SharedServers
) -> None:
    servers_file(tmp_path, shared)
    async with (
        scripted_http(calls(("home__wipe", {})), says("Hello.")) as (url, asked),
        typing(*model_words(url), "--sink", "null", cwd=tmp_path) as person,
    ):
        await person.see("> ")
        person.type("wipe it")
        await person.see("no: ")
        person.press(CTRL_C)
        await person.see("cancelled")
        await person.see("> ")
        person.type("y")
        await person.see("Hello.")
        person.press(CTRL_D)
        assert await person.end() == 0
    assert asked[1].body["messages"][-1] == {"role": "user", "content": "y"}


async def test_a_servers_question_is_a_form_and_wrong_values_are_asked_for_again(tmp_path: Path) -> None:
    servers_file(tmp_path)
    async with (
        scripted_http(calls(("home__choose", {})), says("Jazz it is.")) as (url, asked),
        typing(*model_words(url), "--sink", "null", cwd=tmp_path) as person,
    ):
        await person.see("> ")
        person.type("play what I like")
        await person.see("home asks: What do you like?")
        await person.see("Answer it?")
        await person.see("no: ")
        person.type("y")
        await person.see("genre")
        await person.see("]: ")
        person.type("")
        await person.see("genre is required")
        await person.see("]: ")
        person.type("jazz")
        await person.see("loud")
        await person.see("]: ")
        person.type("y")
        await person.see("volume")
        await person.see("]: ")
        person.type("loud")
        await person.see("expected integer")
        await person.see("]: ")
        person.type("")
        await person.see("Jazz it is.")
        person.press(CTRL_D)
        assert await person.end() == 0
    assert asked[1].body["messages"][-1]["content"] == "accept genre='jazz' loud=True volume=30"


async def test_a_turn_that_fails_is_told_and_the_conversation_goes_on(tmp_path: Path) -> None:
    async def fails(answering: Answering) -> None:
        await answering.whole(b'{"error": {"message": "no such \\u001b[2Jmodel"}}', status=404)

    async with (
        scripted_http(fails, says("Hello.")) as (url, _),
        typing(*model_words(url), "--sink", "null", cwd=tmp_path) as person,
    ):
        await person.see("> ")
        person.type("hi")
        await person.see("error: ")
        await person.see("no such \\x1b[2Jmodel")
        await person.see("> ")
        person.type("hi")
        await person.see("Hello.")
        person.press(CTRL_D)
        assert await person.end() == 0


async def test_what_is_typed_while_the_model_talks_is_said_after(tmp_path: Path) -> None:
    let = trio.Event()

    async def slow(answering: Answering) -> None:
        await let.wait()
        await says("First.")(answering)

    async with (
        scripted_http(slow, says("Second.")) as (url, asked),
        typing(*model_words(url), "--sink", "null", cwd=tmp_path) as person,
    ):
        await person.see("> ")
        person.type("one")
        with trio.fail_after(60):
            while not asked:
                await trio.lowlevel.checkpoint()
        person.type("two")
        await person.see("sent after this turn")
        let.set()
        await person.see("First.")
        await person.see("Second.")
        person.press(CTRL_D)
        assert await person.end() == 0
    assert asked[1].body["messages"][-1]["content"] == "two"


async def test_one_turn_at_a_terminal_asks_there_too(tmp_path: Path, shared: SharedServers) -> None:
    servers_file(tmp_path, shared)
    async with (
        scripted_http(calls(("home__wipe", {})), says("It is done.")) as (url, asked),
        typing(*model_words(url), "--sink", "null", "wipe it", cwd=tmp_path) as person,
    ):
        await person.see("home.wipe wants to run")
        await person.see("no: ")
        person.type("y")
        await person.see("It is done.")
        assert await person.end() == 0
    assert asked[1].body["messages"][-1]["content"] == "wiped all"
