"""A page cache in Valkey (or Redis), for many processes and machines.

Each block is a key with a time to live. Neighbouring blocks are read in one round trip. A claim with an
expiry lets one process read a block from the server while the others wait for it. Valkey's blocking client
runs in worker threads; a hop costs 50 µs, less than an answer over the network. While a task waits for a
block that another process reads, one connection per process listens for stored and released blocks.

A slow or stopped Valkey does not delay playing: after `TIMEOUT_SECONDS` the stream reads from its server,
this is reported once, and one request tries again every `RETRY_SECONDS`. Each block is checked against a
checksum that is seeded with the key and the number of the block.
"""

from __future__ import annotations

import hashlib
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import trio

from playhead.cache import BLOCK_BYTES
from playhead.errors import UsageError
from playhead.extras import require_extra
from playhead.redaction import redacted_url

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 0.5
"""Limits each wait for Valkey, which answers within a millisecond or has a problem. A player that starts
should not wait much longer than for its server."""
TRIES: Final = 2
"""The timeouts of a request after which Valkey counts as unusable. A single one may be caused by a busy
client: 64 players that started at once on two cores had some, and would all have read from the server."""
SLOW_SECONDS: Final = 2.0
"""Limits a whole round trip: a mebibyte over a link of 4 Mbit/s takes that long."""
RETRY_SECONDS: Final = 5.0
"""The time between two tries of an unusable Valkey. Each delays one request by `TIMEOUT_SECONDS`."""
CLAIM_SECONDS: Final = 8.0
"""The lifetime of a claim. Listeners wait that long for a process that died. A read that takes longer is done
twice; with 64 players that started at once on two cores, reads took up to 5 s."""
TTL_SECONDS: Final = 24 * 3600.0
"""The time to live of a block: one day. Valkey's own `maxmemory` bounds the memory."""
LINGER_SECONDS: Final = 5.0
"""The time after which a listening connection is closed if no task waits."""
_THREADS: Final = 8
"""Limits the requests at once. Each uses a thread and a connection."""
_NEWS: Final = "playhead:1:news"
"""The channel with the names of blocks that were stored, or whose claim was released."""
_HEADER: Final = struct.Struct("<4sI")
_MAGIC: Final = b"pb1:"
_RELEASE: Final = """
for i, name in ipairs(KEYS) do
    if redis.call('get', name) == ARGV[1] then redis.call('del', name) end
end
"""
"""Deletes claims of one owner only. A claim that has expired may belong to another owner by now."""


class ValkeyCache:
    """A page cache at a `valkey://HOST:PORT/DB` URL (`valkeys://` for TLS, `unix://PATH`).

    Every client that can write to that Valkey can replace your audio: share it only among machines that trust
    each other, and set a password.
    """

    claim_seconds = CLAIM_SECONDS

    def __init__(
        self,
        url: str,
        *,
        ttl_seconds: float = TTL_SECONDS,
        on_trouble: Callable[[str], None] | None = None,
    ) -> None:
        """Make the cache without connecting. `on_trouble` is called once, in the trio thread, with a message,
        when Valkey is unusable.

        Raises `UsageError` without the extra `valkey`, and for a URL that cannot be used.
        """
        require_extra("valkey", "caches in Valkey")
        import valkey
        from valkey.backoff import NoBackoff
        from valkey.retry import Retry

        scheme, _, rest = url.partition("://")
        if scheme not in {"valkey", "valkeys", "redis", "rediss", "unix"} or not rest:
            raise UsageError(f"cache: expected valkey://HOST:PORT, got {redacted_url(url)}")
        try:
            self._client: Any = valkey.Valkey.from_url(
                url,
                socket_timeout=TIMEOUT_SECONDS,
                socket_connect_timeout=TIMEOUT_SECONDS,
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            raise UsageError(f"cache: {redacted_url(url)} is not a usable URL ({error})") from None
        self._place = redacted_url(url)
        self._errors = (valkey.ValkeyError, OSError)
        self._timeout_error = valkey.TimeoutError
        self._ttl_seconds = ttl_seconds
        self._on_trouble = on_trouble
        self._threads = trio.CapacityLimiter(_THREADS)
        self._news = _News(self._client, self._errors)
        self._unusable_until = 0.0
        self.trouble: str | None = None
        """The reason why the Valkey was last found unusable; None if it never was."""

    # --- the protocol ----------------------------------------------------------------------------------

    async def get(self, key: str, block: int) -> bytes | None:
        """See `PageCache.get`."""
        return (await self.get_run(key, block, 1))[0]

    async def get_run(self, key: str, first: int, count: int) -> list[bytes | None]:
        """See `ClaimingCache.get_run`."""
        blocks = range(first, first + count)
        names = [_name(key, block) for block in blocks]
        values: list[Any] = await self._ask(lambda: self._client.mget(names), [None] * count)
        return [_unpacked(key, block, value) for block, value in zip(blocks, values, strict=True)]

    async def put(self, key: str, block: int, data: bytes, *, ttl_seconds: float | None = None) -> None:
        """See `PageCache.put`."""
        seconds = self._ttl_seconds if ttl_seconds is None else min(ttl_seconds, self._ttl_seconds)
        lives_ms = int(1000 * seconds)
        if lives_ms <= 0:
            return
        values = {_name(key, block): _packed(key, block, data)}
        if len(data) < BLOCK_BYTES:
            values[_name(key, "size")] = _packed(key, "size", b"%d" % (block * BLOCK_BYTES + len(data)))

        def store() -> None:
            with self._client.pipeline(transaction=False) as pipeline:
                for name, value in values.items():
                    pipeline.set(name, value, px=lives_ms)
                pipeline.publish(_NEWS, _name(key, block))
                _checked(pipeline.execute(raise_on_error=False)[: len(values)])

        await self._ask(store, None)

    async def size(self, key: str) -> int | None:
        """See `PageCache.size`."""
        found = _unpacked(key, "size", await self._ask(lambda: self._client.get(_name(key, "size")), None))
        size = int(found) if found is not None and found.isdigit() else None
        if size is None or await self.get(key, size // BLOCK_BYTES) is None:
            return None
        return size

    async def claim(self, key: str, first: int, count: int, owner: str) -> int:
        """See `ClaimingCache.claim`. While Valkey is unusable, everyone may read, so it returns `count`."""
        names = [_claim_name(key, block) for block in range(first, first + count)]

        def ask() -> int:
            with self._client.pipeline(transaction=False) as pipeline:
                for name in names:
                    pipeline.set(name, owner, nx=True, px=int(1000 * CLAIM_SECONDS))
                is_won = pipeline.execute()
            n_won = next((index for index, is_mine in enumerate(is_won) if not is_mine), count)
            excess = [name for name, is_mine in zip(names[n_won:], is_won[n_won:], strict=True) if is_mine]
            if excess:  # blocks past another owner's are not read now
                self._client.eval(_RELEASE, len(excess), *excess, owner)
            return n_won

        return await self._ask(ask, count)

    async def release(self, key: str, blocks: list[int], owner: str) -> None:
        """See `ClaimingCache.release`."""
        names = [_claim_name(key, block) for block in blocks]

        def give_up() -> None:
            with self._client.pipeline(transaction=False) as pipeline:
                pipeline.eval(_RELEASE, len(names), *names, owner)
                for block in blocks:
                    pipeline.publish(_NEWS, _name(key, block))
                _checked(pipeline.execute(raise_on_error=False)[:1])

        await self._ask(give_up, None)

    async def wait(self, key: str, block: int, *, seconds: float) -> None:
        """See `ClaimingCache.wait`. Without a connection to listen on, it waits for all of `seconds`."""

        def is_over() -> bool:
            with self._client.pipeline(transaction=False) as pipeline:
                pipeline.exists(_name(key, block))
                pipeline.exists(_claim_name(key, block))
                is_stored, is_claimed = pipeline.execute()
            return bool(is_stored) or not is_claimed

        with trio.move_on_after(seconds), self._news.of(_name(key, block)) as changed:
            # Ask once, because changes before this block are not reported.
            if not await self._ask(is_over, True):
                await changed.wait()

    def close(self) -> None:
        """Close the connections. The cache can be used again."""
        self._client.close()

    # --- requests --------------------------------------------------------------------------------------

    async def _ask(self, request: Callable[[], T], otherwise: T) -> T:
        """Run `request` in a thread; return `otherwise` while Valkey is unusable."""
        now = time.monotonic()
        if now < self._unusable_until:
            await trio.lowlevel.checkpoint()
            return otherwise
        is_trial = self._unusable_until > 0.0
        if is_trial:
            self._unusable_until = now + RETRY_SECONDS  # the others go on without Valkey
        failures: list[Exception] = []

        def run() -> T:
            if self._unusable_until and not is_trial:
                return otherwise  # another request has found it unusable while this one waited for a thread
            for remaining in reversed(range(TRIES)):
                try:
                    answer = request()
                except self._errors as error:
                    if remaining and isinstance(error, self._timeout_error):
                        continue
                    failures.append(error)
                    return otherwise
                self._unusable_until = 0.0
                return answer
            return otherwise

        answer = otherwise
        with trio.move_on_after(SLOW_SECONDS) as scope:
            answer = await trio.to_thread.run_sync(run, limiter=self._threads, abandon_on_cancel=True)
        if scope.cancelled_caught:
            self._found_unusable(f"no answer within {SLOW_SECONDS:g} s")
        elif failures:
            self._found_unusable(str(failures[0]))
        return answer

    def _found_unusable(self, why: str) -> None:
        self._unusable_until = time.monotonic() + RETRY_SECONDS
        is_first, self.trouble = self.trouble is None, why
        if is_first and self._on_trouble is not None:
            self._on_trouble(f"the cache {self._place} is unusable ({why}): reading from the server")


class _News:
    """Reports of blocks that other processes store or release, by one connection and thread while tasks wait.

    All waiters are woken once the connection has subscribed, because their blocks may have been stored
    before. If the connection breaks, no waiter is woken, and the next one opens another.
    """

    def __init__(self, client: Any, errors: tuple[type[Exception], ...]) -> None:
        self._client = client
        self._errors = errors
        self._lock = threading.Lock()
        self._waiting: dict[object, tuple[str, trio.lowlevel.TrioToken, trio.Event]] = {}
        self._is_listening = False

    @contextmanager
    def of(self, name: str) -> Iterator[trio.Event]:
        """Return an event that is set when the block `name` is reported."""
        waiter, event = object(), trio.Event()
        with self._lock:
            self._waiting[waiter] = name, trio.lowlevel.current_trio_token(), event
            must_listen, self._is_listening = not self._is_listening, True
        if must_listen:
            threading.Thread(target=self._listen, name="playhead cache news", daemon=True).start()
        try:
            yield event
        finally:
            with self._lock:
                del self._waiting[waiter]

    def _listen(self) -> None:
        is_idle = False
        try:
            # A ValueError: `ValkeyCache.close` has closed the socket under this thread.
            with suppress(*self._errors, ValueError), self._client.pubsub() as channel:
                channel.subscribe(_NEWS)
                while not is_idle:
                    message = channel.get_message(timeout=LINGER_SECONDS)
                    if message is None:
                        is_idle = self._stop_if_idle()
                    elif message["type"] == "message":
                        self._wake(message["data"].decode("ascii", "replace"))
                    else:
                        self._wake(None)  # subscribed, perhaps again
        finally:
            if not is_idle:
                with self._lock:
                    self._is_listening = False

    def _stop_if_idle(self) -> bool:
        """Return whether nobody waits; then the next waiter starts another thread."""
        with self._lock:
            self._is_listening = bool(self._waiting)
            return not self._is_listening

    def _wake(self, reported: str | None) -> None:
        with self._lock:
            waiters = list(self._waiting.values())
        for name, token, event in waiters:
            if reported in (None, name):
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(event.set)


def _checked(answers: list[object]) -> None:
    """Raise the first error among the answers. Callers leave out the answers of `publish`, which a user may
    not be allowed."""
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer


def _name(key: str, part: int | str) -> str:
    return f"playhead:1:{hashlib.sha256(key.encode()).hexdigest()}:{part}"


def _claim_name(key: str, block: int) -> str:
    return _name(key, f"{block}:claim")


def _packed(key: str, part: int | str, data: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, zlib.crc32(data, _seed(key, part))) + data


def _unpacked(key: str, part: int | str, value: bytes | None) -> bytes | None:
    """Return the bytes in `value`; None if it is missing or not what was put."""
    if not isinstance(value, bytes) or not value.startswith(_MAGIC) or len(value) < _HEADER.size:
        return None
    data = value[_HEADER.size :]
    _, checksum = _HEADER.unpack_from(value)
    is_whole = len(data) <= BLOCK_BYTES and zlib.crc32(data, _seed(key, part)) == checksum
    return data if is_whole else None


def _seed(key: str, part: int | str) -> int:
    return zlib.crc32(f"{key}:{part}".encode())
