"""Results of public servers (tests/data/results): heard by a session, by `playhead play` and by the agent."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from playhead.agent import Agent
from playhead.agent.models import anthropic, gemini, openai_chat, openai_responses
from playhead.agent.scripted_model import ScriptedModel, call, reply
from playhead.client import connect
from playhead.client.hub import open_hub
from playhead.config.servers import ServerConfig
from playhead.content import ABSENT, parse_block
from playhead.playback import NullSink, Player
from playhead.results.classify import classify
from playhead.results.model_text import text_for_model
from tests.e2e.command import playhead
from tests.servers.raw_http import Exchange, raw_http
from tests.servers.raw_origin import RawOrigin, answer, answer_range, raw_origin

DATA = Path(__file__).parents[2] / "data"
CORPUS = sorted((DATA / "results").glob("*.json"))
TYPES = {".mp3": "audio/mpeg", ".wav": "audio/wav", ".pls": "audio/x-scpls"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A result of the corpus, with a server that returns it."""

    entry: Mapping[str, Any]
    url: str
    allowed: ServerConfig
    origin: RawOrigin
    directory: Path

    @property
    def options(self) -> tuple[str, ...]:
        return ("--allow-origin", self.origin.url, "--allow-path", str(self.directory))


def base64_of(name: str) -> str:
    return base64.b64encode((DATA / name).read_bytes()).decode()


def write_files(entry: Mapping[str, Any], directory: Path) -> None:
    for name, source in entry["files"].items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes((DATA / source).read_bytes())


def filled(result: object, **places: str) -> Any:
    """The result with its places, and the base64 of the audio in tests/data."""
    text = json.dumps(result)
    for name, place in places.items():
        text = text.replace(f"{{{name}}}", place)
    for name in ("tagged.mp3", "bare.mp3", "chord.wav", "chord.flac", "chord.ogg"):
        text = text.replace(f"{{base64 {name}}}", base64_of(name))
    return json.loads(text)


def entry_of(path: Path) -> Any:
    return json.loads(path.read_text())


@asynccontextmanager
async def recorded(path: Path, directory: Path) -> AsyncIterator[Recorded]:
    entry = entry_of(path)
    write_files(entry, directory)

    async def serve(_origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
        path = head.split()[1].decode().partition("?")[0]
        source = entry["serves"].get(path)
        if source is None:
            await answer(stream, "404 Not Found")
            return
        body = source.encode() if source.startswith("[playlist]") else (DATA / source).read_bytes()
        mime_type = "audio/x-scpls" if source.startswith("[playlist]") else TYPES[Path(source).suffix]
        await answer_range(stream, head, body, f"content-type: {mime_type}")

    async with raw_origin(serve) as origin:
        result = filled(entry["result"], origin=origin.url, directory=str(directory))

        async def handle(exchange: Exchange) -> None:
            if exchange.method == "tools/call":
                await exchange.result(result)
            elif exchange.method == "tools/list":
                await exchange.result({"tools": [{"name": "x", "inputSchema": {"type": "object"}}]})
            else:
                await exchange.error(-32601, "Method not found")

        async with raw_http(handle) as server:
            server.capabilities["tools"] = {}
            allowed = ServerConfig(
                name="s", url=server.url, allow_origins=(origin.url,), allow_paths=(str(directory),)
            )
            yield Recorded(entry=entry, url=server.url, allowed=allowed, origin=origin, directory=directory)


def holds_base64(text: str) -> bool:
    return any(base64_of(name)[100:300] in text for name in ("tagged.mp3", "bare.mp3", "chord.wav"))


corpus = pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)


def test_the_corpus_is_large_and_says_how_each_result_was_made() -> None:
    assert len(CORPUS) >= 30
    for path in CORPUS:
        entry = entry_of(path)
        server = entry["server"].replace("@", "").replace("/", "-")
        assert path.stem.startswith(f"{server}-{entry['version']}")
        assert entry["how"].startswith(("recorded from a run", "rebuilt field by field"))
        assert bool(entry["heard"]) == bool(entry["row"])


@corpus
async def test_a_session_hears_what_is_allowed_and_names_what_is_not(path: Path, tmp_path: Path) -> None:
    async with recorded(path, tmp_path) as server:
        entry = server.entry
        async with connect(server.allowed) as session:
            result = await session.call_tool("x")
            heard: list[str] = []
            for media in result.media:
                sink = NullSink(real_time=False)
                async with Player(sink) as player:
                    await player.play(media)
                    await player.wait_finished()
                assert sink.report is not None
                heard.append(sink.report.sha256)
        assert heard == entry["heard"]
        assert result.turn.decision == ("stop" if heard else "continue")
        assert not holds_base64(result.text_for_model)
        rows = {each.row for each in result.plan.candidates if each.verdict and each.verdict.items}
        assert entry["row"] in {"block", "base64", None} or rows == {entry["row"]}
        before = len(server.origin.heads)
        async with connect(ServerConfig(url=server.url)) as session:
            result = await session.call_tool("x")
        verdicts = [each.verdict for each in result.plan.refused]
        refused = {each.permission.setting for each in verdicts if each and each.permission}
        assert refused == ({entry["permission"]} if entry["permission"] else set())
        assert len(server.origin.heads) == before, "an origin that is not allowed sees no request"
        if entry["permission"]:
            assert (result.media, result.turn.decision) == ((), "continue")


@corpus
def test_classification_alone_gives_the_model_no_base64(path: Path) -> None:
    result = filled(entry_of(path)["result"])
    plan = classify(
        [parse_block(each) for each in result["content"]],
        is_error=False,
        structured=result.get("structuredContent", ABSENT),
    )
    assert not holds_base64(text_for_model(plan, limit_chars=100_000).text)
    assert not holds_base64(json.dumps(None if plan.structured is ABSENT else plan.structured))


@corpus
async def test_the_command_plays_it_or_names_the_permission(path: Path, tmp_path: Path) -> None:
    async with recorded(path, tmp_path) as server:
        play = partial(playhead, "play", server.url, "x", "--sink", "null", "--json")
        outcome = await trio.to_thread.run_sync(partial(play, *server.options))
        refused = await trio.to_thread.run_sync(play)
    if server.entry["heard"]:
        assert outcome.code == 0, outcome.stderr
        assert outcome.json["position_seconds"] > 0
    else:
        assert outcome.code != 0
    if server.entry["permission"]:
        option = f"--{server.entry['permission'][:-1].replace('_', '-')}"
        assert refused.code == 2
        assert option in refused.json["error"]["message"]


async def test_call_lists_each_candidate_and_what_became_of_it(tmp_path: Path) -> None:
    path = DATA / "results" / "elevenlabs-mcp-0.12.2-files.json"
    async with recorded(path, tmp_path) as server:
        call_it = partial(playhead, "call", server.url, "x", "--sink", "null", "--candidates")
        refused = await trio.to_thread.run_sync(call_it)
        played = await trio.to_thread.run_sync(partial(call_it, *server.options))
        reported = await trio.to_thread.run_sync(partial(call_it, "--json"))
    shown = " ".join(refused.stdout.decode().split())
    assert "path $.content[0].text" in shown
    assert "not allowed: --allow-path" in shown
    assert f"--allow-path {tmp_path}" in "".join(refused.stderr.split("\n")).replace("  ", " ")
    assert "plays: a file below an allowed directory" in " ".join(played.stdout.decode().split())
    assert [each["row"] for each in reported.json["candidates"]] == ["path"]


@corpus
async def test_the_agent_plays_it_and_its_model_gets_no_base64(path: Path, tmp_path: Path) -> None:
    async with recorded(path, tmp_path) as server, open_hub({"s": server.allowed}) as hub:
        await hub.connect_all()
        await hub.discover_and_register_all_tools()
        model = ScriptedModel([reply(call("s__x")), reply("Done."), reply("Again.")])
        sink = NullSink(real_time=False)
        async with Player(sink) as player:
            agent = Agent(model, hub, player=player)
            await agent.say("Play it")
            await player.wait_finished()
            await agent.say("And?")
        heard = sink.report is not None and sink.report.frames > 0
    assert heard == bool(server.entry["heard"])
    assert len(model.requests) == (2 if server.entry["heard"] else 3)
    for request in model.requests:
        assert not holds_base64(repr(request))
        for provider in (anthropic, gemini, openai_chat, openai_responses):
            assert not holds_base64(json.dumps(provider.encode(request, model="m")))
