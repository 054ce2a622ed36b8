"""Streams that read through a page cache: the same bytes, fewer reads, and never those of two versions."""

from __future__ import annotations

import base64
import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from playhead.cache import BLOCK_BYTES, MemoryCache, PageCache
from playhead.cache.directory import DirectoryCache
from playhead.client.session.cached_reads import CachedReads
from playhead.client.session.shared_reads import SessionReads
from playhead.concurrency import unwrap_exception_group
from playhead.errors import ConnectionLostError, PlayheadError, ResourceChangedError
from playhead.limits import DEFAULT_LIMITS
from playhead.stream.answer import Page
from playhead.stream.negotiation import RangeForm
from playhead.stream.options import ReadCounts, StreamOptions, StreamStatistics
from playhead.stream.reader import RangeStream, open_forms
from playhead.testing.pages import ScriptedPages
from tests.servers.valkey_server import ValkeyServer, valkey_server

SIZE = 700_001
DATA = random.Random(1).randbytes(SIZE)
SAVE = StreamOptions(profile="save")


@dataclass
class Version:
    """The declarations of a server about its resource, alongside the bytes."""

    etag: str | None = None
    scope: Any = None
    ttl_seconds: float | None = None

    def __call__(self, start: int, page: Page) -> Page:
        return replace(page, etag=self.etag, cache_scope=self.scope, ttl_seconds=self.ttl_seconds)


@dataclass
class Listener:
    """A session, as far as a cache is concerned."""

    shared: PageCache | None
    credentials: str | None = ""
    server: object = "https://music.example/mcp"
    cache: SessionReads = field(init=False)

    def __post_init__(self) -> None:
        self.cache = SessionReads(cache=self.shared, server=self.server, credentials=self.credentials)

    def reads(
        self,
        pages: ScriptedPages,
        nursery: trio.Nursery,
        *,
        counts: ReadCounts | None = None,
        validator: str = "v1",
        size: int | None = SIZE,
        resource: str = "x:song",
    ) -> CachedReads:
        return CachedReads(
            pages,
            session=self.cache,
            server=["server", "1"],
            resource=resource,
            validator=validator,
            size_bytes=size,
            mime_type=None,
            counts=counts or ReadCounts(),
            start_soon=nursery.start_soon,
            server_name="the server",
        )

    @asynccontextmanager
    async def open(
        self,
        pages: ScriptedPages,
        *,
        validator: str = "v1",
        size: int | None = SIZE,
        resource: str = "x:song",
        options: StreamOptions = SAVE,
    ) -> AsyncIterator[RangeStream]:
        counts = ReadCounts()
        with unwrap_exception_group():
            async with trio.open_nursery() as session:
                reads = self.reads(
                    pages, session, counts=counts, validator=validator, size=size, resource=resource
                )
                form = RangeForm(
                    name="scripted",
                    read=reads,
                    on_stored=reads.stored,
                    on_end=reads.ended,
                    waits_for_others=lambda: reads.waits_for_others,
                )
                try:
                    async with open_forms(
                        [form],
                        options=options,
                        limits=DEFAULT_LIMITS,
                        size_bytes=size,
                        server_name="the server",
                        last_received=lambda: 0.0,
                        counts=counts,
                        grid_bytes=BLOCK_BYTES,
                    ) as stream:
                        yield stream
                finally:
                    await reads.aclose()
                    session.cancel_scope.cancel()

    async def read(self, pages: ScriptedPages, **how: Any) -> tuple[bytes, StreamStatistics]:
        async with self.open(pages, **how) as stream:
            return await stream.read_all(), stream.statistics()


def pages(data: bytes = DATA, **how: Any) -> ScriptedPages:
    return ScriptedPages(data, **how)


# --- hits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "size", [1, 100, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 5 * BLOCK_BYTES, SIZE]
)
@pytest.mark.parametrize("announced", [True, False])
async def test_the_second_listener_reads_nothing(size: int, announced: bool) -> None:
    cache, data = MemoryCache(), DATA[:size]
    how = {"size": size if announced else None}
    first, _ = await Listener(cache).read(pages(data), **how)
    assert first == data
    second = pages(data)
    found, statistics = await Listener(cache).read(second, **how)
    assert found == data
    assert second.reads == []
    assert statistics.reads.cache_bytes == size
    assert statistics.reads.cache_hits >= 1


async def test_a_second_listener_who_plays_reads_nothing_either() -> None:
    cache = MemoryCache()
    await Listener(cache).read(pages())
    second = pages()
    found, _ = await Listener(cache).read(second, options=StreamOptions())
    assert found == DATA
    assert second.reads == []


async def test_a_player_fills_the_cache_for_others() -> None:
    cache = MemoryCache()
    await Listener(cache).read(pages(), options=StreamOptions(page_bytes=10_000, page_bytes_max=30_000))
    second = pages()
    assert (await Listener(cache).read(second))[0] == DATA
    assert second.reads == []


async def test_a_thousand_streams_of_ten_songs_cost_what_ten_do() -> None:
    cache, songs = MemoryCache(), [pages(DATA[at : 70_000 + at]) for at in range(10)]
    for number, song in enumerate(songs):
        await Listener(cache).read(song, size=len(song.data), resource=f"song {number}")
    before = [len(song.reads) for song in songs]
    at_once = trio.CapacityLimiter(20)
    async with trio.open_nursery() as nursery:

        async def listen(number: int) -> None:
            song = songs[number]
            how: Any = {"size": len(song.data), "resource": f"song {number}"}
            async with at_once:
                assert (await Listener(cache).read(song, **how))[0] == song.data

        for number in range(1000):
            nursery.start_soon(listen, number % 10)
    assert [len(song.reads) for song in songs] == before


async def test_blocks_that_are_missing_are_read_and_no_others() -> None:
    cache = MemoryCache()
    first = Listener(cache)
    async with first.open(pages()) as stream:
        await stream.read_all()
    for name in [name for name in cache._blocks if name[1] in (2, 3, 7)]:
        cache._drop(name)
    second = pages()
    assert (await Listener(cache).read(second))[0] == DATA
    held = {offset // BLOCK_BYTES for read in second.reads for offset in (read.start, read.end - 1)}
    assert held == {2, 3, 7}


async def test_a_stream_that_seeks_stores_right_blocks() -> None:
    cache = MemoryCache()
    chance = random.Random(5)
    async with Listener(cache).open(pages(), options=StreamOptions()) as stream:
        for _ in range(20):
            at = chance.randrange(SIZE)
            await stream.seek(at)
            found = b""
            while chunk := await stream.receive_some(5000 - len(found)):  # may end with a block of the cache
                found += chunk
                if len(found) == 5000:
                    break
            assert found == DATA[at : at + 5000]
        await stream.seek(0)
        assert await stream.read_all() == DATA
    second = pages()
    assert (await Listener(cache).read(second))[0] == DATA
    assert second.reads == []


ODD_SERVERS: dict[str, dict[str, Any]] = {
    "caps its pages": {"cap_bytes": 8192},
    "caps them oddly": {"cap_bytes": 9999},
    "ignores ranges": {"ignore_range": True},
    "has pages of its own": {"own_page_bytes": 50_000},
    "has an inclusive end": {"overlap_bytes": 1},
    "ends with done": {"end": "done"},
    "ends with done beside data": {"done_with_data": True},
    "ends with 416": {"end": "416"},
    "splits its pages": {"blobs_a_page": 7},
    "answers in turn": {"serial": True},
    "loses connections": {"faults": {100_000: [ConnectionLostError("lost")] * 2}},
    "sends plain bytes": {"plain": True},
}


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("name", ODD_SERVERS)
async def test_a_server_that(name: str, announced: bool, autojump_clock: MockClock) -> None:
    cache, how = MemoryCache(), {"size": SIZE if announced else None}
    for _ in range(2):
        assert (await Listener(cache).read(pages(**ODD_SERVERS[name]), **how))[0] == DATA
    blocks = {block: data for (_, block), (data, _) in cache._blocks.items()}
    assert blocks == {block: DATA[block * BLOCK_BYTES :][:BLOCK_BYTES] for block in blocks}


async def test_a_directory_serves_the_next_process(tmp_path: Path) -> None:
    first, second = DirectoryCache(tmp_path / "cache"), DirectoryCache(tmp_path / "cache")
    await Listener(first).read(pages())
    source = pages()
    assert (await Listener(second).read(source))[0] == DATA
    assert source.reads == []


# --- keys ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other", [{"validator": "v2"}, {"resource": "x:other"}, {"server": "https://else.example/mcp"}]
)
async def test_another_key_shares_nothing(other: dict[str, Any]) -> None:
    cache = MemoryCache()
    await Listener(cache).read(pages())
    how = dict(other)
    listener = Listener(cache, server=how.pop("server", "https://music.example/mcp"))
    data = DATA[::-1]
    assert (await listener.read(pages(data), **how))[0] == data


async def test_without_a_validator_blocks_stay_in_the_session() -> None:
    cache = MemoryCache()
    first = Listener(cache)
    await first.read(pages(), validator="")
    again, other = pages(), pages()
    await first.read(again, validator="")
    await Listener(cache).read(other, validator="")
    assert again.reads == []
    assert other.reads != []
    assert cache._blocks == {}


async def test_a_version_that_only_pages_name_costs_one_burst() -> None:
    cache = MemoryCache()
    version = Version(etag='"a"')
    await Listener(cache).read(pages(rewrite=version), validator="")
    second = pages(rewrite=version)
    assert (await Listener(cache).read(second, validator=""))[0] == DATA
    assert sum(read.end - read.start for read in second.reads) <= 2 * BLOCK_BYTES


AFTER = random.Random(2).randbytes(SIZE)


def block_of(data: bytes, number: int) -> bytes:
    return data[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]


def bytes_of(page: Page) -> bytes:
    return b"".join(blob if isinstance(blob, bytes) else base64.b64decode(blob) for blob in page.blobs)


class SlowSize(MemoryCache):
    """A cache that is slow to answer for a size, which is wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = trio.Event()
        self.may_answer = trio.Event()

    async def size(self, key: str) -> int | None:
        self.asked.set()
        await self.may_answer.wait()
        return 12_345


def key_of(listener: Listener, validator: str) -> str:
    """The key under which a block is looked for last."""
    places = listener.cache.places(server=["server", "1"], resource="x:song", validator=validator, scope=None)
    return places[-1].key


async def test_blocks_of_another_version_in_the_cache_are_not_mixed_with_the_pages_of_a_new_one() -> None:
    listener = Listener(cache := MemoryCache())
    for number in (1, 2):
        await cache.put(key_of(listener, "v1"), number, block_of(DATA, number))
    async with trio.open_nursery() as nursery:
        reads = listener.reads(pages(AFTER, rewrite=Version(etag="v2")), nursery)
        assert bytes_of(await reads(0, 3 * BLOCK_BYTES)) == block_of(AFTER, 0), "up to the blocks at hand"
        assert bytes_of(await reads(BLOCK_BYTES, 3 * BLOCK_BYTES)) == AFTER[BLOCK_BYTES : 3 * BLOCK_BYTES]


async def test_a_size_that_arrives_after_the_version_has_changed_is_not_the_new_ones() -> None:
    listener = Listener(cache := SlowSize())
    await cache.put(key_of(listener, "v1"), 0, block_of(DATA, 0))
    async with trio.open_nursery() as nursery:
        reads = listener.reads(pages(AFTER, rewrite=Version(etag="v2")), nursery)
        nursery.start_soon(reads, 0, BLOCK_BYTES)
        await cache.asked.wait()
        await reads(5 * BLOCK_BYTES, 6 * BLOCK_BYTES)
        cache.may_answer.set()
        await wait_all_tasks_blocked()
        assert reads._exact_bytes is None


# --- who may share ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "credentials", "shares"),
    [
        (None, ("", ""), True),
        ("public", ("", ""), True),
        ("private", ("", ""), False),
        (None, ("a", "a"), True),
        (None, ("a", "b"), False),
        (None, ("a", ""), False),
        (None, ("", "a"), False),
        ("private", ("a", "a"), True),
        ("private", ("a", "b"), False),
        ("public", ("a", "b"), True),
        ("public", ("a", ""), True),
        ("public", (None, "a"), True),
        (None, (None, None), False),
        ("private", (None, None), False),
    ],
)
async def test_who_shares(
    scope: str | None, credentials: tuple[str | None, str | None], shares: bool
) -> None:
    cache = MemoryCache()
    version = Version(scope=scope)
    await Listener(cache, credentials=credentials[0]).read(pages(rewrite=version))
    second = pages(rewrite=version)
    found, _ = await Listener(cache, credentials=credentials[1]).read(second)
    assert found == DATA
    assert (second.reads == []) is shares
    if not shares:
        assert sum(read.end - read.start for read in second.reads) >= SIZE


@pytest.mark.parametrize("credentials", ["", None])
async def test_what_must_not_be_shared_does_not_reach_the_shared_cache(credentials: str | None) -> None:
    cache = MemoryCache()
    listener = Listener(cache, credentials=credentials)
    await listener.read(pages(rewrite=Version(scope="private")))
    assert cache._blocks == {}
    again = pages(rewrite=Version(scope="private"))
    await listener.read(again)
    if credentials is None:
        assert again.reads == [], "the session itself has it"


async def test_a_time_of_zero_stores_nothing() -> None:
    cache = MemoryCache()
    await Listener(cache).read(pages(rewrite=Version(ttl_seconds=0.0)))
    assert cache._blocks == {}


async def test_the_time_to_live_ends_sharing() -> None:
    now = 0.0
    cache = MemoryCache(clock=lambda: now)
    version = Version(ttl_seconds=60.0)
    await Listener(cache).read(pages(rewrite=version))
    now = 59.0
    second = pages(rewrite=version)
    await Listener(cache).read(second)
    now = 61.0
    third = pages(rewrite=version)
    await Listener(cache).read(third)
    assert second.reads == []
    assert third.reads != []


# --- a file that changes ------------------------------------------------------------------------------------


class ChangingSong:
    """A resource whose bytes, entity tag and size change all at once, at a read that is drawn."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.versions = [self._new(number) for number in range(3)]
        self.now = 0

    def _new(self, number: int) -> tuple[str, bytes]:
        size = SIZE if self._chance.random() < 0.5 else SIZE + number * 10_000
        return f'"{number}"', random.Random(number).randbytes(size)

    @property
    def etag(self) -> str:
        return self.versions[self.now][0]

    @property
    def data(self) -> bytes:
        return self.versions[self.now][1]


@pytest.mark.parametrize("runs", [50, pytest.param(200, marks=pytest.mark.slow("four plays in each run"))])
async def test_no_stream_is_of_two_versions(runs: int, autojump_clock: MockClock) -> None:
    outcomes = {"whole": 0, "changed": 0}
    for seed in range(runs):
        chance = random.Random(seed)
        cache, song = MemoryCache(), ChangingSong(chance)

        async def listen(chance: random.Random, song: ChangingSong, cache: PageCache) -> None:
            await trio.sleep(chance.random() / 5)
            has_link = chance.random() < 0.7
            validator, size = (song.etag if has_link else ""), len(song.data)

            async def read(start: int, end: int) -> Page:
                await trio.sleep(chance.random() / 50)
                if chance.random() < 0.02 and song.now < 2:
                    song.now += 1
                page = await ScriptedPages(song.data)(start, end)
                return replace(page, etag=song.etag)

            source: Any = read
            try:
                found, _ = await Listener(cache).read(source, validator=validator, size=size)
            except PlayheadError as error:
                outcomes["changed"] += isinstance(error, ResourceChangedError)
                return
            versions = [data for _, data in song.versions]
            assert any(found == data for data in versions), "a mixture"
            outcomes["whole"] += 1

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(listen, chance, song, cache)
    assert outcomes["whole"] > runs
    assert outcomes["changed"] > runs / 10


# --- claims -------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with tempfile.TemporaryDirectory() as directory, valkey_server(Path(directory)) as running:
        yield running


async def test_two_that_start_together_read_each_page_once(server: ValkeyServer) -> None:
    source = pages(delay=0.02)
    found: list[bytes] = []

    async def listen() -> None:
        found.append((await Listener(server.cache()).read(source))[0])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        nursery.start_soon(listen)
    assert found == [DATA] * 2
    asked = sum(min(read.end, SIZE) - min(read.start, SIZE) for read in source.reads)
    assert asked == SIZE


async def test_a_reader_that_dies_holds_up_others_for_the_time_of_a_claim_at_most(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("playhead.cache.valkey.CLAIM_SECONDS", 0.2)
    dead = Listener(server.cache())
    place = dead.cache.places(server=["server", "1"], resource="x:song", validator="v1", scope=None)[0]
    cache: Any = place.cache
    assert await cache.claim(place.key, 0, 20, "dead") == 20
    with trio.fail_after(10):
        assert (await Listener(server.cache()).read(pages()))[0] == DATA


class Claimed(MemoryCache):
    """A cache in which another process has claimed the blocks from 2 on, until `free`."""

    claim_seconds = 8.0

    def __init__(self) -> None:
        super().__init__()
        self.waited = trio.Event()
        self.freed = trio.Event()
        self.answers = trio.Event()
        self.answers_up_to = 4

    async def get_run(self, key: str, first: int, count: int) -> list[bytes | None]:
        if first >= self.answers_up_to:
            await self.answers.wait()
        return [await self.get(key, block) for block in range(first, first + count)]

    async def claim(self, key: str, first: int, count: int, owner: str) -> int:
        return count if self.freed.is_set() else max(0, min(count, 2 - first))

    async def wait(self, key: str, block: int, *, seconds: float) -> None:
        self.waited.set()
        with trio.move_on_after(seconds):
            await self.freed.wait()

    async def release(self, key: str, blocks: list[int], owner: str) -> None:
        pass


async def test_audio_that_waits_for_another_process_starts_with_two_seconds_in_hand(
    autojump_clock: MockClock,
) -> None:
    cache = Claimed()
    async with Listener(cache).open(pages(), options=StreamOptions()) as stream:
        await cache.waited.wait()
        await trio.sleep(1)
        in_hand = stream.buffered_bytes
        assert in_hand == 2 * BLOCK_BYTES
        assert not stream.can_play(in_hand, in_hand / 1.9), "the blocks before came at once, the next may not"
        assert stream.can_play(in_hand, in_hand / 2.1)
        cache.freed.set()
        await trio.sleep(1)
        assert stream.buffered_bytes >= 4 * BLOCK_BYTES
        assert not stream.can_play(in_hand, in_hand / 1.9), "the next may have to wait again"
        cache.answers.set()
        await trio.sleep(1)
        assert stream.can_play(in_hand, in_hand / 1.9), "nobody else reads any more"


@pytest.mark.parametrize("has_end", [True, False])
async def test_audio_from_a_store_without_the_end_starts_with_two_seconds_in_hand(
    has_end: bool, autojump_clock: MockClock
) -> None:
    full, cache = MemoryCache(), Claimed()
    await Listener(full).read(pages())
    key = (
        Listener(full)
        .cache.places(server=["server", "1"], resource="x:song", validator="v1", scope=None)[0]
        .key
    )
    for block in (0, 1, SIZE // BLOCK_BYTES)[: 3 if has_end else 2]:
        data = await full.get(key, block)
        assert data is not None
        await cache.put(key, block, data)
    cache.answers_up_to = 2
    async with Listener(cache).open(pages(), options=StreamOptions()) as stream:
        await trio.sleep(1)
        in_hand = stream.buffered_bytes
        assert in_hand == 2 * BLOCK_BYTES
        assert stream.can_play(in_hand, in_hand / 1.9) == has_end, "who reads the rest may be slow"


async def test_a_block_that_is_stored_and_damaged_is_waited_for_in_no_hot_loop(
    autojump_clock: MockClock,
) -> None:
    class Damaged(Claimed):
        looks = 0

        async def get_run(self, key: str, first: int, count: int) -> list[bytes | None]:
            self.looks += first == 0
            return await super().get_run(key, first, count)

        async def claim(self, key: str, first: int, count: int, owner: str) -> int:
            return count if trio.current_time() >= began + 8.0 else 0

        async def wait(self, key: str, block: int, *, seconds: float) -> None:
            await trio.lowlevel.checkpoint()

    cache, began = Damaged(), trio.current_time()
    cache.answers.set()
    assert (await Listener(cache).read(pages()))[0] == DATA
    assert cache.looks < 2000, "some reads of the first block, each every 0.05 s for 8 s"


class SlowClaims(MemoryCache):
    """A cache whose claims are granted late; `claimed` has those that were not released."""

    claim_seconds = 8.0

    def __init__(self) -> None:
        super().__init__()
        self.asked = trio.Event()
        self.granted = trio.Event()
        self.claimed: dict[str, set[int]] = {}

    async def get_run(self, key: str, first: int, count: int) -> list[bytes | None]:
        return [None] * count

    async def claim(self, key: str, first: int, count: int, owner: str) -> int:
        self.asked.set()
        await self.granted.wait()
        self.claimed.setdefault(key, set()).update(range(first, first + count))
        return count

    async def wait(self, key: str, block: int, *, seconds: float) -> None:
        raise AssertionError("nobody else has claimed a block")

    async def release(self, key: str, blocks: list[int], owner: str) -> None:
        self.claimed[key] -= set(blocks)


async def test_a_claim_that_is_granted_after_the_stream_was_closed_is_given_up_too() -> None:
    cache = SlowClaims()
    async with trio.open_nursery() as nursery:
        reads = Listener(cache).reads(pages(), nursery)
        nursery.start_soon(reads, 0, BLOCK_BYTES)
        await cache.asked.wait()
        await reads.aclose()
        cache.granted.set()
    assert list(cache.claimed.values()) == [set()]


@pytest.mark.parametrize("is_granted", [False, True])
async def test_a_claim_of_a_cancelled_read_is_given_up_at_once(
    autojump_clock: MockClock, is_granted: bool
) -> None:
    cache = SlowClaims()
    async with trio.open_nursery() as nursery:
        reads = Listener(cache).reads(pages(delay=9.0), nursery)
        async with trio.open_nursery() as reading:
            reading.start_soon(reads, 0, BLOCK_BYTES)
            await cache.asked.wait()
            if is_granted:
                cache.granted.set()
                await trio.testing.wait_all_tasks_blocked()
                assert list(cache.claimed.values()) == [{0}]
            reading.cancel_scope.cancel()
        cache.granted.set()
        await trio.testing.wait_all_tasks_blocked()
        assert list(cache.claimed.values()) == [set()]
        await reads.aclose()


async def test_the_blocks_of_a_new_version_are_claimed_anew() -> None:
    cache = SlowClaims()
    cache.granted.set()
    async with trio.open_nursery() as nursery:
        reads = Listener(cache).reads(pages(rewrite=Version(etag='"v2"')), nursery)
        await reads(0, BLOCK_BYTES)
        await reads(0, BLOCK_BYTES)
    assert list(cache.claimed.values()) == [{0}, {0}], "under the keys of two versions"


async def test_a_closed_stream_gives_up_its_claims(server: ValkeyServer) -> None:
    asked = trio.Event()

    def delay(*_: int) -> float:
        asked.set()
        return 1000.0

    async with Listener(server.cache()).open(pages(delay=delay)):
        with trio.fail_after(10):
            await asked.wait()
    cache: Any = server.cache()
    place = Listener(cache).cache.places(
        server=["server", "1"], resource="x:song", validator="v1", scope=None
    )[0]
    assert await cache.claim(place.key, 0, 1, "next") == 1


@pytest.mark.parametrize("trouble", ["killed", "stopped", "restarted empty"])
async def test_a_valkey_in_trouble_costs_no_byte(server: ValkeyServer, trouble: str) -> None:
    cache = server.cache()
    await Listener(cache).read(pages())
    source = pages()
    async with Listener(cache).open(source) as stream:
        found = await stream.receive_some(1000)
        if trouble == "stopped":
            server.stop()
        else:
            server.kill()
        if trouble == "restarted empty":
            server.start()
        found += await stream.read_all()
    assert found == DATA
