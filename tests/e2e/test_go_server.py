"""Against a server in another language on another SDK (mcp-go): range forms, stdio and HTTP, annotations."""

from __future__ import annotations

import hashlib
import json
import random
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from playhead import errors
from playhead.client import connect
from playhead.client.session.tool_calls import has_default_hints
from playhead.stream.options import StreamOptions
from tests.e2e.chat_kit import calls, chat, model_words, says
from tests.e2e.command import playhead
from tests.servers.launch import http_process
from tests.servers.scripted_http import scripted_http
from tests.servers.wave import CHANNELS, HEADER_BYTES, RATE_HZ, wave_header

pytestmark = [pytest.mark.needs_go, pytest.mark.slow("builds a server with the Go toolchain")]

SIZE_BYTES = 32 * 1024 * 1024


@asynccontextmanager
async def target(transport: str, binary: str, *options: str) -> AsyncIterator[str | list[str]]:
    if transport == "stdio":
        yield [binary, *options]
    else:
        async with http_process([binary, "-transport", "http", *options]) as url:
            yield url


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("strategy", ["uri-template", "arguments"])
async def test_32_mib_are_byte_exact(transport: str, strategy: str, go_pages: str, tmp_path: Path) -> None:
    path = tmp_path / "pages"
    with trio.fail_after(120):
        async with target(transport, go_pages) as where, connect(where) as session:
            result = await session.call_tool("link")
            (link,) = result.links
            async with session.open(link, options=StreamOptions(strategy=strategy)) as stream:
                statistics = await stream.save(path)
    assert path.stat().st_size == SIZE_BYTES
    assert hashlib.sha256(path.read_bytes()).hexdigest() == result.text.strip()
    assert statistics.strategy == strategy


async def test_log_lines_between_the_answers_do_no_harm(go_pages: str, tmp_path: Path) -> None:
    path = tmp_path / "pages"
    with trio.fail_after(60):
        async with connect([go_pages, "-chatty", "-size", "2000003"]) as session:
            result = await session.call_tool("link")
            (link,) = result.links
            async with session.open(link) as stream:
                await stream.save(path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == result.text.strip()


async def test_a_tool_that_never_answers_ends_at_its_deadline_and_the_session_goes_on(go_pages: str) -> None:
    with trio.fail_after(60):
        async with connect([go_pages]) as session:
            with pytest.raises(errors.DeadlineError):
                await session.call_tool("never", timeout=0.2)
            assert (await session.call_tool("link")).links


# --- default annotations --------------------------------------------------------------------------------


@pytest.fixture
def song(go_pages: str, tmp_path: Path) -> dict[str, object]:
    """The entry of a servers file for a server whose resource is a second of audio."""
    size_bytes = HEADER_BYTES + RATE_HZ * CHANNELS * 2
    path = tmp_path / "song.wav"
    path.write_bytes(wave_header(size_bytes) + random.Random(1).randbytes(size_bytes - HEADER_BYTES))
    return {"command": go_pages, "args": ["-file", str(path), "-mime", "audio/wav"]}


async def test_its_tools_have_the_annotations_that_say_nothing(go_pages: str) -> None:
    async with connect([go_pages, "-size", "1"]) as session:
        assert has_default_hints(await session.list_tools())


@pytest.mark.parametrize(
    ("rules", "options", "plays"),
    [
        ("", [], True),
        ('default = "ask"', [], False),
        ('default = "ask"', ["--allow", "go/link"], True),
        ('rules = [{ server = "go", tool = "link", action = "allow" }]\ndefault = "ask"', [], True),
    ],
)
async def test_a_model_plays_its_music_or_the_refusal_says_how_to_allow_it(
    rules: str, options: list[str], *, plays: bool, song: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"go": song}}))
    (tmp_path / "rules.toml").write_text(f"[approvals]\n{rules}\n")
    words = ["--tool-config", "rules.toml", *options, "--sink", "wave:heard.wav", "--json", "play"]
    async with scripted_http(calls(("go__link", {})), says("I may not.")) as (url, _):
        done = await chat(*model_words(url), *words, cwd=tmp_path)
    (call,) = done.json["calls"]
    if plays:
        assert (done.code, call["status"]) == (0, "done")
        with (
            wave.open(str(tmp_path / "song.wav")) as sent,
            wave.open(str(tmp_path / "heard.wav")) as heard,
        ):
            assert heard.readframes(RATE_HZ * 2) == sent.readframes(RATE_HZ * 2)
    else:
        assert (done.code, call["status"]) == (1, "denied")
        assert "--allow go/link" in call["result"]
        assert '{ server = "go", tool = "link", action = "allow" }' in call["result"]
        assert "of rules.toml" in call["result"]


def test_a_check_calls_its_tools(song: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"go": song}}))
    words = ("--config", tmp_path / "mcp.json", "--timeout", "0.5", "--json")
    report = playhead("check", "go", "full", *words).json
    tests = report["detailed_results"]
    called = {test["tool"]: test["status"] for test in tests if test["title"] == "valid arguments: the least"}
    assert called == {"link": "success", "never": "failed"}
    assert "destructive" not in " ".join(str(test.get("error")) for test in tests)
