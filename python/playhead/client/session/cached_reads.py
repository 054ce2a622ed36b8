"""Reads of one stream through a page cache.

    planner ─▶ CachedReads ─▶ cache: the blocks at the start of the range, if it has them
                    └─▶ SharedReads ─▶ server: the range, up to the next block that the cache has
    ring ◀── judged bytes ──▶ CachedReads.stored ─▶ whole blocks ─▶ cache

Only bytes that `stream.response_handler` has accepted are stored. Bytes of two versions of a resource are
never joined: the version is part of the cache's key, and a page of another version ends the stream.
"""

from __future__ import annotations

import itertools
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Final

import trio

from playhead._core import decode_base64
from playhead.cache import BLOCK_BYTES, ClaimingCache
from playhead.client.session.shared_reads import CachePlace, Scope, SessionReads
from playhead.content.formats import Base64Text
from playhead.errors import ResourceChangedError
from playhead.stream.answer import Page, ReadRange
from playhead.stream.options import ReadCounts

LOOK_SECONDS: Final = 0.05
"""The first pause before the cache is asked again for a block that another process reads. Each further pause
is twice as long. A cache that reports stored blocks ends the pause."""

LOOK_SECONDS_MAX: Final = 1.0
"""The longest of these pauses. Other caches report nothing, and a process may have died with its claim."""

LOOKS_AT_ONCE: Final = 3
"""The number of times that the cache may be asked again without a minimum pause. A block that was stored
damaged would otherwise end every pause at once."""

CLOSE_SECONDS: Final = 1.0
"""Limits the time for which a closing stream waits for its last blocks to be stored."""

MOST_PARTIAL: Final = 64
"""Limits the incomplete blocks in memory to those of a window of 4 MiB. Seeks leave incomplete blocks
behind."""

MOST_WAITING: Final = 64
"""Limits the blocks that wait to be stored in a slow cache. Further blocks are not stored."""


@dataclass(slots=True, eq=False)
class _Version:
    """A version of the resource."""

    validator: str
    places: tuple[CachePlace, ...]
    etag: str | None = None
    """The entity tag of the newest page that has one."""
    is_size_asked: bool = False
    """True once the cache was asked for the size."""


@dataclass(slots=True)
class _Partial:
    """An incomplete block."""

    data: bytearray = field(default_factory=lambda: bytearray(BLOCK_BYTES))
    spans: list[tuple[int, int]] = field(default_factory=list)
    """The disjoint ranges of bytes that have arrived."""

    def add(self, start: int, data: bytes | memoryview) -> None:
        """Add `data`, which begins at the byte `start` of the block."""
        end = start + len(data)
        self.data[start:end] = data
        apart = [span for span in self.spans if span[1] < start or span[0] > end]
        touching = [span for span in self.spans if span not in apart]
        joined = (min([start, *(s for s, _ in touching)]), max([end, *(e for _, e in touching)]))
        self.spans = [*apart, joined]

    @property
    def whole_bytes(self) -> int:
        """The number of bytes that have arrived from the beginning of the block on, up to the first gap."""
        return next((end for start, end in self.spans if start == 0), 0)


@dataclass(slots=True, eq=False)
class _AskedClaim:
    """A claim that was requested."""

    answered: trio.Event = field(default_factory=trio.Event)
    granted: int = 0
    """The number of the blocks that this reader may read, once it is answered."""
    is_cancelled: bool = False
    """True once the read that needs it was cancelled."""


@dataclass(slots=True, eq=False)
class CachedReads:
    """A `ReadRange` of one stream that looks into a page cache first. Close it with `aclose`."""

    read: ReadRange
    session: SessionReads
    server: object
    """`server` and `resource` are parts of the cache's key, in JSON's types."""
    resource: object
    validator: InitVar[str]
    """The validator of the link; empty without one."""
    size_bytes: int | None
    mime_type: str | None
    counts: ReadCounts
    start_soon: Callable[..., None]
    """Starts a task of the session, which stores blocks."""
    server_name: str
    _exact_bytes: int | None = None
    """The size that an earlier stream found; the announced size is only a hint."""
    _owner: str = field(default_factory=lambda: secrets.token_hex(8))
    """The name under which this reader claims blocks in the cache."""
    _scope: Scope | None = None
    _ttl_seconds: float | None = None
    _version: _Version = field(init=False)
    _is_pinned: bool = False
    """True once bytes of the version were delivered, after which it must not change."""
    _claims: dict[int, float] = field(default_factory=dict)
    """The claimed blocks, and the time at which each claim expires."""
    _asked: set[_AskedClaim] = field(default_factory=set)
    _in_flight: int = 0
    _is_closed: bool = False
    _follows: bool = False
    """True if another process seems to be reading: the cache has blocks but not the end, or a block is
    claimed."""
    _at_hand: OrderedDict[int, bytes] = field(default_factory=OrderedDict)
    """The newest blocks from the cache. The first pages of a stream are shorter than a block and share
    one."""
    _in_cache: set[int] = field(default_factory=set)
    """The blocks that the cache has, or is being given."""
    _partial: OrderedDict[int, _Partial] = field(default_factory=OrderedDict)
    _waiting: deque[tuple[CachePlace, int, bytes]] = field(default_factory=deque)
    """The blocks that wait to be stored."""
    _idle: trio.Event = field(default_factory=trio.Event)
    """Set while no block waits to be stored."""

    def __post_init__(self, validator: str) -> None:
        self._version = self._version_of(validator)
        self._idle.set()

    def _version_of(self, validator: str) -> _Version:
        places = self.session.places(
            server=self.server, resource=self.resource, validator=validator, scope=self._scope
        )
        return _Version(validator, places)

    @property
    def _has_size(self) -> bool:
        return self._exact_bytes is not None or self.size_bytes is not None

    # --- reading ---------------------------------------------------------------------------------------

    async def __call__(self, start: int, end: int) -> Page:
        """Read `[start, end)`, or the part before the first block that the cache has or another reader reads.

        Raises `ResourceChangedError` for a page of another version than earlier pages, and the errors of
        `read`.
        """
        self._in_flight += 1
        try:
            return await self._through_cache(start, end)
        finally:
            self._in_flight -= 1
            if self._is_closed and not self._in_flight:
                self.start_soon(self._release)

    async def _through_cache(self, start: int, end: int) -> Page:
        first = start // BLOCK_BYTES
        count = -(-end // BLOCK_BYTES) - first
        pause = LOOK_SECONDS
        for looks in itertools.count(1):
            version = self._version
            blocks = await self._look(version, first, count)
            if version is not self._version:
                continue
            if (page := self._page_of(blocks, first, start, end)) is not None:
                return page
            n_missing = next((n for n, block in enumerate(blocks) if n and block is not None), count)
            claimed = await self._claim(version, first, n_missing)
            if version is not self._version:
                continue
            if claimed:
                break
            self._follows = True
            await self._wait(version, first, seconds=pause)
            if looks > LOOKS_AT_ONCE:
                await trio.sleep(LOOK_SECONDS)
            pause = min(2 * pause, LOOK_SECONDS_MAX)
        # If the size is unknown, the range is not shortened, because a short page is evidence of an end.
        stop = min(end, (first + claimed) * BLOCK_BYTES) if self._has_size else end
        try:
            page = await self.read(start, stop)
        except trio.Cancelled:  # by a seek, perhaps: others must not wait until the claims expire
            self.start_soon(self._release, range(first, first + claimed))
            raise
        self._examine(page, start)
        return page

    @property
    def waits_for_others(self) -> bool:
        """True if reads are in flight while another process reads the same resource. Some of their blocks are
        in the cache; others arrive when that process has read them, at an unknown time."""
        return self._follows and self._in_flight > 0

    async def _wait(self, version: _Version, block: int, *, seconds: float) -> None:
        place = version.places[0]
        if isinstance(place.cache, ClaimingCache):
            await place.cache.wait(place.key, block, seconds=seconds)
        await trio.lowlevel.checkpoint()

    async def _look(self, version: _Version, first: int, count: int) -> list[bytes | None]:
        numbers = range(first, first + count)
        if all(number in self._at_hand for number in numbers):
            return [self._at_hand[number] for number in numbers]
        blocks: list[bytes | None] = [None] * count
        for place in version.places:
            if isinstance(place.cache, ClaimingCache):
                blocks = await place.cache.get_run(place.key, first, count)
            else:
                blocks = [await place.cache.get(place.key, number) for number in numbers]
            if blocks[0] is not None:
                version.places = (place,)
                if self._exact_bytes is None and not version.is_size_asked:
                    version.is_size_asked = True
                    size_bytes = await place.cache.size(place.key)
                    if version is self._version:
                        self._exact_bytes = size_bytes
                break
        if version is self._version:
            for number, block in zip(numbers, blocks, strict=True):
                if block is not None:
                    self._at_hand[number] = block
                    self._in_cache.add(number)
            while len(self._at_hand) > max(count, 4):
                self._at_hand.popitem(last=False)
        return blocks

    def _page_of(self, blocks: list[bytes | None], first: int, start: int, end: int) -> Page | None:
        """Join the leading `blocks` to a page; None without the first, or if short at an unknown size."""
        at, blobs = start, list[bytes]()
        for number, block in enumerate(blocks, first):
            if block is None:
                break
            origin = number * BLOCK_BYTES
            piece = block[at - origin : end - origin]
            if piece:
                blobs.append(piece)
                at += len(piece)
            if len(block) < BLOCK_BYTES:
                self._exact_bytes = origin + len(block)
                break
        if blocks[0] is None or not (at == end or self._has_size):
            return None
        self._is_pinned = True
        self._follows = self._follows or self._exact_bytes is None
        self.counts.cache_hits += 1
        self.counts.cache_bytes += at - start
        is_here = self._version.places[0].cache is self.session.memory
        return Page(
            blobs=tuple(blobs),
            mime_type=self.mime_type,
            total_bytes=self._exact_bytes,
            cache_scope="private" if is_here else self._scope,
        )

    async def _claim(self, version: _Version, first: int, count: int) -> int:
        """Claim blocks from `first` on. Return the number that this reader may read, perhaps 0."""
        place = version.places[0]
        if not isinstance(place.cache, ClaimingCache):
            return count
        now = trio.current_time()
        own = 0
        while own < count and self._claims.get(first + own, 0.0) > now:
            own += 1
        if own < count:
            asked = _AskedClaim()
            self.start_soon(self._ask_claim, place.cache, version, range(first + own, first + count), asked)
            try:
                await asked.answered.wait()
            except trio.Cancelled:
                asked.is_cancelled = True
                raise
            own += asked.granted
        return own

    async def _ask_claim(
        self, cache: ClaimingCache, version: _Version, blocks: range, asked: _AskedClaim
    ) -> None:
        """Claim `blocks` in a task of the session, because a claim that was cancelled could be granted all
        the same, and would delay others until it expires."""
        key, until = version.places[0].key, trio.current_time() + cache.claim_seconds
        self._asked.add(asked)
        try:
            asked.granted = await cache.claim(key, blocks[0], len(blocks), self._owner)
            granted = list(blocks[: asked.granted])
            if version is self._version and not asked.is_cancelled:
                self._claims |= dict.fromkeys(granted, until)
            elif granted:
                await cache.release(key, granted, self._owner)
        finally:
            self._asked.discard(asked)
            asked.answered.set()

    def _examine(self, page: Page, start: int) -> None:
        """Take the resource's version, and its rules for sharing, from a page of the server."""
        if page.etag is not None and page.etag != self._version.etag:
            is_same = self._version.etag is None and self._version.validator == page.etag
            if not is_same and self._is_pinned:
                raise ResourceChangedError(
                    f"{self.server_name}: the resource changed while it was read: got the version"
                    f" {page.etag} at byte {start} in place of"
                    f" {self._version.etag or self._version.validator}; read it again from the start",
                    offset=start,
                )
            if not is_same:
                self._forget()
                self._version = self._version_of(page.etag)
            self._version.etag = page.etag
        if page.blobs:
            self._is_pinned = True
            self._ttl_seconds = page.ttl_seconds
            self._learn_scope(page.cache_scope)

    def _learn_scope(self, scope: Scope | None) -> None:
        if scope is None and self.session.credentials != "":
            scope = "private"
        if scope != self._scope:
            self._scope = scope
            self._version.places = self._version_of(self._version.validator).places
        elif scope is None:
            self._version.places = self._version.places[:1]

    def _forget(self) -> None:
        """Drop the blocks and claims of another version, of which no byte was delivered."""
        self._at_hand.clear()
        self._in_cache.clear()
        self._claims.clear()

    # --- storing ---------------------------------------------------------------------------------------

    def stored(self, offset: int, piece: Base64Text | bytes) -> None:
        """Take bytes that the stream has accepted. A block is stored once all its bytes have arrived."""
        if self._ttl_seconds == 0:
            return
        data = memoryview(piece if isinstance(piece, bytes) else decode_base64(piece))
        while data:
            block, at = divmod(offset, BLOCK_BYTES)
            part = data[: BLOCK_BYTES - at]
            data, offset = data[len(part) :], offset + len(part)
            if block in self._in_cache:
                continue
            if len(part) == BLOCK_BYTES:
                self._partial.pop(block, None)
                self._put(block, bytes(part))
                continue
            partial = self._partial.setdefault(block, _Partial())
            partial.add(at, part)
            if partial.whole_bytes == BLOCK_BYTES:
                del self._partial[block]
                self._put(block, bytes(partial.data))
            elif len(self._partial) > MOST_PARTIAL:
                self._partial.popitem(last=False)

    def ended(self, size_bytes: int) -> None:
        """Store the last block, which may be short, because the stream has accepted its end."""
        if self._ttl_seconds == 0:
            return
        block, n_bytes = divmod(size_bytes, BLOCK_BYTES)
        partial = self._partial.pop(block, _Partial())
        if block not in self._in_cache and partial.whole_bytes == n_bytes:
            self._put(block, bytes(partial.data[:n_bytes]))

    def _put(self, block: int, data: bytes) -> None:
        self._in_cache.add(block)
        if len(self._waiting) >= MOST_WAITING:
            return
        self._waiting.append((self._version.places[0], block, data))
        if self._idle.is_set():
            self._idle = trio.Event()
            self.start_soon(self._store_waiting, self._idle)

    async def _store_waiting(self, idle: trio.Event) -> None:
        try:
            while self._waiting:
                place, block, data = self._waiting.popleft()
                await place.cache.put(place.key, block, data, ttl_seconds=self._ttl_seconds)
        finally:
            idle.set()

    async def aclose(self) -> None:
        """Wait until the complete blocks are stored and the requested claims are answered, for at most
        `CLOSE_SECONDS`, and release the claims."""
        self._is_closed = True
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._idle.wait()
            for asked in tuple(self._asked):
                await asked.answered.wait()
            await self._release()

    async def _release(self, blocks: range | None = None) -> None:
        """Release the claims of `blocks`, or all."""
        now = trio.current_time()
        # Another reader may have missed a block just before it was stored, and would read it once released.
        claimed = [
            n
            for n, until in self._claims.items()
            if until > now and n not in self._in_cache and (blocks is None or n in blocks)
        ]
        place = self._version.places[0]
        if claimed and isinstance(place.cache, ClaimingCache):
            await place.cache.release(place.key, claimed, self._owner)
        for n in claimed:  # afterwards: a stream that is closed meanwhile must not end before
            self._claims.pop(n, None)
