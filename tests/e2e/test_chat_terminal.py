"""`playhead chat` as a person has it: typing, music meanwhile, questions, and Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from tests.e2e.chat_kit import Stuck, calls, conversation, model_words, says, servers_file, tagged, typing
from tests.servers.scripted_http import Answering, scripted_http
from tests.servers.shared import SharedServers

PLAY = ("music__musicPlayer", {"query": "first light"})
CTRL_C, CTRL_D = "\x03", "\x04"


async def test_music_plays_while_one_goes_on_typing(tmp_path: Path, shared: SharedServers) -> None:
    servers_file(tmp_path, shared)
    replies = (calls(PLAY, text="Here it is."), says("You are ", "welcome."))
    async with conversation(*replies, cwd=tmp_path) as (person, asked):
        assert "/help" in person.screen
        await person.say("play something calm", "Here it is.", "♪ First Light", "> ")
        await person.say("/pause", "paused · 0:00 · First Light")
        await person.say("/volume 30", "volume 30")
        await person.say("/volume 300", "from 0 to 100")
        await person.say("/resume", "First Light")
        await person.say("thank you", "You are welcome.")
        await person.say("/stop", "stopped")
        await person.say("/resume", "stopped ·")
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
    async with conversation(*script, cwd=tmp_path, provider=provider) as (person, asked):
        assert "tools; /help" in person.screen
        await person.say("play something calm", "♪ First Light", "> ")
        for said, done, command, state in (
            ("wait", "✓ pause", "/pause", "paused ·"),
            ("to half a minute", "✓ seek", "/pause", "paused · 0:30"),
            ("go on", "✓ resume", "/volume", "volume 100"),
            ("quieter", "✓ set_volume", "/volume", "volume 30"),
            ("enough", "✓ stop", "/resume", "stopped ·"),
        ):
            await person.say(said, done, "> ")
            await person.say(command, state, "> ")
    assert len(asked) == 6, "no request follows an action"


async def test_a_time_is_sought(tmp_path: Path, shared: SharedServers) -> None:
    servers_file(tmp_path, shared)
    async with conversation(calls(PLAY), cwd=tmp_path) as (person, _):
        await person.say("play something calm", "♪ First Light", "> ")
        await person.say("/pause", "paused ·")
        for typed, shown in (
            ("30", "paused · 0:30 · First Light"),
            ("+10", "paused · 0:40"),
            ("-15.5", "paused · 0:24"),
            ("1:05", "paused · 1:05"),
            ("0:00:07", "paused · 0:07"),
            ("half", "expected a time such as 90, 1:30, +10 or -10, got 'half'"),
            ("", "got ''"),
        ):
            await person.say(f"/seek {typed}", shown)


async def test_the_queue_is_listed_and_its_pieces_are_chosen(tmp_path: Path, shared: SharedServers) -> None:
    servers_file(tmp_path, shared)
    async with conversation(calls(PLAY, PLAY), cwd=tmp_path) as (person, _):
        await person.say("/queue", "the queue is empty")
        await person.say("/queue 1", "expected items in the queue, got '1'")
        await person.say("play it twice", "♪ First Light", "♪ First Light", "> ")
        await person.say("/queue", "→ 1  First Light", "  2  First Light")
        await person.say("/queue 2", " · First Light")
        await person.say("/queue", "→ 2  First Light")
        await person.say("/previous", " · First Light")
        await person.say("/queue", "→ 1  First Light")
        await person.say("/queue 3", "expected a number from 1 to 2, got '3'")


async def test_the_commands_tell_of_tools_and_servers_and_begin_anew(
    tmp_path: Path, shared: SharedServers
) -> None:
    servers_file(tmp_path, shared, dead={"command": "/nonexistent/server"})
    async with conversation(says("One."), says("Two."), cwd=tmp_path) as (person, asked):
        assert "dead is not connected" in person.screen
        await person.say("/tools", "music__set_volume", "play_from_queue")
        await person.say("/servers", "home: connected (4 tools)", "dead: failed")
        await person.say("/volum", "did you mean /volume?")
        await person.say("/help", "/resume")
        await person.say("first", "One.")
        await person.say("/new", "new conversation")
        await person.say("//tools is what I say", "Two.")
    assert [message["content"] for message in asked[1].body["messages"]] == ["/tools is what I say"]
    assert max(len(line) for line in person.screen.replace("\r", "").splitlines()) <= 80 + len("> /tools")


async def test_ctrl_c_ends_a_reply_on_the_wire_and_the_conversation_goes_on(tmp_path: Path) -> None:
    stuck = Stuck("Once upon a time")
    async with conversation(stuck, says("Yes?"), cwd=tmp_path) as (person, asked):
        await person.say("a long story", "Once upon a time")
        person.press(CTRL_C)
        await person.see("the turn was aborted")
        await person.see("> ")
        await stuck.left.wait()
        await person.say("hello?", "Yes?")
    history = asked[1].body["messages"]
    assert [message["content"] for message in history] == ["a long story", "Once upon a time", "hello?"]


async def noted(note: trio.Path, text: str) -> None:
    with trio.fail_after(60):
        while not await note.exists() or await note.read_text() != text:
            pass


async def test_ctrl_c_ends_a_tool_call_on_the_wire_and_its_call_has_a_result(tmp_path: Path) -> None:
    servers_file(tmp_path)
    note = trio.Path(tmp_path / "note")
    replies = (calls(("home__hang", {"note": str(note)})), says("Yes?"))
    async with conversation(*replies, cwd=tmp_path) as (person, asked):
        await person.say("hang", "→ home__hang")
        await noted(note, "called")
        person.press(CTRL_C)
        await person.see("✗ home__hang: The call was cancelled")
        await person.see("> ")
        await person.say("hello?", "Yes?")
        await noted(note, "cancelled")
    call, result = asked[1].body["messages"][1:3]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert "cancelled" in result["content"]


async def test_a_second_ctrl_c_leaves_with_130(tmp_path: Path, shared: SharedServers) -> None:
    servers_file(tmp_path, shared)
    stuck = Stuck("Once upon a time")
    async with conversation(stuck, cwd=tmp_path) as (person, _):
        await person.say("a long story", "Once upon a time")
        person.press(CTRL_C)
        await person.see("aborted")
        await person.see("> ")
        person.press(CTRL_C)
        assert await person.end() == 130


async def test_ctrl_c_at_the_prompt_says_how_to_leave_and_a_line_disarms_it(tmp_path: Path) -> None:
    async with conversation(cwd=tmp_path) as (person, _):
        person.press(CTRL_C)
        await person.see("press Ctrl-C again")
        await person.see("> ")
        await person.say("/volume", "volume 100")
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
    async with conversation(
        *[step for _ in range(3) for step in (calls(wipe), says("Hm."))], cwd=tmp_path
    ) as (person, asked):
        person.type("wipe it")
        shown = await person.see("Run it?")
        assert "home.wipe wants to run (marked as destructive)" in shown
        assert "the \\\\u001b[2Jdisk" in shown or "\\u001b[2J" in shown
        await person.see("no: ")
        await person.say("n", "declined by the user", "> ")
        await person.say("wipe it!", "no: ")
        await person.say("a", "✓ home__wipe", "> ")
        await person.say("again", "✓ home__wipe", "> ")
    assert person.screen.count("Run it?") == 2
    assert "\x1b[2J" not in person.screen
    answers = [asked[index].body["messages"][-1]["content"] for index in (1, 3, 5)]
    assert "declined by the user" in answers[0]
    assert answers[1] == answers[2] == "wiped the \x1b[2Jdisk"


async def test_ctrl_c_at_a_question_cancels_the_call_and_its_answer_is_no_answer_later(
    tmp_path: Path, shared: SharedServers
) -> None:
    servers_file(tmp_path, shared)
    async with conversation(calls(("home__wipe", {})), says("Hello."), cwd=tmp_path) as (person, asked):
        await person.say("wipe it", "no: ")
        person.press(CTRL_C)
        await person.see("cancelled")
        await person.see("> ")
        await person.say("y", "Hello.")
    assert asked[1].body["messages"][-1] == {"role": "user", "content": "y"}


async def test_a_servers_question_is_a_form_and_wrong_values_are_asked_for_again(tmp_path: Path) -> None:
    servers_file(tmp_path)
    replies = (calls(("home__choose", {})), says("Jazz it is."))
    async with conversation(*replies, cwd=tmp_path) as (person, asked):
        await person.say("play what I like", "home asks: What do you like?", "Answer it?", "no: ")
        await person.say("y", "genre", "]: ")
        await person.say("", "genre is required", "]: ")
        await person.say("jazz", "loud", "]: ")
        await person.say("y", "volume", "]: ")
        await person.say("loud", "expected integer", "]: ")
        await person.say("", "Jazz it is.")
    assert asked[1].body["messages"][-1]["content"] == "accept genre='jazz' loud=True volume=30"


async def test_a_turn_that_fails_is_told_and_the_conversation_goes_on(tmp_path: Path) -> None:
    async def fails(answering: Answering) -> None:
        await answering.whole(b'{"error": {"message": "no such \\u001b[2Jmodel"}}', status=404)

    async with conversation(fails, says("Hello."), cwd=tmp_path) as (person, _):
        await person.say("hi", "error: ", "no such \\x1b[2Jmodel", "> ")
        await person.say("hi", "Hello.")


async def test_what_is_typed_while_the_model_talks_is_said_after(tmp_path: Path) -> None:
    let = trio.Event()

    async def slow(answering: Answering) -> None:
        await let.wait()
        await says("First.")(answering)

    async with conversation(slow, says("Second."), cwd=tmp_path) as (person, asked):
        person.type("one")
        with trio.fail_after(60):
            while not asked:
                await trio.lowlevel.checkpoint()
        await person.say("two", "sent after this turn")
        let.set()
        await person.see("First.")
        await person.see("Second.")
    assert asked[1].body["messages"][-1]["content"] == "two"


async def test_one_turn_at_a_terminal_asks_there_too(tmp_path: Path, shared: SharedServers) -> None:
    servers_file(tmp_path, shared)
    async with (
        scripted_http(calls(("home__wipe", {})), says("It is done.")) as (url, asked),
        typing(*model_words(url), "--sink", "null", "wipe it", cwd=tmp_path) as person,
    ):
        await person.see("home.wipe wants to run")
        await person.see("no: ")
        await person.say("y", "It is done.")
        assert await person.end() == 0
    assert asked[1].body["messages"][-1]["content"] == "wiped all"
