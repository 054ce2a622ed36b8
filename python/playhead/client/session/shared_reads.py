"""Share reads: of a range in flight in the session, and through a page cache with everybody.

    planner ─▶ CachedReads ─▶ cache: the blocks at the start of the range, if it has them
                    └─▶ SharedReads ─▶ server: the range, up to the next block that the cache has
    ring ◀── judged bytes ──▶ CachedReads.stored ─▶ whole blocks ─▶ cache

A range whose read is in flight is not read again. The read runs in a task of the session
(`RangeForm.start_soon`), and is shielded while others wait for it: a stream that is closed takes nothing from
them. `CachedReads` exist only with a cache.

Only bytes that the stream has accepted are stored: what an answer means is decided in one place
(`stream.response_handler`). Bytes of two versions are never joined: the version of the resource is part of
the key, and a page of another version ends the stream.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import InitVar, dataclass, field, replace
from typing import Final, Literal

import trio

from playhead._core import decode_base64
from playhead.cache import BLOCK_BYTES, ClaimingCache, MemoryCache, PageCache, is_dated, resource_key
from playhead.content.formats import Base64Text
from playhead.errors import PlayheadError, ResourceChangedError
from playhead.stream.answer import Answer, Page, ReadRange, pieces
from playhead.stream.in_flight import READ_SCOPE
from playhead.stream.options import ReadCounts

LOOK_SECONDS: Final = 0.05
LOOK_SECONDS_MAX: Final = 1.0
"""Pauses before another look for a block that another process reads, each twice the one before. The cache
ends them when the block is stored; they are for a cache that cannot, and for a process that died with its
claim."""
LOOKS_AT_ONCE: Final = 3
"""Looks that follow one another as the cache wakes them. A block that is stored and damaged would wake the
next one at once."""
CLOSE_SECONDS: Final = 1.0
"""Time that a closing stream waits for its last blocks to be stored."""
MOST_PARTIAL: Final = 64
"""Blocks that have arrived in part: as many as a window of 4 MiB has. Seeks leave more behind."""
MOST_WAITING: Final = 64
"""Blocks that wait to be stored in a slow cache; more are not stored."""

Scope = Literal["public", "private"]
_LOOPBACK_PORT: Final = re.compile(
    r"\b((?:https?|wss?)://(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])):\d{1,5}(?=[/?#\"\\])", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _Place:
    cache: PageCache
    key: str


@dataclass(slots=True, kw_only=True)
class SessionReads:
    """The reads in flight of a session, its page cache, and what tells its resources and its user from those
    of others."""

    cache: PageCache | None
    """None: reads are shared in flight only."""
    server: object
    """The configured URL or command, in JSON's types; None for a server object in this process."""
    machine: str | None = None
    """A name for this machine, if another one has another server at the same address: a loopback URL, or a
    command. Its ports may be others after each start."""
    credentials: str | None
    """A name for the credentials, empty without any; None if they are not known or change."""
    memory: MemoryCache = field(default_factory=MemoryCache)
    """Blocks that must not leave this session."""
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    in_flight: dict[tuple[Hashable, int], _SharedRead] = field(default_factory=dict)
    """The reads by resource and first byte."""

    def places(
        self, *, server: object, resource: object, validator: str, scope: Scope | None
    ) -> tuple[_Place, ...]:
        """Return where blocks of a version may be, and in the first of which they are stored.

        `scope` is the server's `cacheScope`; None if it is not known. What is read with
        credentials is private unless the server says otherwise, and what is private without credentials, or
        with such as nobody can name, stays in this session. So does a resource without a validator.

        What only this machine can reach is told apart by its bytes: under an entity tag or a digest the ports
        of loopback count for nothing. Under a date and a size, it is shared with no other machine.
        """
        assert self.cache is not None
        about: object = [self.server, server, resource]
        if self.machine is not None and is_dated(validator):
            about = [self.machine, about]
        elif self.machine is not None and validator:
            about = _LOOPBACK_PORT.sub(r"\1", json.dumps(about, sort_keys=True, default=str))

        def at(cache: PageCache, access: str) -> _Place:
            return _Place(cache, resource_key(about, validator=validator, access=access))

        public, here = at(self.cache, "public"), at(self.memory, f"session {self.nonce}")
        if not validator or self.server is None:
            return (here,)
        if scope == "public":
            return (public,)
        private = at(self.cache, f"private {self.credentials}") if self.credentials else here
        if scope == "private":
            return (private,)
        # What anybody gets, the server may give to a user in another form: it has not said that it is public.
        return (at(self.cache, "anonymous") if self.credentials == "" else private, public)


@dataclass(slots=True, eq=False)
class _Version:
    """One version of the resource, as far as it is known."""

    validator: str
    places: tuple[_Place, ...]
    etag: str | None = None
    """The version that a page named; None before the first that does."""
    is_size_asked: bool = False


@dataclass(slots=True)
class _Partial:
    """A block that has arrived in part."""

    data: bytearray = field(default_factory=lambda: bytearray(BLOCK_BYTES))
    spans: list[tuple[int, int]] = field(default_factory=list)

    def add(self, start: int, data: bytes | memoryview) -> None:
        """Take bytes from `start` on, counted in the block."""
        end = start + len(data)
        self.data[start:end] = data
        apart = [span for span in self.spans if span[1] < start or span[0] > end]
        touching = [span for span in self.spans if span not in apart]
        joined = (min([start, *(s for s, _ in touching)]), max([end, *(e for _, e in touching)]))
        self.spans = [*apart, joined]

    @property
    def whole_bytes(self) -> int:
        """The bytes from the beginning of the block that have all arrived."""
        return next((end for start, end in self.spans if start == 0), 0)


class Arrivals:
    """The time of the newest byte of any answer to one stream's reads. Times are trio's; 0.0 is never.

    A stream's patience stands still while an answer is arriving. HTTP knows the bytes of each answer; a pipe
    or a WebSocket only knows that some awaited answer is arriving, and counts for every read in flight on it.
    """

    newest = 0.0

    def note(self, at: float) -> None:
        """Record a byte that arrived at `at`."""
        self.newest = max(self.newest, at)

    def last_received(self) -> float:
        return self.newest


class _SharedRead(Arrivals):
    """One read in flight, and the streams that wait for it."""

    def __init__(self, start: int, end: int, stream: SharedReads) -> None:
        self.start = start
        self.end = end
        self.streams = [stream]
        self.scope = trio.CancelScope()
        self._outer = READ_SCOPE.get(None)
        self.over = trio.Event()
        self.page: Page | None = None
        self.error: PlayheadError | None = None

    def note(self, at: float) -> None:
        self.newest = at
        for stream in self.streams:
            stream.arrivals.newest = at

    @property
    def is_cancelled(self) -> bool:
        """True if trio is about to cancel the read: what is cancelled must not be shielded any more."""
        return self._outer is not None and self._outer.cancel_called and not self.scope.shield

    async def join(self, stream: SharedReads, end: int) -> Page | None:
        """Wait for the page, cut to `[start, end)` if the answer has exactly what was asked for.

        Any other answer is given as it is, because its length is evidence. None if the read was cancelled
        just before. Raises the error of the read.
        """
        self.streams.append(stream)
        self.scope.shield = True
        stream.arrivals.note(self.newest)
        try:
            await self.over.wait()
        finally:
            self.streams.remove(stream)
            self.scope.shield = len(self.streams) > 1
        if self.error is not None:
            raise self.error
        page, n_bytes = self.page, self.end - self.start
        if page is None or self.end <= end or page.text_items or page.n_bytes != n_bytes:
            return page
        whole = Answer(offset=self.start, blobs=page.blobs, n_bytes=n_bytes)
        return replace(page, blobs=tuple(piece for _, piece in pieces(whole, self.start, end)))


@dataclass(slots=True, eq=False)
class SharedReads:
    """A `ReadRange` of one stream that shares its reads in flight with others of the session."""

    send: Callable[[int, int, Arrivals], Awaitable[Page]]
    """Reads a range, and notes the arrival of its bytes."""
    session: SessionReads
    resource: Hashable
    arrivals: Arrivals

    async def __call__(self, start: int, end: int) -> Page:
        """Read `[start, end)`: from a read in flight that begins at `start` and asks for as much, if any.

        A second read of the same stream is always sent: the planner repeats a read because the first one is
        late. Raises what `send` raises. Cancelled: the read goes on if others wait for it.
        """
        reads, key = self.session.in_flight, (self.resource, start)
        while (read := reads.get(key)) is not None and read.end >= end and self not in read.streams:
            await trio.lowlevel.checkpoint_if_cancelled()  # with the session, the read is cancelled, too
            if read.is_cancelled:
                break
            if (shared := await read.join(self, end)) is not None:
                return shared
        read = reads[key] = _SharedRead(start, end, self)
        try:
            with read.scope:
                page = read.page = await self.send(start, end, read)
        except PlayheadError as error:
            read.error = error
            raise
        finally:
            if reads.get(key) is read:
                del reads[key]
            read.over.set()
        if len(read.streams) > 1:
            await trio.lowlevel.checkpoint_if_cancelled()  # it was shielded
        return page


@dataclass(slots=True, eq=False)
class CachedReads:
    """A `ReadRange` of one stream that looks into a page cache first. Close it with `aclose`."""

    read: ReadRange
    session: SessionReads
    server: object
    """This and `resource` are parts of the key, in JSON's types."""
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
    """The size that an earlier stream has found; the announced one is a hint."""
    _owner: str = field(default_factory=lambda: secrets.token_hex(8))
    _scope: Scope | None = None
    _ttl_seconds: float | None = None
    _version: _Version = field(init=False)
    _is_pinned: bool = False
    """Bytes of the current version have been delivered."""
    _claims: dict[int, float] = field(default_factory=dict)
    _in_flight: int = 0
    _is_closed: bool = False
    _follows: bool = False
    """Another process seems to read: the cache has blocks and not the end, or a block is claimed."""
    _at_hand: OrderedDict[int, bytes] = field(default_factory=OrderedDict)
    """The newest blocks from the cache: the pages of a first burst are of one block."""
    _in_cache: set[int] = field(default_factory=set)
    _partial: OrderedDict[int, _Partial] = field(default_factory=OrderedDict)
    _waiting: deque[tuple[_Place, int, bytes]] = field(default_factory=deque)
    _idle: trio.Event = field(default_factory=trio.Event)

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
        """Read `[start, end)`, or the part of it before a block that the cache or another reader has.

        Raises `ResourceChangedError` for a page of another version than the bytes before, and what the read
        itself raises.
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
            missing = next((n for n, block in enumerate(blocks) if n and block is not None), count)
            claimed = await self._claim(version, first, missing)
            if version is not self._version:
                continue
            if claimed:
                break
            self._follows = True
            await self._wait(version, first, seconds=pause)
            if looks > LOOKS_AT_ONCE:
                await trio.sleep(LOOK_SECONDS)
            pause = min(2 * pause, LOOK_SECONDS_MAX)
        # Of a resource of unknown size a page is not cut: a short page is evidence of an end.
        stop = min(end, (first + claimed) * BLOCK_BYTES) if self._has_size else end
        page = await self.read(start, stop)
        self._examine(page, start)
        return page

    @property
    def waits_for_others(self) -> bool:
        """Reads are in flight, and this stream follows one of another process: some come from the cache at
        once, others when that process has read them, and nothing says when that is."""
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
                    self._exact_bytes = await place.cache.size(place.key)
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
        """Return the page that begins with the first of the cache's blocks; None if that is not usable."""
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
        return Page(blobs=tuple(blobs), mime_type=self.mime_type, total_bytes=self._exact_bytes)

    async def _claim(self, version: _Version, first: int, count: int) -> int:
        """Return how many blocks from `first` on are this reader's to read; 0 if another reads the first."""
        place = version.places[0]
        if not isinstance(place.cache, ClaimingCache):
            return count
        now = trio.current_time()
        own = 0
        while own < count and self._claims.get(first + own, 0.0) > now:
            own += 1
        if own < count:
            own += await place.cache.claim(place.key, first + own, count - own, self._owner)
            until = now + place.cache.claim_seconds
            for block in range(first, first + own):
                if self._claims.get(block, 0.0) <= now:
                    self._claims[block] = until
        return own

    def _examine(self, page: Page, start: int) -> None:
        """Learn from a page of the server who may share it, for how long, and which version it is of."""
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
        """Drop what belongs to another version."""
        self._at_hand.clear()
        self._in_cache.clear()
        self._partial.clear()
        self._claims.clear()
        self._exact_bytes = None

    # --- storing ---------------------------------------------------------------------------------------

    def stored(self, offset: int, piece: Base64Text | bytes) -> None:
        """Take bytes that the stream has accepted; a block is stored when all its bytes have arrived."""
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
        """The stream has accepted its end: the last block may be shorter than the others."""
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
        """Wait until what is complete was stored, for at most `CLOSE_SECONDS`, and release the claims."""
        self._is_closed = True
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._idle.wait()
            await self._release()

    async def _release(self) -> None:
        now = trio.current_time()
        claimed = [block for block, until in self._claims.items() if until > now]
        self._claims.clear()
        place = self._version.places[0]
        if claimed and isinstance(place.cache, ClaimingCache):
            await place.cache.release(place.key, claimed, self._owner)


def credentials_name(values: object) -> str:
    """Return a name for credentials that tells nothing about them; empty without any."""
    if not values:
        return ""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()
