"""The half of a voice stack that the model uses: tools, answers, silence, and notes of what was heard."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp.server.lowlevel import Server

from playhead.adapters.voice_tools import OnInterruption, VoiceTools
from playhead.client.hub import Hub, open_hub
from playhead.config.servers import ServerConfig
from playhead.errors import ConnectError
from playhead.playback import FileMedia, NullSink, Player, Status
from tests.tones import sine, wave_file

SCHEMA = {
    "type": "object",
    "properties": {"query": {"$ref": "#/$defs/q"}},
    "$defs": {"q": {"type": "string"}},
}
AUDIO = base64.b64encode(wave_file(sine(24_000, 24_000).tobytes(), 24_000)).decode()
SONG = types.AudioContent(type="audio", data=AUDIO, mime_type="audio/wav")


def server() -> Server[Any]:
    async def list_tools(*_: object) -> types.ListToolsResult:
        names = ("song", "weather", "fails")
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=SCHEMA) for name in names])

    async def call_tool(_: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = types.TextContent(type="text", text=f"{params.name} of {params.arguments}")
        content: list[types.ContentBlock] = [text, SONG] if params.name == "song" else [text]
        return types.CallToolResult(content=content, is_error=params.name == "fails")

    return Server("music", on_list_tools=list_tools, on_call_tool=call_tool)


@asynccontextmanager
async def voice(
    on_interruption: OnInterruption = "stop",
) -> AsyncIterator[tuple[VoiceTools, Player, Hub]]:
    async with open_hub({"home": server()}) as hub, Player(NullSink(real_time=True)) as player:
        tools = VoiceTools(hub, player, on_interruption=on_interruption)
        await tools.connect()
        yield tools, player, hub


async def test_the_model_gets_the_tools_of_servers_and_player_with_their_whole_schema() -> None:
    async with voice() as (tools, _, _):
        found = {tool.name: tool for tool in tools.tools()}
    assert {"home__song", "home__weather", "pause", "seek"} <= set(found)
    assert found["home__song"].parameters == SCHEMA
    assert found["home__song"].description == "song"


async def test_the_text_of_a_result_goes_to_the_model_and_its_audio_to_the_player() -> None:
    async with voice() as (tools, player, _):
        answer = await tools.call("home__song", {"query": "dawn"})
        assert player.snapshot().status in (Status.BUFFERING, Status.PLAYING)
        assert answer.text.startswith("song of {'query': 'dawn'}")
        assert AUDIO[:100] not in answer.text
        assert not answer.is_error
        await player.wait_finished()
        assert player.snapshot().frames == 24_000


async def test_a_text_is_answered_and_a_controlled_player_is_not() -> None:
    async with voice() as (tools, player, _):
        assert (await tools.call("home__weather", {})).needs_reply
        await tools.call("home__song", {})
        paused = await tools.call("pause", {})
        assert player.snapshot().status is Status.PAUSED
        assert not paused.needs_reply
        assert "Paused" in paused.text


async def test_a_failure_is_an_answer() -> None:
    async with voice() as (tools, _, hub):
        answers = [
            await tools.call("home__fails", {}),
            await tools.call("seek", {"seconds": "x"}),
            await tools.call("home__unknown", {}),
        ]
        await hub.disconnect_from_server("home")
        answers.append(await tools.call("home__song", {}))
    assert all(answer.is_error and answer.needs_reply and answer.text for answer in answers)


@pytest.mark.parametrize("on_interruption", ["stop", "duck"])
async def test_an_interruption_tells_how_much_was_heard(
    on_interruption: OnInterruption, tmp_path: Path
) -> None:
    (tmp_path / "a.wav").write_bytes(wave_file(sine(24_000 * 60, 24_000).tobytes(), 24_000))
    async with voice(on_interruption) as (tools, player, _):
        assert await tools.interrupt() is None, "no audio plays"
        await player.play(FileMedia(tmp_path / "a.wav"))
        while player.snapshot().heard_seconds < 0.1:
            await trio.lowlevel.checkpoint()
        note = await tools.interrupt()
        heard = player.snapshot().heard_seconds
        assert note is not None
        assert 0.1 <= float(note.partition(" s heard")[0].split()[-1]) <= heard + 0.06
        is_playing = player.snapshot().status is Status.PLAYING
        assert is_playing is (on_interruption == "duck")
        tools.listened()


async def test_a_hub_without_a_connection_is_an_error(tmp_path: Path) -> None:
    missing = ServerConfig(name="home", command=(str(tmp_path / "missing"),))
    async with open_hub({"home": missing}) as hub, Player(NullSink()) as player:
        with pytest.raises(ConnectError, match="home: "):
            await VoiceTools(hub, player).connect()
