"""A stream read by a thread, and saved to a file."""

from __future__ import annotations

import hashlib
import io
import os
import random
import threading
import wave
from pathlib import Path

import pytest
import trio
import trio.testing

from playhead.errors import ClosedError, ConnectionLostError, StreamBrokenError
from playhead.stream.options import StreamOptions
from playhead.stream.reader import RangeStream, open_stream
from playhead.testing.pages import ScriptedPages
from tests.tones import wave_file

DATA = random.Random(5).randbytes(3_000_000)
OPTIONS = StreamOptions(capacity_bytes=131_072)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_thread_reads_through_a_small_ring_and_nothing_polls() -> None:
    pages = ScriptedPages(DATA)

    def consume(stream: RangeStream) -> bytes:
        buffer = bytearray(50_000)
        got = bytearray()
        while count := stream.readinto(buffer, 10.0):
            got += buffer[:count]
        return bytes(got)

    async with open_stream(pages, options=OPTIONS) as stream:
        assert await trio.to_thread.run_sync(consume, stream) == DATA
    assert stream.statistics().bytes == len(DATA)


async def test_a_thread_times_out_without_bytes_and_can_go_on() -> None:
    release = trio.Event()
    inner = ScriptedPages(DATA[:100])

    def times_out(stream: RangeStream) -> None:
        with pytest.raises(TimeoutError):
            stream.readinto(bytearray(10), 0.01)

    async def late(start: int, end: int) -> object:
        await release.wait()
        return await inner(start, end)

    async with open_stream(late) as stream:  # type: ignore[arg-type]  # object, to keep the helper short
        await trio.to_thread.run_sync(times_out, stream)
        release.set()
        assert await trio.to_thread.run_sync(stream.readinto, bytearray(100), 10.0) == 100


async def test_a_blocked_thread_gets_closed_error_when_the_block_is_left() -> None:
    caught: list[BaseException] = []
    blocked = threading.Event()

    def consume(stream: RangeStream) -> None:
        blocked.set()
        try:
            stream.readinto(bytearray(10), 30.0)
        except ClosedError as error:
            caught.append(error)

    async with open_stream(ScriptedPages(DATA, delay=1000.0)) as stream:
        thread = threading.Thread(target=consume, args=(stream,))
        thread.start()
        await trio.to_thread.run_sync(blocked.wait)
    await trio.to_thread.run_sync(thread.join, 10.0)
    assert len(caught) == 1


async def test_a_blocked_thread_gets_the_streams_error_after_the_good_bytes() -> None:
    pages = ScriptedPages(DATA, faults={8192: [ConnectionLostError("gone")] * 99})

    def consume(stream: RangeStream) -> tuple[int, int]:
        buffer = bytearray(100_000)
        got = 0
        with pytest.raises(StreamBrokenError) as caught:  # noqa: PT012  # counts until it raises
            while count := stream.readinto(buffer, 30.0):
                got += count
        return got, caught.value.offset

    async with open_stream(pages, options=StreamOptions(patience_seconds=0.05)) as stream:
        assert await trio.to_thread.run_sync(consume, stream) == (8192, 8192)


async def test_the_file_view_reads_seeks_and_tells() -> None:
    def consume(stream: RangeStream) -> None:
        file = stream.file(timeout=10.0)
        assert file.readable()
        assert file.seekable()
        assert not file.writable()
        with pytest.raises(io.UnsupportedOperation):
            file.seek(-10, os.SEEK_END)
        assert file.read(300_000) == DATA[:300_000], "more than the ring holds"
        assert file.seek(2_000_001) == 2_000_001
        assert file.read(10_000) == DATA[2_000_001:2_010_001]
        assert file.seek(-2_010_000, os.SEEK_CUR) == 1
        assert file.read() == DATA[1:]
        assert file.seek(-10, os.SEEK_END) == len(DATA) - 10
        assert file.read() == DATA[-10:]
        with pytest.raises(ValueError, match="0 or more"):
            file.seek(-1)
        with pytest.raises(ValueError, match="whence"):
            file.raw.seek(0, 3)
        file.close()
        with pytest.raises(ValueError, match="closed"):
            file.read(1)

    async with open_stream(ScriptedPages(DATA), options=OPTIONS) as stream:
        await trio.to_thread.run_sync(consume, stream)


async def test_a_parser_of_files_reads_the_file_view() -> None:
    music = wave_file(DATA, 44_100, channels=2)

    def parse(stream: RangeStream) -> bytes:
        with stream.file() as file, wave.open(file) as opened:
            return bytes(opened.readframes(opened.getnframes()))

    async with open_stream(ScriptedPages(music), options=OPTIONS) as stream:
        assert await trio.to_thread.run_sync(parse, stream) == DATA


async def test_a_saved_file_appears_whole_and_its_pieces_can_be_hashed(tmp_path: Path) -> None:
    target = tmp_path / "song.bin"
    digest = hashlib.sha256()
    async with open_stream(ScriptedPages(DATA), options=OPTIONS) as stream:
        statistics = await stream.save(target, tap=digest.update)
    assert target.read_bytes() == DATA
    assert digest.hexdigest() == hashlib.sha256(DATA).hexdigest()
    assert statistics.bytes == len(DATA)
    assert names(tmp_path) == ["song.bin"]


async def test_a_broken_stream_leaves_an_older_file_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "song.bin"
    target.write_bytes(b"old")
    pages = ScriptedPages(DATA, faults={500_000: [ConnectionLostError("gone")] * 99})
    async with open_stream(pages, options=StreamOptions(patience_seconds=0.05)) as stream:
        with pytest.raises(StreamBrokenError):
            await stream.save(target)
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["song.bin"]


async def test_a_cancelled_save_leaves_nothing(tmp_path: Path) -> None:
    pages = ScriptedPages(DATA, delay=lambda start, _, __: 1000.0 if start > 1_000_000 else 0)
    async with open_stream(pages) as stream:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def stop() -> None:
                    while stream.position < 1_000_000:
                        await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()

                nursery.start_soon(stop)
                await stream.save(tmp_path / "song.bin")
        assert scope.cancelled_caught
    assert names(tmp_path) == []


async def test_a_link_in_the_way_is_replaced_and_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"keep")
    target = tmp_path / "song.bin"
    target.symlink_to(other)
    async with open_stream(ScriptedPages(DATA[:100])) as stream:
        await stream.save(target)
    assert other.read_bytes() == b"keep"
    assert target.read_bytes() == DATA[:100]
    assert not target.is_symlink()
