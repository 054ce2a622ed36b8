"""No file descriptor is free: whatever needs one raises, and names the limit."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import playhead
from playhead.errors import ConnectError, DescriptorLimitError
from playhead.playback import FileMedia, NullSink, Player
from playhead.stream.ring_writer import RING_BUDGET
from playhead.stream.source import Playable
from tests.e2e.command import AUDIO_SERVER, PLAYHEAD, shell
from tests.process_limits import descriptors_left
from tests.servers.shared import SharedServers

CHORD = Path(__file__).parents[1] / "data" / "chord.wav"


async def heard(player: Player, media: Playable) -> None:
    await player.play(media)
    await player.wait_finished()


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_play_raises_and_works_again_when_one_is_free(
    transport: str, count: int, shared: SharedServers
) -> None:
    server = AUDIO_SERVER if transport == "stdio" else shared.audio
    async with playhead.connect(server) as session, Player(NullSink(real_time=False)) as player:
        result = await session.call_tool("musicPlayer", {"query": "the verse"})
        before = RING_BUDGET.taken_bytes
        with descriptors_left(count), pytest.raises(DescriptorLimitError, match="RLIMIT_NOFILE"):
            await heard(player, result.media[0])
        assert RING_BUDGET.taken_bytes == before
        await heard(player, result.media[0])


async def test_a_read_raises(shared: SharedServers, tmp_path: Path) -> None:
    async with playhead.connect(shared.audio) as session:
        result = await session.call_tool("musicPlayer", {"query": "the verse"})
        with descriptors_left(0), pytest.raises(DescriptorLimitError, match="RLIMIT_NOFILE"):
            async with result.links[0].open() as stream:
                await stream.save(tmp_path / "verse.flac")
        async with result.links[0].open() as stream:
            with descriptors_left(0), pytest.raises(DescriptorLimitError, match="RLIMIT_NOFILE"):
                await stream.save(tmp_path / "verse.flac")


async def test_a_file_raises() -> None:
    async with Player(NullSink(real_time=False)) as player:
        with descriptors_left(0), pytest.raises(DescriptorLimitError, match="RLIMIT_NOFILE"):
            await heard(player, FileMedia(CHORD))


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_connection_raises(transport: str, shared: SharedServers) -> None:
    server = AUDIO_SERVER if transport == "stdio" else shared.audio
    with descriptors_left(0), pytest.raises(ConnectError, match="RLIMIT_NOFILE"):
        async with playhead.connect(server):
            pass


def test_the_command_names_the_limit() -> None:
    play = shlex.join([*PLAYHEAD, "play", AUDIO_SERVER, "musicPlayer", "query=first", "--sink", "null"])
    done = shell(f"ulimit -n 12; {play}")
    assert done.code in (1, 3)
    assert "RLIMIT_NOFILE" in done.stderr
