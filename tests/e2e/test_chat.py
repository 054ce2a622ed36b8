"""`playhead chat` in a script: one turn by an argument or a pipe, recordings, and what goes wrong."""

from __future__ import annotations

import json
import re
import shlex
import signal
from pathlib import Path
from typing import get_args

import pytest
import trio

from tests.e2e.chat_kit import Stuck, calls, chat, chat_process, chunk, model_words, says, servers_file
from tests.e2e.command import PLAYHEAD, environment, playhead
from tests.servers.audio_tools import AUDIO_TOOLS
from tests.servers.providers.script import Ask, ProviderName, Reply, Say
from tests.servers.providers.wire_server import wire_server
from tests.servers.scripted_http import Answering, scripted_http
from tests.servers.shared import SharedServers

PLAY = ("music__musicPlayer", {"query": "first light"})


async def test_a_message_runs_one_turn_with_the_tools_and_plays_what_they_gave(
    tmp_path: Path, shared: SharedServers
) -> None:
    servers_file(tmp_path, shared)
    wave = tmp_path / "heard.wav"
    async with scripted_http(calls(PLAY, text="One moment.")) as (url, asked):
        done = await chat_process(
            *model_words(url), "--sink", f"wave:{wave}", "play something calm", cwd=tmp_path
        )
    assert done.code == 0, done.stderr
    assert done.stdout.decode() == "One moment.\n", "sound that plays ends the turn"
    assert '→ music__musicPlayer {"query": "first light"}' in done.stderr
    assert "✓ music__musicPlayer" in done.stderr
    assert "♪ First Light" in done.stderr
    assert wave.stat().st_size > 1_000_000, "the command waits for the music"
    (request,) = asked
    assert request.body["messages"][-1] == {"role": "user", "content": "play something calm"}
    assert "music__set_volume" in [tool["function"]["name"] for tool in request.body["tools"]]
    assert "authorization" not in request.headers, "a key is neither set nor needed on loopback"


async def test_a_message_comes_through_a_pipe_and_the_answer_goes_to_one(tmp_path: Path) -> None:
    async with scripted_http(says("It is ", "four.")) as (url, asked):
        done = await chat(*model_words(url), "--system", "Be short.", cwd=tmp_path, stdin=b"2 + 2 = ?\n")
    assert (done.code, done.stdout) == (0, b"It is four.\n"), done.stderr
    assert "no servers file" in done.stderr
    assert [message["content"] for message in asked[0].body["messages"]] == ["Be short.", "2 + 2 = ?\n"]
    assert "tools" not in asked[0].body


async def test_json_is_one_object_with_what_was_said_called_and_used(
    tmp_path: Path, shared: SharedServers
) -> None:
    servers_file(tmp_path, shared, dead={"command": "/nonexistent/server"})
    volume = ("music__set_volume", {"volume": 40})
    async with scripted_http(calls(volume, ("music__nothing", {})), says("Quieter now.")) as (url, _):
        done = await chat(*model_words(url), "--json", "quieter", cwd=tmp_path)
    assert done.code == 0, done.stderr
    report = done.json
    assert (report["text"], report["rounds"], report["ended_by"]) == ("Quieter now.", 2, "answer")
    assert report["usage"] == {"input_tokens": 14, "output_tokens": 6}
    assert report["servers"] == {"music": "connected", "home": "connected", "dead": "failed"}
    first, second = report["calls"]
    assert (first["name"], first["arguments"], first["status"]) == (volume[0], volume[1], "done")
    assert first["result"].startswith("Volume set to 40")
    assert second["status"] == "unknown"
    assert report["error"] is None


async def test_a_dead_server_is_told_and_the_others_serve(tmp_path: Path, shared: SharedServers) -> None:
    servers_file(tmp_path, shared, dead={"command": "/nonexistent/server"})
    async with scripted_http(says("Hello.")) as (url, asked):
        done = await chat(*model_words(url), "--servers", "dead,music", "hi", cwd=tmp_path)
    assert (done.code, done.stdout) == (0, b"Hello.\n")
    assert "dead is not connected:" in done.stderr
    assert [tool["function"]["name"] for tool in asked[0].body["tools"]] == [
        f"music__{tool}" for tool in AUDIO_TOOLS
    ]


@pytest.mark.parametrize("flags", [[], ["--json"], ["-v"]], ids=["shown", "json", "verbose"])
async def test_a_recording_shown_again_is_what_the_turn_showed(
    tmp_path: Path, flags: list[str], shared: SharedServers
) -> None:
    servers_file(tmp_path, shared)
    said = [calls(("music__set_volume", {"volume": 40}), ("nothing", {}), text="Wait"), says("Done.\nOK")]
    async with scripted_http(*said) as (url, _):
        live = await chat(*model_words(url), "--record", "turn.jsonl", *flags, "quieter", cwd=tmp_path)
    shown = await chat("--replay", "turn.jsonl", *flags, cwd=tmp_path)
    assert (live.code, shown.code) == (0, 0), live.stderr + shown.stderr
    assert shown.stderr == live.stderr
    if "--json" in flags:
        same = ("text", "rounds", "calls", "usage", "error")
        assert {name: shown.json[name] for name in same} == {name: live.json[name] for name in same}
    else:
        assert shown.stdout == live.stdout == b"Wait\nDone.\nOK\n"


async def test_prompt_mode_calls_tools_by_tags_that_nobody_sees(
    tmp_path: Path, shared: SharedServers
) -> None:
    servers_file(tmp_path, shared)
    template = tmp_path / "template.txt"
    template.write_text("Tools, for you:\n{{tools}}\n")
    tag = '<tool_use><name>music__set_volume</name><arguments>{"volume": 7}</arguments></tool_use>'
    async with scripted_http(says("Well. ", tag[:20], tag[20:]), says("Done.")) as (url, asked):
        done = await chat(
            *model_words(url, provider="prompt"), "--prompt-template", template, "quiet", cwd=tmp_path
        )
    assert done.code == 0, done.stderr
    assert done.stdout.decode().split() == ["Well.", "Done."]
    assert asked[0].body["messages"][0]["content"].startswith("Tools, for you:\n{")
    assert "Volume set to 7" in asked[1].body["messages"][-1]["content"]


@pytest.mark.parametrize("provider", get_args(ProviderName))
async def test_every_provider_calls_a_tool_and_answers(
    provider: ProviderName, tmp_path: Path, shared: SharedServers
) -> None:
    servers_file(tmp_path, shared)
    script = [
        Reply(Say("One moment. "), Ask("a", "music__set_volume", '{"volume": 40}')),
        Reply(Say("It is quieter now.")),
    ]
    async with wire_server(script) as server:
        url = {"anthropic": server.url, "gemini": server.gemini_url}.get(provider, server.openai_url)
        words = ["--provider", provider, "--model", "test", "--base-url", url]
        keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"), "test-key")
        done = await chat(*words, "--json", "quieter", cwd=tmp_path, env=keys)
        assert not server.refused
    assert done.code == 0, done.stderr
    assert done.json["text"] == "It is quieter now."
    (call,) = done.json["calls"]
    assert (call["status"], call["result"][:16]) == ("done", "Volume set to 40")


# --- who is not trusted ---------------------------------------------------------------------------------


async def test_the_models_and_the_tools_words_cannot_address_the_terminal(
    tmp_path: Path, shared: SharedServers
) -> None:
    servers_file(tmp_path, shared)
    hostile = "\x1b[31mred\x1b]0;owned\x07 \r\u202egnp"
    async with scripted_http(calls(("home__evil", {"\x1b[2J": hostile}), text=hostile), says(hostile)) as (
        url,
        _,
    ):
        done = await chat(*model_words(url), "-v", "go", cwd=tmp_path)
    assert done.code == 0
    for text in (done.stdout.decode(), done.stderr):
        assert not set(text) & set("\x1b\x07\r\u202e"), text
    assert "\\x1b[31mred\\x1b]0;owned\\x07 \\x0d\\u{202E}gnp" in done.stdout.decode()


async def test_what_is_told_of_calls_fits_80_columns(tmp_path: Path, shared: SharedServers) -> None:
    servers_file(tmp_path, shared)
    long = ("music__musicPlayer", {"query": "no such piece of music " * 20})
    async with scripted_http(calls(long, ("n" * 300, {})), says("ok")) as (url, _):
        done = await chat(*model_words(url), "go", cwd=tmp_path)
    told = done.stderr.splitlines()
    assert max(len(line) for line in told) == 80
    (begun,) = [number for number, line in enumerate(told) if line.startswith("→ music__musicPlayer")]
    assert told[begun].endswith("…"), "arguments are cut"
    assert told[begun + 1].startswith("✗"), "and take one line"
    assert "home__evil" in done.stderr, "a reason is whole"


async def test_where_nobody_can_be_asked_a_tool_that_destroys_does_not_run(
    tmp_path: Path, shared: SharedServers
) -> None:
    servers_file(tmp_path, shared)
    async with scripted_http(calls(("home__wipe", {})), says("I may not.")) as (url, asked):
        done = await chat(*model_words(url), "--json", "wipe it all", cwd=tmp_path)
    assert [call["status"] for call in done.json["calls"]] == ["denied"]
    assert "nobody to ask" in asked[1].body["messages"][-1]["content"]
    (refused,) = done.json["calls"]
    assert "add --allow home/wipe, or put { server =" in refused["result"]
    assert "playhead/tools.toml" in refused["result"]
    assert done.code == 1
    assert done.json["error"]["message"] == "nothing was done: the tool call was refused (home__wipe)"


async def test_the_remedy_of_a_refusal_works_as_it_is_printed(tmp_path: Path, shared: SharedServers) -> None:
    servers_file(tmp_path, shared)
    replies = (calls(("home__wipe", {})), says("Done."))
    async with scripted_http(*replies) as (url, _):
        refused = await chat(*model_words(url), "wipe it all", cwd=tmp_path)
    assert refused.code == 1
    assert refused.stdout == b"Done.\n"
    told = " ".join(refused.stderr.split())
    assert "error: nothing was done" in told
    (option,) = re.findall(r"add (--allow \S+),", told)
    async with scripted_http(*replies) as (url, _):
        done = await chat(*model_words(url), *shlex.split(option), "wipe it all", cwd=tmp_path)
    assert (done.code, done.stdout) == (0, b"Done.\n")
    assert "✓ home__wipe" in done.stderr


@pytest.mark.parametrize(
    ("allow", "code", "warned"),
    [("home/*", 0, False), ("*/wipe", 0, False), ("home/wip", 1, True), ("Home/wipe", 1, True)],
)
async def test_what_is_allowed_is_a_pattern_of_server_and_tool(
    allow: str, code: int, *, warned: bool, tmp_path: Path, shared: SharedServers
) -> None:
    servers_file(tmp_path, shared)
    async with scripted_http(calls(("home__wipe", {})), says("Done.")) as (url, _):
        done = await chat(*model_words(url), "--allow", allow, "wipe it all", cwd=tmp_path)
    assert done.code == code
    assert (f"--allow {allow} fits none of the" in done.stderr) is warned


async def test_a_turn_with_one_call_done_and_one_refused_is_no_failure(
    tmp_path: Path, shared: SharedServers
) -> None:
    servers_file(tmp_path, shared)
    both = calls(("home__wipe", {}), PLAY)
    async with scripted_http(both, says("Half.")) as (url, _):
        done = await chat(*model_words(url), "--json", "wipe it and play", cwd=tmp_path)
    assert [call["status"] for call in done.json["calls"]] == ["denied", "done"]
    assert done.code == 0


async def test_a_rule_that_denies_is_stronger_than_allow(tmp_path: Path, shared: SharedServers) -> None:
    servers_file(tmp_path, shared)
    rules = tmp_path / "rules.toml"
    rules.write_text('[[approvals.rules]]\nserver = "home"\naction = "deny"\n')
    async with scripted_http(calls(("home__wipe", {})), says("No.")) as (url, _):
        words = ("--tool-config", rules, "--allow", "*/*", "--json")
        done = await chat(*model_words(url), *words, "wipe it", cwd=tmp_path)
    assert [call["result"] for call in done.json["calls"]] == [
        "The call was not allowed: a rule of the user denies this tool."
    ]
    assert done.code == 1


async def test_the_rules_of_the_tool_file_hold(tmp_path: Path, shared: SharedServers) -> None:
    servers_file(tmp_path, shared)
    rules = tmp_path / "rules.toml"
    rules.write_text('[[approvals.rules]]\nserver = "home"\naction = "allow"\n')
    async with scripted_http(calls(("home__wipe", {})), says("Gone.")) as (url, _):
        done = await chat(*model_words(url), "--tool-config", rules, "--json", "wipe it", cwd=tmp_path)
    assert [(call["status"], call["result"]) for call in done.json["calls"]] == [("done", "wiped all")]


# --- what goes wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--model", "m", "hi"], "--provider is missing"),
        (["--provider", "openai", "hi"], "--model is missing"),
        (["--provider", "nobody", "--model", "m", "hi"], "nobody"),
        (["--provider", "openai", "--model", "m", "hi"], "OPENAI_API_KEY"),
        (["--provider", "openai-responses", "--model", "m", "hi"], "OPENAI_API_KEY"),
        (["--provider", "anthropic", "--model", "m", "hi"], "ANTHROPIC_API_KEY"),
        (["--provider", "gemini", "--model", "m", "hi"], "GEMINI_API_KEY or GOOGLE_API_KEY"),
        (
            ["--provider", "openai", "--model", "m", "--base-url", "http://10.0.0.9/v1", "hi"],
            "on this machine",
        ),
        (["--provider", "openai", "--model", "m", "--base-url", "ftp://localhost", "hi"], "http"),
        (["--provider", "openai", "--model", "m", "--base-url", "http://localhost:1", " "], "empty"),
        (["--provider", "openai", "--model", "m", "--prompt-template", "x", "hi"], "--provider prompt"),
        (["--provider", "openai", "--model", "m", "--pace", "2", "hi"], "--replay"),
        (["--provider", "prompt", "--model", "m", "--allow", "wipe", "hi"], "SERVER/TOOL, such as"),
        (["--provider", "prompt", "--model", "m", "--allow", "/wipe", "hi"], "SERVER/TOOL, such as"),
        (["--replay", "nothing.jsonl"], "nothing.jsonl"),
        (["--replay", "nothing.jsonl", "hi"], "omit MESSAGE"),
        (
            ["--provider", "openai", "--model", "m", "--base-url", "http://[::1]:1", "--system", "@no", "x"],
            "no",
        ),
    ],
)
def test_a_mistake_is_a_usage_error_that_says_what_to_do(words: list[str], says: str, tmp_path: Path) -> None:
    done = playhead("chat", "--trust", *words, cwd=tmp_path)
    assert done.code == 2, done.stderr
    assert says in done.stderr
    assert done.stdout == b""


async def test_a_base_url_with_nobody_behind_it_is_no_connection(tmp_path: Path) -> None:
    done = await chat(*model_words("http://127.0.0.1:1"), "--json", "hi", cwd=tmp_path)
    assert done.code == 3
    assert done.json["error"]["type"] == "ConnectError"
    assert "127.0.0.1" in done.stderr


async def test_a_key_goes_to_the_provider_and_nowhere_else(tmp_path: Path) -> None:
    key = "sk-secret-123456"

    async def refuses(answering: Answering) -> None:
        body = json.dumps({"error": {"message": f"Incorrect API key provided: {key}"}}).encode()
        await answering.whole(body, status=401)

    async with scripted_http(refuses) as (url, asked):
        done = await chat(
            *model_words(url),
            "--record",
            "r.jsonl",
            "--json",
            "hi",
            cwd=tmp_path,
            env={"OPENAI_API_KEY": key},
        )
    assert done.code == 1
    assert asked[0].headers["authorization"] == f"Bearer {key}"
    assert "refused the key" in done.json["error"]["message"]
    everything = done.stdout.decode() + done.stderr + (tmp_path / "r.jsonl").read_text()
    assert key not in everything


async def test_a_reply_cut_at_its_length_is_shown_and_fails(tmp_path: Path) -> None:
    async def cut(answering: Answering) -> None:
        await answering.events([chunk({"content": "Once upon"}), chunk({}, "length")])

    async with scripted_http(cut) as (url, _):
        done = await chat(*model_words(url), "a story", cwd=tmp_path)
    assert (done.code, done.stdout) == (1, b"Once upon\n")
    assert "length" in done.stderr


async def test_ctrl_c_in_a_script_ends_the_request_and_says_how_far_it_came(tmp_path: Path) -> None:
    stuck = Stuck("Once upon")
    async with scripted_http(stuck) as (url, _):
        process = await trio.lowlevel.open_process(
            [*PLAYHEAD, "chat", "--trust", *model_words(url), "a story"],
            stdout=-1,
            cwd=tmp_path,
            env=environment(),
        )
        assert process.stdout is not None
        with trio.fail_after(60):
            came = b""
            while b"Once upon" not in came:
                came += await process.stdout.receive_some()
            process.send_signal(signal.SIGINT)
            await stuck.left.wait()
            assert await process.wait() == 130


async def test_a_reader_that_leaves_ends_it_without_a_traceback(tmp_path: Path) -> None:
    async with scripted_http(says(*["a line\n"] * 100)) as (url, _):
        words = shlex.join([*PLAYHEAD, "chat", "--trust", *model_words(url), "go on"])
        with trio.fail_after(60):
            done = await trio.run_process(
                ["bash", "-c", f"{words} | head -1; exit ${{PIPESTATUS[0]}}"],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                cwd=tmp_path,
                env=environment(),
            )
    assert (done.returncode, done.stdout) in [(1, b"a line\n"), (0, b"a line\n")]
    assert b"Traceback" not in done.stderr
