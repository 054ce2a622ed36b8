"""A media that is saved while it plays: the whole or nothing, and the sound never waits for the disk."""

from __future__ import annotations

import base64
import hashlib
import random
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from playhead import connect
from playhead.cache import EARLIEST_META
from playhead.client.call_results import spool as spool_module
from playhead.client.call_results import tee as tee_module
from playhead.client.call_results.media import BytesMedia
from playhead.client.call_results.spool import NotSaved, Saved, SavingOutcome
from playhead.client.call_results.tee import TeeMedia
from playhead.config.outputs import OutputStore, OutputWriter
from playhead.errors import ClosedError, DiskFullError, ServerError, StreamBrokenError
from playhead.playback.files import FileMedia
from playhead.playback.player import Player
from playhead.playback.sinks import NullSink
from playhead.stream.answer import Page
from playhead.stream.options import StreamOptions
from playhead.stream.reader import RangeStream, open_stream
from playhead.testing.media import ScriptedMedia, ScriptedReader
from tests.e2e.command import PLAYHEAD
from tests.servers.wave import wave_header

if TYPE_CHECKING:
    from typing_extensions import Buffer

DATA = Path(__file__).parents[2] / "data"
MUSIC = ["bare.mp3", "gapless.mp3", "tagged.mp3", "chord.flac", "chord.ogg", "chord.wav"]
BROKEN = StreamBrokenError("cut", offset=7)


@pytest.fixture
def store(tmp_path: Path) -> OutputStore:
    return OutputStore(tmp_path)


def writers(store: OutputStore) -> Callable[[], OutputWriter]:
    return lambda: store.open_writer("home__play", {"query": "x"}, mime_type="audio/mpeg")


class PagedMedia:
    """Bytes read in ranges, as a link's are; `ranges` are what was asked for."""

    def __init__(self, data: bytes, *, size_bytes: int | None = None) -> None:
        self.title = "paged"
        self.mime_type: str | None = None
        self.uri: str | None = None
        self.size_bytes = size_bytes
        self.data = data
        self.ranges: list[tuple[int, int]] = []

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[RangeStream]:
        async def read_range(start: int, end: int) -> Page:
            self.ranges.append((start, end))
            part = self.data[start:end]
            return Page(blobs=(part,) if part else (), mime_type=None, total_bytes=None)

        small = StreamOptions(page_bytes=16 * 1024, capacity_bytes=64 * 1024, in_flight=2)
        async with open_stream(read_range, options=small, size_bytes=self.size_bytes) as stream:
            yield stream


class GappedMedia(PagedMedia):
    """Bytes of which the server drops some before they are read."""

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[RangeStream]:
        async def read_range(start: int, end: int) -> Page:
            if 100_000 <= start < 200_000:
                raise ServerError("dropped", code=-32602, data={EARLIEST_META: 200_000})
            part = self.data[start:end]
            return Page(blobs=(part,) if part else (), mime_type=None, total_bytes=None)

        small = StreamOptions(page_bytes=16 * 1024, capacity_bytes=64 * 1024, in_flight=2)
        async with open_stream(read_range, options=small) as stream:
            yield stream


async def play(media: TeeMedia) -> SavingOutcome:
    async with Player(NullSink(real_time=False)) as player:
        await player.play(media)
        await player.wait_finished()
    with trio.fail_after(20):
        return await media.saved()


def saved_bytes(outcome: SavingOutcome) -> bytes:
    assert isinstance(outcome, Saved), outcome
    return outcome.output.path.read_bytes()


def nothing_left(store: OutputStore) -> bool:
    return not [path for path in store.folder.rglob("*") if path.is_file()]


# --- the whole ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MUSIC)
async def test_what_was_played_is_saved_byte_for_byte(name: str, store: OutputStore) -> None:
    data = (DATA / name).read_bytes()
    outcome = await play(TeeMedia(FileMedia(DATA / name), writers(store)))
    assert saved_bytes(outcome) == data
    assert isinstance(outcome, Saved)
    assert outcome.output.sha256 == hashlib.sha256(data).hexdigest()


async def test_a_stream_from_the_audio_server_is_saved_while_it_plays(store: OutputStore) -> None:
    async with connect([*PLAYHEAD, "serve", "audio", "--mixer", "memory"]) as session:
        result = await session.call_tool("musicPlayer", {"query": "first light"})
        async with session.open(result.links[0]) as stream:
            original = await stream.read_all()
        outcome = await play(TeeMedia(result.media[0], writers(store)))
    assert hashlib.sha256(saved_bytes(outcome)).hexdigest() == hashlib.sha256(original).hexdigest()


@pytest.mark.requirement("OUT-06")
async def test_a_stream_is_saved_without_reading_any_of_it_twice(store: OutputStore) -> None:
    data = random.Random(2).randbytes(400_000)
    raw = PagedMedia(data, size_bytes=len(data))
    raw.mime_type = "audio/L16;rate=48000;channels=2"
    assert saved_bytes(await play(TeeMedia(raw, writers(store)))) == data
    starts = [start for start, _ in raw.ranges if start < len(data)]
    assert len(set(starts)) == len(starts)


async def test_a_trailing_tag_that_no_decoder_reads_is_saved_too(store: OutputStore) -> None:
    # The WAV decoder stops at the end of the samples; an ID3 chunk may follow.
    data = (DATA / "chord.wav").read_bytes() + b"id3 \x00\x10\x00\x00" + bytes(range(256)) * 16
    outcome = await play(TeeMedia(PagedMedia(data), writers(store)))
    assert saved_bytes(outcome) == data


async def test_a_picture_that_the_decoder_skipped_is_read_after_the_sound(store: OutputStore) -> None:
    picture = bytes(range(256)) * 2000
    size = len(picture)
    header = b"ID3\x04\x00\x00" + bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0))
    data = header + picture + (DATA / "bare.mp3").read_bytes()
    media = PagedMedia(data)
    outcome = await play(TeeMedia(media, writers(store)))
    assert saved_bytes(outcome) == data


async def test_bytes_that_came_along_in_the_result_are_saved_as_they_play(store: OutputStore) -> None:
    data = (DATA / "bare.mp3").read_bytes()
    text = base64.b64encode(data).decode("ascii")
    media = BytesMedia(title="x", mime_type="audio/mpeg", base64=text, block_bytes=1 << 20)
    assert saved_bytes(await play(TeeMedia(media, writers(store)))) == data


async def test_a_media_that_is_saved_is_played_again_without_a_second_record(store: OutputStore) -> None:
    media = TeeMedia(FileMedia(DATA / "bare.mp3"), writers(store))
    first = await play(media)
    assert await play(media) == first
    assert len(store.list().outputs) == 1


async def test_a_seek_and_a_read_past_the_end_still_find_the_true_end(store: OutputStore) -> None:
    data = bytes(range(256)) * 300
    media = TeeMedia(PagedMedia(data), writers(store))
    async with media.open() as reader:

        def read_oddly() -> None:
            buffer = bytearray(1000)
            assert reader.readinto(buffer)
            reader.seek_from_thread(70_000)
            assert reader.readinto(buffer)
            reader.seek_from_thread(1_000_000)
            assert reader.readinto(buffer) == 0

        await trio.to_thread.run_sync(read_oddly)
    assert saved_bytes(await media.saved()) == data


async def test_the_tee_shows_a_decoder_what_the_stream_can_do_and_no_more(store: OutputStore) -> None:
    async with TeeMedia(PagedMedia(b"x"), writers(store)).open() as reader:
        assert reader.seekable
        assert reader.statistics() is not None
    async with TeeMedia(ScriptedMedia(reader=ScriptedReader(b"x")), writers(store)).open() as reader:
        assert not reader.seekable
        assert reader.statistics() is None


async def test_a_play_stopped_at_its_end_is_saved_despite_a_later_read_past_it(
    store: OutputStore,
) -> None:
    data = random.Random(3).randbytes(50_000)
    media = TeeMedia(PagedMedia(data), writers(store))
    with trio.CancelScope() as scope:
        async with media.open() as reader:

            def read_and_look_past_the_end() -> None:
                while reader.readinto(bytearray(30_000)):
                    pass
                reader.seek_from_thread(90_000)
                assert reader.readinto(bytearray(10)) == 0

            await trio.to_thread.run_sync(read_and_look_past_the_end)
            scope.cancel()
            await trio.sleep_forever()
    assert saved_bytes(await media.saved()) == data


# --- or nothing ---------------------------------------------------------------------------------------


async def test_a_media_that_was_never_played_is_not_saved(store: OutputStore) -> None:
    media = TeeMedia(FileMedia(DATA / "bare.mp3"), writers(store))
    assert media.outcome is None
    outcome = await media.saved()
    assert isinstance(outcome, NotSaved)
    assert "not played" in outcome.reason


async def test_a_stopped_play_saves_nothing_and_reports_its_position(store: OutputStore) -> None:
    data = (DATA / "bare.mp3").read_bytes()
    reader = ScriptedReader(data, hold_at=20_000)
    media = TeeMedia(ScriptedMedia(reader=reader, size_bytes=len(data)), writers(store))
    async with Player(NullSink(real_time=False)) as player:
        await player.play(media)
        assert await trio.to_thread.run_sync(reader.blocked.wait, 20)
        await player.stop()
    outcome = await media.saved()
    assert isinstance(outcome, NotSaved)
    assert outcome.reason == f"not saved: stopped at 20000 of {len(data)} bytes"
    assert (outcome.received_bytes, outcome.size_bytes) == (20_000, len(data))
    assert nothing_left(store)


async def test_a_reader_that_is_closed_under_the_decoder_was_stopped_and_is_not_broken(
    store: OutputStore,
) -> None:
    reader = ScriptedReader(bytes(1000))
    media = TeeMedia(ScriptedMedia(reader=reader, size_bytes=1000), writers(store))
    async with media.open() as teed:
        assert teed.readinto(bytearray(400)) == 400
        reader.close()
        with pytest.raises(ClosedError):
            teed.readinto(bytearray(400))
    outcome = await media.saved()
    assert isinstance(outcome, NotSaved)
    assert outcome.reason == "not saved: stopped at 400 of 1000 bytes"


async def test_stopped_after_the_last_byte_it_is_kept(store: OutputStore) -> None:
    data = bytes(1000)
    media = TeeMedia(ScriptedMedia(reader=ScriptedReader(data)), writers(store))
    with trio.CancelScope() as scope:
        async with media.open() as reader:

            def read_all() -> None:
                while reader.readinto(bytearray(300)):
                    pass

            await trio.to_thread.run_sync(read_all)
            scope.cancel()
            await trio.sleep_forever()
    assert saved_bytes(await media.saved()) == data


async def test_a_broken_stream_keeps_nothing_and_its_error_reaches_the_player(store: OutputStore) -> None:
    data = (DATA / "bare.mp3").read_bytes()[:20_000]
    media = TeeMedia(ScriptedMedia(reader=ScriptedReader(data, error=BROKEN)), writers(store))
    async with Player(NullSink(real_time=False)) as player:
        await player.play(media)
        with pytest.raises(StreamBrokenError):
            await player.wait_finished()
    outcome = await media.saved()
    assert isinstance(outcome, NotSaved)
    assert outcome.error is BROKEN
    assert nothing_left(store)


async def test_not_saved_by_one_play_it_is_saved_by_the_next(store: OutputStore) -> None:
    media = TeeMedia(FileMedia(DATA / "bare.mp3"), writers(store))
    with trio.CancelScope() as scope:
        async with media.open():
            scope.cancel()
            await trio.sleep_forever()
    assert isinstance(await media.saved(), NotSaved)
    assert saved_bytes(await play(media)) == (DATA / "bare.mp3").read_bytes()


async def test_a_decoder_that_gave_up_early_does_not_make_the_tee_read_an_album(store: OutputStore) -> None:
    media = PagedMedia(random.Random(1).randbytes(8 << 20), size_bytes=8 << 20)
    teed = TeeMedia(media, writers(store))
    async with teed.open() as reader:
        await trio.to_thread.run_sync(reader.readinto, bytearray(100))
    assert isinstance(await teed.saved(), NotSaved)
    assert max(end for _, end in media.ranges) < 1 << 20


async def test_a_missing_rest_delays_the_end_only_briefly(
    store: OutputStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tee_module, "REST_SECONDS", 0.01)
    reader = ScriptedReader(bytes(1000), hold_at=100)
    media = TeeMedia(ScriptedMedia(reader=reader), writers(store))
    with trio.fail_after(20):
        async with media.open() as teed:
            assert await trio.to_thread.run_sync(teed.readinto, bytearray(100)) == 100
        assert isinstance(await media.saved(), NotSaved)


# --- the disk -----------------------------------------------------------------------------------------


class StuckWriter(OutputWriter):
    """A disk that takes nothing until it is released, or at all."""

    gate: threading.Event
    failure: Exception | None = None

    def write_at(self, offset: int, data: Buffer) -> None:
        assert self.gate.wait(60)
        if self.failure is not None:
            raise self.failure
        super().write_at(offset, data)


def stuck(
    store: OutputStore, gate: threading.Event, failure: Exception | None = None
) -> Callable[[], OutputWriter]:
    def make() -> OutputWriter:
        writer = store.open_writer("home__play", {})
        writer.__class__ = StuckWriter
        assert isinstance(writer, StuckWriter)
        writer.gate, writer.failure = gate, failure
        return writer

    return make


async def test_the_sound_does_not_wait_for_a_disk_that_stands_still(store: OutputStore) -> None:
    gate = threading.Event()
    data = (DATA / "bare.mp3").read_bytes()
    media = TeeMedia(FileMedia(DATA / "bare.mp3"), stuck(store, gate))
    async with Player(NullSink(real_time=False)) as player:
        await player.play(media)
        with trio.fail_after(20):
            await player.wait_finished()
        assert player.snapshot().underruns == 0
    assert media.outcome is None
    gate.set()
    assert saved_bytes(await media.saved()) == data


async def test_a_full_disk_ends_the_saving_and_not_the_sound(store: OutputStore) -> None:
    gate = threading.Event()
    gate.set()
    full = DiskFullError("/x: No space left on device", path="/x")
    media = TeeMedia(FileMedia(DATA / "bare.mp3"), stuck(store, gate, full))
    outcome = await play(media)
    assert isinstance(outcome, NotSaved)
    assert outcome.error is full
    assert "No space left" in outcome.reason
    assert nothing_left(store)


async def test_a_folder_that_cannot_be_written_does_not_keep_music_from_playing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    media = TeeMedia(FileMedia(DATA / "bare.mp3"), writers(OutputStore(tmp_path / "file")))
    outcome = await play(media)
    assert isinstance(outcome, NotSaved)
    assert "output directory" in outcome.reason


async def test_bytes_dropped_for_a_slow_disk_are_read_again_after_the_end(
    store: OutputStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "SPOOL_BYTES", 64 * 1024)
    monkeypatch.setattr(spool_module, "HOLD_BYTES_PER_SECOND", 1 << 40)  # let go at once
    gate = threading.Event()
    data = bytes(range(256)) * 1024
    paged = PagedMedia(data)
    media = TeeMedia(paged, stuck(store, gate))
    async with media.open() as reader:

        def read_all() -> None:
            buffer = bytearray(16 * 1024)
            while reader.readinto(buffer):
                pass

        await trio.to_thread.run_sync(read_all)
        gate.set()
    assert saved_bytes(await media.saved()) == data
    assert len(paged.ranges) > len(data) // (16 * 1024) + 4  # some were read twice


async def test_a_file_that_would_lack_dropped_bytes_is_not_saved(store: OutputStore) -> None:
    media = GappedMedia(wave_header(2**31) + bytes(400_000))
    outcome = await play(TeeMedia(media, writers(store)))
    assert isinstance(outcome, NotSaved)
    assert 250_000 < outcome.received_bytes < 350_000
    assert nothing_left(store)
