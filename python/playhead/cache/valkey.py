"""A page cache in Valkey (or Redis), single or a cluster, for many processes and machines.

Each block is a key with a time to live. Neighbouring blocks are read in one round trip. A claim with an
expiry lets one process read a block from the server while the others wait for it. Valkey's blocking client
runs in worker threads; a hop costs 50 µs, less than an answer over the network. While a task waits for a
block that another process reads, one connection per process listens for stored and released blocks.

All keys of a resource have one hash tag, so a cluster has them on one node, and every command has one key, so
it works while a slot moves. The client library knows which node has which slot.

A slow or stopped node does not delay playing: after `TIMEOUT_SECONDS` the stream reads from its server,
this is reported once, and one request tries again every `RETRY_SECONDS`. Resources on other nodes are not
affected. Each block is checked against a checksum that is seeded with the key and the number of the block.
"""

from __future__ import annotations

import hashlib
import re
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import trio

from playhead.cache import BLOCK_BYTES, CLAIM_SECONDS
from playhead.errors import UsageError
from playhead.extras import require_extra
from playhead.redaction import redacted_url

TIMEOUT_SECONDS: Final = 0.4
"""Limits each wait for Valkey, which answers within a millisecond or has a problem. With `TRIES` of them, a
player whose node is lost reads from its server within a second."""
TRIES: Final = 2
"""The timeouts of a request after which a node counts as unusable. A single one may be caused by a busy
client: 64 players that started at once on two cores had some, and would all have read from the server. In a
cluster, the second try goes to the replica that has taken over, if any."""
SLOW_SECONDS: Final = 2.0
"""Limits a whole round trip: a mebibyte over a link of 4 Mbit/s takes that long."""
RETRY_SECONDS: Final = 5.0
"""The time between two tries of an unusable Valkey. Each delays one request by `TIMEOUT_SECONDS`."""
TTL_SECONDS: Final = 24 * 3600.0
"""The time to live of a block: one day. Valkey's own `maxmemory` bounds the memory."""
LINGER_SECONDS: Final = 5.0
"""The time after which a listening connection is closed if no task waits."""
_THREADS: Final = 8
"""Limits the requests at once. Each uses a thread and a connection."""
_NEWS: Final = "playhead:1:news"
"""The channel with the names of blocks that were stored, or whose claim was released. A cluster passes
messages on to all its nodes."""
_HEADER: Final = struct.Struct("<4sI")
_MAGIC: Final = b"pb1:"
_STORE: Final = """
redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
redis.pcall('publish', ARGV[3], KEYS[1])
"""
_RELEASE: Final = """
if redis.call('get', KEYS[1]) == ARGV[1] then
    redis.call('del', KEYS[1])
    redis.pcall('publish', ARGV[2], ARGV[3])
end
"""
"""Deletes a claim of one owner only: one that has expired may belong to another owner by now. In both
scripts, `pcall` ignores that a user may not be allowed to publish."""

_Command = tuple[str | bytes | int, ...]


class ValkeyCache:
    """A page cache at a `valkey://HOST:PORT/DB` URL (`valkeys://` for TLS, `unix://PATH`).

    A server that belongs to a cluster stands for the whole cluster. `valkey://HOST:PORT,HOST:PORT` names
    several servers, of which the first that answers is used to find the others.

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
        from valkey.exceptions import AskError, TryAgainError

        scheme, _, rest = url.partition("://")
        if scheme not in {"valkey", "valkeys", "redis", "rediss", "unix"} or not rest:
            raise UsageError(f"cache: expected valkey://HOST:PORT, got {redacted_url(url)}")
        try:
            self._servers = {one: valkey.Valkey.from_url(one, **_options()) for one in _single_urls(url)}
        except ValueError as error:
            raise UsageError(f"cache: {redacted_url(url)} is not a usable URL ({error})") from None
        self._place = redacted_url(url)
        self._client: Any = None
        """The only server, or the cluster; None until the first request."""
        self._connecting = threading.Lock()
        self._cluster_type: Any = valkey.ValkeyCluster
        self._errors = (valkey.ValkeyError, OSError)
        self._timeout_error = valkey.TimeoutError
        self._redirections = (AskError, TryAgainError)  # MovedError is an AskError
        self._ttl_seconds = ttl_seconds
        self._on_trouble = on_trouble
        self._threads = trio.CapacityLimiter(_THREADS)
        self._news = _News(self._errors)
        self._unusable_until: dict[str, float] = {}
        """By the name of the node; empty for the only one, and for an unknown one."""
        self.trouble: str | None = None
        """The reason why the Valkey was last found unusable; None if it never was."""

    # --- the protocol ----------------------------------------------------------------------------------

    async def get(self, key: str, block: int) -> bytes | None:
        """See `PageCache.get`."""
        return (await self.get_run(key, block, 1))[0]

    async def get_run(self, key: str, first: int, count: int) -> list[bytes | None]:
        """See `ClaimingCache.get_run`."""
        blocks = range(first, first + count)
        values = await self._ask(key, [("GET", _name(key, block)) for block in blocks]) or [None] * count
        return [_unpacked(key, block, value) for block, value in zip(blocks, values, strict=True)]

    async def put(self, key: str, block: int, data: bytes, *, ttl_seconds: float | None = None) -> None:
        """See `PageCache.put`."""
        seconds = self._ttl_seconds if ttl_seconds is None else min(ttl_seconds, self._ttl_seconds)
        lives_ms = int(1000 * seconds)
        if lives_ms <= 0:
            return
        name = _name(key, block)
        commands: list[_Command] = [("EVAL", _STORE, 1, name, _packed(key, block, data), lives_ms, _NEWS)]
        if len(data) < BLOCK_BYTES:
            size = _packed(key, "size", b"%d" % (block * BLOCK_BYTES + len(data)))
            commands.append(("SET", _name(key, "size"), size, "PX", lives_ms))
        await self._ask(key, commands)

    async def size(self, key: str) -> int | None:
        """See `PageCache.size`."""
        (value,) = await self._ask(key, [("GET", _name(key, "size"))]) or [None]
        found = _unpacked(key, "size", value)
        size = int(found) if found is not None and found.isdigit() else None
        if size is None or await self.get(key, size // BLOCK_BYTES) is None:
            return None
        return size

    async def claim(self, key: str, first: int, count: int, owner: str) -> int:
        """See `ClaimingCache.claim`. While Valkey is unusable, everyone may read, so it returns `count`."""
        blocks = range(first, first + count)
        lives_ms = int(1000 * CLAIM_SECONDS)
        is_won = await self._ask(
            key, [("SET", _claim_name(key, block), owner, "NX", "PX", lives_ms) for block in blocks]
        )
        if is_won is None:
            return count
        n_won = next((index for index, is_mine in enumerate(is_won) if not is_mine), count)
        excess = [block for block, is_mine in zip(blocks[n_won:], is_won[n_won:], strict=True) if is_mine]
        if excess:  # blocks past another owner's are not read now
            await self.release(key, excess, owner)
        return n_won

    async def release(self, key: str, blocks: list[int], owner: str) -> None:
        """See `ClaimingCache.release`."""
        await self._ask(
            key,
            [("EVAL", _RELEASE, 1, _claim_name(key, n), owner, _NEWS, _name(key, n)) for n in blocks],
        )

    async def wait(self, key: str, block: int, *, seconds: float) -> None:
        """See `ClaimingCache.wait`. Without a connection to listen on, it waits for all of `seconds`."""
        name = _name(key, block)
        with trio.move_on_after(seconds), self._news.of(name, self._subscribe) as changed:
            # Ask once, because changes before this block are not reported.
            state = await self._ask(key, [("EXISTS", name), ("EXISTS", _claim_name(key, block))])
            if state == [0, 1]:
                await changed.wait()

    def close(self) -> None:
        """Close the connections. The cache can be used again."""
        with self._connecting:
            if self._client is not None:
                self._client.close()
            self._client = None

    # --- requests --------------------------------------------------------------------------------------

    async def _ask(self, key: str, commands: list[_Command]) -> list[Any] | None:
        """Run `commands` on keys of one resource, in one round trip, in a thread. Return their answers; None
        while Valkey is unusable."""
        now = time.monotonic()
        node = self._node_of(key)
        until = self._unusable_until.get(node, 0.0)
        if now < until:
            await trio.lowlevel.checkpoint()
            return None
        if until:
            self._unusable_until[node] = now + RETRY_SECONDS  # the others go on without it
        failures: list[Exception] = []

        def run() -> list[Any] | None:
            for remaining in reversed(range(TRIES)):
                try:
                    return self._answers(key, commands, trial_of=node if until else None)
                except self._errors as error:
                    if remaining and self._can_try_again(key, error):
                        continue
                    self._unusable_until[self._node_of(key)] = time.monotonic() + RETRY_SECONDS
                    failures.append(error)
                    break
            return None

        answers = None
        with trio.move_on_after(SLOW_SECONDS) as scope:
            answers = await trio.to_thread.run_sync(run, limiter=self._threads, abandon_on_cancel=True)
        if scope.cancelled_caught:
            self._unusable_until[self._node_of(key)] = time.monotonic() + RETRY_SECONDS
            self._report(f"no answer within {SLOW_SECONDS:g} s")
        elif failures:
            self._report(str(failures[0]))
        return answers

    def _report(self, why: str) -> None:
        is_first, self.trouble = self.trouble is None, why
        if is_first and self._on_trouble is not None:
            self._on_trouble(f"the cache {self._place} is unusable ({why}): reading from the server")

    # --- in a worker thread ----------------------------------------------------------------------------

    def _answers(self, key: str, commands: list[_Command], *, trial_of: str | None) -> list[Any] | None:
        """Return the answers; None if another request has found the node unusable meanwhile."""
        with self._connecting:
            if "" in self._unusable_until and trial_of != "":
                return None
            if self._client is None:
                self._client = self._connect()
            client = self._client
        node = self._node_of(key)
        if node in self._unusable_until and trial_of != node:
            return None
        is_cluster = isinstance(client, self._cluster_type)
        server = client
        if is_cluster:
            server = client.get_valkey_connection(client.get_node_from_key(_name(key, 0)))
        with server.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            answers: list[Any] = pipeline.execute(raise_on_error=False)
        for index, answer in enumerate(answers):
            if is_cluster and isinstance(answer, self._redirections):
                answers[index] = self._redirected(client, commands[index])
            elif isinstance(answer, Exception) and not str(answer).startswith("WRONGTYPE"):
                raise answer
        for name in ("", node):
            self._unusable_until.pop(name, None)
        return answers

    def _redirected(self, client: Any, command: _Command) -> Any:
        """Run a command of a slot that moves, or has moved; the library follows it and learns."""
        with self._connecting:
            try:
                return client.execute_command(*command)
            except AttributeError as error:  # the library has only nodes that had slots
                raise ConnectionError("a slot moves to a node that the cluster does not list yet") from error

    def _connect(self) -> Any:
        """Return the first server that answers, or the cluster that it belongs to."""
        from valkey.exceptions import ResponseError

        for remaining, (url, server) in zip(
            reversed(range(len(self._servers))), self._servers.items(), strict=True
        ):
            try:
                server.cluster("info")
            except ResponseError:
                return server  # it has no cluster mode
            except self._errors:
                if not remaining:
                    raise
            else:
                # One try more, because the library asks the first node of its list for its commands.
                return self._cluster_type.from_url(
                    url, cluster_error_retry_attempts=1, reinitialize_steps=1, **_options()
                )
        raise AssertionError("there is at least one server")

    def _node_of(self, key: str) -> str:
        """Return the name of the cluster's node for `key`; empty for a single server, and before a
        connection."""
        client = self._client
        if not isinstance(client, self._cluster_type):
            return ""
        try:
            return str(client.get_node_from_key(_name(key, 0)).name)
        except self._errors:
            return "no node"

    def _can_try_again(self, key: str, error: Exception) -> bool:
        """Return True after a timeout, and if a cluster has another node for `key` by now."""
        before = self._node_of(key)
        with self._connecting:
            if before and before == self._node_of(key):
                manager = self._client.nodes_manager
                # Ask the other nodes first.
                nodes = sorted(manager.startup_nodes.items(), key=lambda item: item[0] == before)
                manager.startup_nodes = dict(nodes)
                try:
                    manager.initialize()
                except self._errors:
                    self._client = None  # none answers; begin again with the servers of the URL
        return isinstance(error, self._timeout_error) or before != self._node_of(key)

    def _subscribe(self) -> Any:
        """Return a connection for news, to any node of a cluster."""
        client = self._client
        if isinstance(client, self._cluster_type):
            return client.pubsub(node=client.get_random_node())
        return (client or next(iter(self._servers.values()))).pubsub()


class _News:
    """Reports of blocks that other processes store or release, by one connection and thread while tasks wait.

    All waiters are woken once the connection has subscribed, because their blocks may have been stored
    before. If the connection breaks, no waiter is woken, and the next one opens another.
    """

    def __init__(self, errors: tuple[type[Exception], ...]) -> None:
        self._errors = errors
        self._lock = threading.Lock()
        self._waiting: dict[object, tuple[str, trio.lowlevel.TrioToken, trio.Event]] = {}
        self._is_listening = False

    @contextmanager
    def of(self, name: str, subscribe: Callable[[], Any]) -> Iterator[trio.Event]:
        """Return an event that is set when the block `name` is reported. `subscribe` returns a connection."""
        waiter, event = object(), trio.Event()
        with self._lock:
            self._waiting[waiter] = name, trio.lowlevel.current_trio_token(), event
            must_listen, self._is_listening = not self._is_listening, True
        if must_listen:
            threading.Thread(
                target=self._listen, args=(subscribe,), name="playhead cache news", daemon=True
            ).start()
        try:
            yield event
        finally:
            with self._lock:
                del self._waiting[waiter]

    def _listen(self, subscribe: Callable[[], Any]) -> None:
        is_idle = False
        try:
            # A ValueError: `ValkeyCache.close` has closed the socket under this thread.
            with suppress(*self._errors, ValueError), subscribe() as channel:
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


def _single_urls(url: str) -> list[str]:
    """Return one URL for each server of a URL that may name several, separated by commas."""
    parts = re.fullmatch(r"(\w+://(?:[^/?]*@)?)([^/?@]*)(.*)", url, re.DOTALL)
    if parts is None or url.startswith("unix:"):
        return [url]
    before, servers, after = parts.groups()
    return [f"{before}{server}{after}" for server in servers.split(",")]


def _options() -> dict[str, Any]:
    """Return the options of a connection. What is tried again is decided here, not by the library."""
    from valkey.backoff import NoBackoff
    from valkey.retry import Retry

    timeouts = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), TIMEOUT_SECONDS)
    return {**timeouts, "retry": Retry(NoBackoff(), 0)}


def _name(key: str, part: int | str) -> str:
    return f"playhead:1:{{{hashlib.sha256(key.encode()).hexdigest()}}}:{part}"


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
