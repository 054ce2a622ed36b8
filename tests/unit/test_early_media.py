"""Audio that a call's progress names: it plays while the call goes on, once, wherever tools are called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp.server.lowlevel import Server

from playhead import connect
from playhead.adapters.voice_tools import VoiceTools
from playhead.agent import HubRunner, run_turn
from playhead.agent.scripted_model import ScriptedModel, call, reply
from playhead.client import ResourceMedia
from playhead.client.call_results.spool import Saved
from playhead.client.call_results.tee import TeeMedia
from playhead.client.hub import Hub, open_hub
from playhead.config.outputs import OutputStore
from playhead.config.tools import ToolConfigs, create_tool_config
from playhead.errors import UsageError
from playhead.limits import Limits
from playhead.playback import ItemEnd, ItemStart, NullSink, Player
from playhead.servers.proxy import OnCall, ProxyOptions
from playhead.servers.proxy.proxy_server import open_proxy
from playhead.servers.proxy.result_audio import ResultAudio
from playhead.stream.source import Playable
from tests.loop_kit import user
from tests.servers.early_link import FIRST, FRAMES, SECOND, EarlyLink

Host = Callable[[Server[Any], Player], Awaitable[None]]


async def connected_hub(stack: AsyncExitStack, server: Server[Any], **options: Any) -> Hub:
    hub = await stack.enter_async_context(open_hub({"s": server}, **options))
    await hub.connect_all()
    await hub.discover_and_register_all_tools()
    return hub


async def by_agent(server: Server[Any], player: Player) -> None:
    async with AsyncExitStack() as stack:
        hub = await connected_hub(stack, server, tool_configs=ToolConfigs())
        model = ScriptedModel([reply(call("s__speak")), reply("done")])
        await run_turn(model, HubRunner(hub), [user("speak")], player=player)
        await player.wait_finished()


async def by_voice_tools(server: Server[Any], player: Player) -> None:
    async with AsyncExitStack() as stack:
        hub = await connected_hub(stack, server, tool_configs=ToolConfigs())
        answer = await VoiceTools(hub, player).call("s__speak", {})
        assert not answer.is_error
        await player.wait_finished()


def by_proxy(on_call: OnCall) -> Host:
    async def host(server: Server[Any], player: Player) -> None:
        options = ProxyOptions(on_call=on_call)
        audio = ResultAudio(player=player, options=options)
        async with open_proxy({"s": server}, audio, options) as proxy, connect(proxy) as session:
            result = await session.call_tool("speak")
            assert "resource_link" not in str(result.raw["content"])
            await player.wait_finished()

    return host


@pytest.mark.parametrize(
    "host",
    [
        pytest.param(by_agent, id="agent"),
        pytest.param(by_voice_tools, id="voice tools"),
        pytest.param(by_proxy("duck"), id="proxy"),
        pytest.param(by_proxy("pause"), id="proxy that pauses for calls"),
    ],
)
async def test_what_progress_names_is_heard_before_the_result_and_the_rest_after_it(host: Host) -> None:
    early = EarlyLink()
    async with trio.open_nursery() as nursery, Player(NullSink()) as player:
        events = player.events()
        nursery.start_soon(host, early.server(), player)
        titles: list[str] = []
        with trio.fail_after(20):
            async for event in events:
                if isinstance(event, ItemStart):
                    titles.append(event.title)
                if isinstance(event, ItemEnd):
                    assert event.frames == FRAMES
                    early.go_on.set()
                    if len(titles) == 2:
                        break
    assert titles == ["first.wav", "second.wav"]


async def test_a_session_passes_valid_links_to_audio_once_and_the_result_tells_the_late_ones() -> None:
    early = EarlyLink()
    named: list[ResourceMedia] = []

    async def on_media(media: ResourceMedia) -> None:
        named.append(media)
        early.go_on.set()

    async with connect(early.server()) as session:
        result = await session.call_tool("speak", on_media=on_media)
        plain = await session.call_tool("speak")
    assert [media.uri for media in named] == [FIRST]
    assert [media.uri for media in result.media] == [FIRST, SECOND]
    assert [media.uri for media in result.late_media] == [SECOND]
    assert plain.late_media == plain.media


async def test_a_call_passes_at_most_as_many_links_as_a_result_has_candidates() -> None:
    early = EarlyLink()
    early.go_on.set()
    named: list[ResourceMedia] = []

    async def on_media(media: ResourceMedia) -> None:
        named.append(media)

    async with connect(early.server(), limits=Limits(candidates=1)) as session:
        result = await session.call_tool("speak", on_media=on_media)
    assert len(named) == 1
    assert len(result.media) == 2


async def test_an_error_of_the_player_ends_the_call_with_it() -> None:
    async def on_media(media: ResourceMedia) -> None:
        raise UsageError(f"no room for {media.uri}")

    async with connect(EarlyLink().server()) as session:
        with pytest.raises(UsageError, match=f"no room for {FIRST}"):
            await session.call_tool("speak", on_media=on_media)


async def test_early_audio_is_saved_while_it_plays_as_that_of_a_result(tmp_path: Path) -> None:
    early = EarlyLink()
    named: list[Playable] = []

    async def on_media(media: Playable) -> None:
        named.append(media)
        early.go_on.set()

    async with AsyncExitStack() as stack:
        configs = ToolConfigs([create_tool_config("s", "speak")])
        outputs = OutputStore(tmp_path / "outputs")
        hub = await connected_hub(stack, early.server(), tool_configs=configs, outputs=outputs)
        done = await hub.call_tool("s__speak", on_media=on_media)
        assert done.media[0] is named[0]
        assert done.late_media == done.media[1:]
        async with Player(NullSink()) as player:
            await player.play(named)
            await player.wait_finished()
        assert isinstance(named[0], TeeMedia)
        outcome = await named[0].saved()
        assert isinstance(outcome, Saved)
        assert outcome.output.path.stat().st_size == 44 + 2 * FRAMES
