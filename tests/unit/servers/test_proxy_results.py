"""The proxy: everything passes, and audio in results goes to the player, by the options."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from mcp.server import Server
from mcp.shared.exceptions import MCPError

from playhead import connect
from playhead.client.session.session import Session
from playhead.config.servers import ServerConfig
from playhead.errors import ServerError
from playhead.playback import NullSink, Player
from playhead.servers.proxy import OnCall, ProxyOptions
from playhead.servers.proxy.proxy_server import open_proxy
from playhead.servers.proxy.result_audio import ADDRESS_META, ResultAudio
from tests.servers.wave import wave_header

PCM = bytes(range(256)) * 345
WAVE = wave_header(44 + len(PCM)) + PCM
DONE: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
BASE64 = base64.b64encode(WAVE).decode()
SECRET = "canary-5up3r-s3cr3t-value-0123456789"


def library(name: str = "library") -> Server[Any]:
    """Return a server with a tool, a prompt, a resource and completions."""
    schema = {"type": "object", "properties": {"audio": {"type": "string", "contentEncoding": "base64"}}}

    async def list_tools(_context: object, _params: object) -> Any:
        plain = {"name": "plain", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}}
        strict = {"name": "inline", "inputSchema": {"type": "object"}, "outputSchema": schema}
        return DONE | {"tools": [plain, strict, {"name": "block", "inputSchema": {"type": "object"}}]}

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> Any:
        if params.name == "inline":
            return DONE | {
                "content": [{"type": "text", "text": "here"}],
                "structuredContent": {"audio": BASE64},
            }
        if params.name == "block":
            sound = {"type": "audio", "data": BASE64, "mimeType": "audio/wav"}
            return DONE | {
                "content": [{"type": "text", "text": "before"}, sound, {"type": "text", "text": "after"}]
            }
        meta = {k: v for k, v in (context.params.get("_meta") or {}).items() if k != "progressToken"}
        link = {
            "type": "resource_link",
            "uri": f"{(params.arguments or {}).get('uri', 'x:y')}",
            "name": "n",
            "mimeType": "text/plain",
        }
        return DONE | {"content": [link], "structuredContent": {"meta": meta, "server": name}}

    async def read(context: Any, params: types.ReadResourceRequestParams) -> Any:
        if str(params.uri) == "song://missing":
            raise MCPError(-32002, "no such song", {"uri": "song://missing"})
        seen = json.dumps([str(params.uri), context.params.get("arguments"), name])
        return DONE | {"contents": [{"uri": str(params.uri), "text": seen}]}

    async def prompts(_context: object, _params: object) -> Any:
        return DONE | {"prompts": [{"name": "greet", "arguments": [{"name": "who"}]}]}

    async def prompt(_context: object, params: types.GetPromptRequestParams) -> Any:
        link = {"type": "resource_link", "uri": "song://1", "name": "n", "mimeType": "text/plain"}
        text = {"type": "text", "text": f"Greet {params.arguments} of {name}"}
        return DONE | {"messages": [{"role": "user", "content": text}, {"role": "user", "content": link}]}

    async def complete(_context: object, params: Any) -> Any:
        ref = params.ref.model_dump()
        return DONE | {"completion": {"values": [name, str(ref.get("uri") or ref.get("name"))]}}

    async def resources(_context: object, _params: object) -> Any:
        return DONE | {"resources": [{"uri": "song://1", "name": "one"}]}

    async def templates(_context: object, _params: object) -> Any:
        return DONE | {"resourceTemplates": [{"uriTemplate": "song://{id}", "name": "any"}]}

    return Server(
        name,
        instructions=f"{name} has songs.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_read_resource=read,
        on_list_prompts=prompts,
        on_get_prompt=prompt,
        on_completion=complete,
        on_list_resources=resources,
        on_list_resource_templates=templates,
    )


@asynccontextmanager
async def proxied(
    *names: str, mode: str = "legacy", player: Player | None = None, missing: Any = None, **given: Any
) -> AsyncIterator[Session]:
    targets = {name: library(name) for name in names or ("library",)}
    options = ProxyOptions(**given)
    audio = None if player is None else ResultAudio(player=player, options=options)
    if audio is not None and missing is not None:
        audio.missing_device = missing
    async with (
        open_proxy(targets, audio, options) as proxy,
        connect(proxy, mode=mode) as session,
    ):
        yield session


MODES = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


@MODES
async def test_prompts_completions_and_resources_pass_with_one_server_unchanged(mode: str) -> None:
    async with proxied(mode=mode) as host:
        assert [prompt.name for prompt in await host.list_prompts()] == ["greet"]
        assert (
            "{'who': 'Ada'} of library" in (await host.get_prompt("greet", {"who": "Ada"})).messages[0].text
        )
        params = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "A"}}
        done = await host.request("completion/complete", params)
        assert done["completion"]["values"] == ["library", "greet"]
        assert [str(each.uri) for each in await host.list_resources()] == ["song://1"]
        text = await host.read_text("song://1?x")
        assert json.loads(text) == ["song://1?x", None, "library"]
        with pytest.raises(ServerError, match="no such song") as caught:
            await host.read_text("song://missing")
        assert caught.value.data == {"uri": "song://missing"}


async def test_the_servers_capabilities_and_instructions_are_declared() -> None:
    async with proxied() as host:
        assert set((host.handshake or {})["capabilities"]) == {"tools", "prompts", "resources", "completions"}
        assert (host.handshake or {})["instructions"] == "library has songs."
    async with proxied("a", "b") as host:
        assert (host.handshake or {})["instructions"] == "a: a has songs.\n\nb: b has songs."


@MODES
async def test_two_servers_with_equal_names_stay_apart(mode: str) -> None:
    async with proxied("a", "b", mode=mode) as host:
        assert {tool.name for tool in await host.list_tools()} >= {"a__plain", "b__plain"}
        called = await host.call_tool("b__plain")
        assert called.raw["structuredContent"]["server"] == "b"
        assert {prompt.name for prompt in await host.list_prompts()} == {"a__greet", "b__greet"}
        got = await host.get_prompt("b__greet")
        assert "of b" in got.messages[0].text
        assert json.dumps(got.raw).count("b+song://1") == 1
        assert {str(each.uri) for each in await host.list_resources()} == {"a+song://1", "b+song://1"}
        listed = await host.list_resource_templates()
        assert {each.uri_template for each in listed} == {"a+song://{id}", "b+song://{id}"}
        text = await host.read_text("b+song://1")
        assert json.loads(text) == ["song://1", None, "b"]
        params = {
            "ref": {"type": "ref/resource", "uri": "b+song://{id}"},
            "argument": {"name": "id", "value": ""},
        }
        done = await host.request("completion/complete", params)
        assert done["completion"]["values"] == ["b", "song://{id}"]
        with pytest.raises(ServerError, match="starts with one of"):
            await host.read_text("song://1")


async def test_the_arguments_and_the_meta_of_a_request_reach_the_server() -> None:
    async with proxied() as host:
        read = await host.request("resources/read", {"uri": "song://1", "arguments": {"start": 0, "end": 9}})
        assert json.loads(read["contents"][0]["text"])[1] == {"start": 0, "end": 9}
        called = await host.call_tool("plain", members={"_meta": {"playhead/range": {"start": 1}}})
        assert called.raw["structuredContent"]["meta"] == {"playhead/range": {"start": 1}}


async def test_a_hostile_server_cannot_name_anothers_resources() -> None:
    async with proxied("evil", "good") as host:
        link = (await host.call_tool("evil__plain", {"uri": "good+song://1"})).links[0]
        assert link.uri == "evil+good+song://1"
        text = await host.read_text(link.uri)
        assert json.loads(text)[2] == "evil"


@asynccontextmanager
async def silent() -> AsyncIterator[Player]:
    async with Player(NullSink(real_time=False)) as player:
        yield player


async def test_audio_in_a_block_becomes_a_line_between_the_other_blocks() -> None:
    async with silent() as player, proxied(player=player) as host:
        content = (await host.call_tool("block")).raw["content"]
        assert [block["type"] for block in content] == ["text"] * 3
        assert (content[0]["text"], content[2]["text"]) == ("before", "after")
        assert content[1]["text"].startswith("[audio")
        await player.wait_finished()
        assert player.snapshot().heard_seconds == pytest.approx(len(PCM) / 176400)


async def test_base64_in_structured_content_becomes_a_line_and_the_schema_that_forbids_it_goes() -> None:
    async with silent() as player, proxied(player=player) as host:
        tools = {tool.name: tool for tool in await host.list_tools()}
        assert tools["inline"].output_schema is None
        assert tools["plain"].output_schema == {"type": "object"}
        raw = (await host.call_tool("inline")).raw
        assert raw["structuredContent"]["audio"].startswith("[audio")
        assert BASE64[:64] not in json.dumps(raw)
        await player.wait_finished()
        assert player.snapshot().heard_seconds == pytest.approx(len(PCM) / 176400)


async def test_keep_audio_passes_results_and_schemas_unplayed() -> None:
    async with silent() as player, proxied(player=player, keep_audio=("library",)) as host:
        assert {tool.name: tool for tool in await host.list_tools()}["inline"].output_schema is not None
        raw = (await host.call_tool("block")).raw
        assert raw["content"][1]["data"] == BASE64
        assert player.snapshot().title is None


async def test_keep_links_leaves_the_link_of_audio_that_plays() -> None:
    from playhead.servers.audio import AudioServerOptions
    from playhead.servers.audio.audio_server import open_audio_server

    async with AsyncExitStack() as stack:
        music = await stack.enter_async_context(open_audio_server(AudioServerOptions(mixer="memory")))
        player = await stack.enter_async_context(silent())
        options = ProxyOptions(keep_links=("music",))
        proxy = await stack.enter_async_context(
            open_proxy({"music": music}, ResultAudio(player=player, options=options), options)
        )
        host = await stack.enter_async_context(connect(proxy))
        raw = (await host.call_tool("musicPlayer", {"query": ""})).raw
        assert [block["type"] for block in raw["content"]] == ["resource_link"]
        assert raw["_meta"][ADDRESS_META] == [raw["content"][0]["uri"]]
        assert player.snapshot().title is not None


@pytest.mark.parametrize("on_call", ["duck", "pause", "none"])
async def test_a_call_ducks_or_pauses_the_audio_until_it_is_answered(
    on_call: OnCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[object] = []

    async def call_tool(_context: object, _params: object) -> Any:
        events.append("tool")
        return DONE | {"content": []}

    async with AsyncExitStack() as stack:
        player = await stack.enter_async_context(silent())
        for name in ("duck", "unduck", "hold", "release"):
            monkeypatch.setattr(Player, name, lambda _player, *_reason, name=name: events.append(name))
        options = ProxyOptions(on_call=on_call)
        targets = {"spy": Server("spy", on_call_tool=call_tool)}
        audio = ResultAudio(player=player, options=options)
        proxy = await stack.enter_async_context(open_proxy(targets, audio, options))
        host = await stack.enter_async_context(connect(proxy))
        await host.call_tool("any")
    before, after = {"duck": ("duck", "unduck"), "pause": ("hold", "release")}.get(on_call, ("", ""))
    assert events == [event for event in (before, "tool", after) if event]


async def test_without_a_sound_card_the_text_says_so_and_calls_go_on() -> None:
    async def missing() -> str:
        return "no audio device could be opened"

    async with silent() as player, proxied(player=player, missing=missing) as host:
        content = (await host.call_tool("block")).raw["content"]
        assert "can be played" in content[1]["text"]
        assert "nothing plays here: no audio device" in content[-1]["text"]
        assert (await host.call_tool("plain")).raw["structuredContent"]["server"] == "library"


async def test_no_secret_of_the_configuration_reaches_a_host(capfd: pytest.CaptureFixture[str]) -> None:
    dead = ServerConfig(
        name="dead",
        url=f"http://user:{SECRET}@127.0.0.1:9/mcp?key={SECRET}",
        headers={"Authorization": f"Bearer {SECRET}"},
    )
    broken = ServerConfig(name="broken", command=("/bin/sh", "-c", "exit 3"), env={"API_KEY": SECRET})
    said: list[str] = []
    async with (
        open_proxy({"dead": dead, "broken": broken}, None, ProxyOptions()) as proxy,
        connect(proxy, mode="legacy") as host,
    ):
        said += [json.dumps(host.handshake), str(await host.list_tools())]
        for uri in ("dead+x:1", "broken+x:1"):
            with pytest.raises(ServerError) as caught:
                await host.read_text(uri)
            said += [str(caught.value), str(caught.value.data)]
    assert "not connected" in said[2]
    assert SECRET not in "".join(said)
    assert SECRET not in "".join(capfd.readouterr())
