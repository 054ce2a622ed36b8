"""A page cache in Valkey (or Redis), single or a cluster, for many processes and machines.

Each block is a key with a time to live. One round trip reads neighbouring blocks. A claim with an expiry lets
one process read a block from the server while the others wait for it. While a task waits for such a block,
one connection per process listens for the names of stored and released blocks. Valkey's blocking client runs
in worker threads; the hop to a thread costs 50 µs, less than an answer over the network.

All keys of a resource have one hash tag, so a cluster stores them on one node. Every command has one key, so
it works while a slot moves to another node. The client library knows which node has which slot.

A slow or stopped node does not delay playing: after `TIMEOUT_SECONDS` the stream reads from its server. The
cache reports this once, and lets one request try the node again every `RETRY_SECONDS`. Resources on other
nodes are not affected. Each block has a checksum that is seeded with its key and number.
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
"""Limits each wait for Valkey, which answers within a millisecond or has a problem. Even after `TRIES`
timeouts, a player whose node is lost reads from its server within a second."""
TRIES: Final = 2
"""A node counts as unusable after this many timeouts of one request. A busy client may cause a single
timeout: 64 players that started at once on two cores had some, and would all have read from the server. In a
cluster, the second try goes to the replica that has taken over, if any."""
SLOW_SECONDS: Final = 2.0
"""Limits a whole round trip: a mebibyte over a link of 4 Mbit/s takes that long."""
RETRY_SECONDS: Final = 5.0
"""The time between two attempts to use an unusable Valkey. Each delays one request by `TIMEOUT_SECONDS`."""
TTL_SECONDS: Final = 24 * 3600.0
"""The time to live of a block: one day. Valkey's own `maxmemory` bounds the memory."""
LINGER_SECONDS: Final = 5.0
"""The time after which a listening connection is closed if no task waits."""
_MAX_THREADS: Final = 8
"""Limits the requests at once. Each uses a thread and a connection."""
_NEWS_CHANNEL: Final = "playhead:1:news"
"""The channel with the names of blocks that were stored, or whose claim was released. A cluster forwards its
messages to all nodes."""
_HEADER: Final = struct.Struct("<4sI")
_MAGIC: Final = b"pb1:"
_STORE_SCRIPT: Final = """
redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
redis.pcall('publish', ARGV[3], KEYS[1])
"""
_RELEASE_SCRIPT: Final = """
if redis.call('get', KEYS[1]) == ARGV[1] then
    redis.call('del', KEYS[1])
    redis.pcall('publish', ARGV[2], ARGV[3])
end
"""
"""Deletes a claim only if it still belongs to this owner: after its expiry, another owner may have claimed
the block. In both scripts, `pcall` ignores the error of a user who is not allowed to publish."""

_Command = tuple[str | bytes | int, ...]


class ValkeyCache:
    """A page cache at a `valkey://HOST:PORT/DB` URL (`valkeys://` for TLS, `unix://PATH`).

    For a server that belongs to a cluster, the cache uses the whole cluster. `valkey://HOST:PORT,HOST:PORT`
    names several servers, and the first that answers reports the others.

    Every client that can write to this Valkey can replace your audio: share it only among machines that trust
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
        """Make the cache without connecting. When Valkey is unusable, the cache calls `on_trouble` once, in
        the trio thread, with a message.

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
        self._shown_url = redacted_url(url)
        self._client: Any = None
        """The only server, or the cluster; None until the first request."""
        self._connecting = threading.Lock()
        self._cluster_type: Any = valkey.ValkeyCluster
        self._errors = (valkey.ValkeyError, OSError)
        self._timeout_error = valkey.TimeoutError
        self._redirections = (AskError, TryAgainError)  # MovedError is an AskError
        self._ttl_seconds = ttl_seconds
        self._on_trouble = on_trouble
        self._threads = trio.CapacityLimiter(_MAX_THREADS)
        self._news = _News(self._errors)
        self._unusable_until: dict[str, float] = {}
        """Each unusable node gets no request until this time. A single server has the name "", and so has a
        cluster before the first connection."""
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
        return [_unpack(key, block, value) for block, value in zip(blocks, values, strict=True)]

    async def put(self, key: str, block: int, data: bytes, *, ttl_seconds: float | None = None) -> None:
        """See `PageCache.put`."""
        seconds = self._ttl_seconds if ttl_seconds is None else min(ttl_seconds, self._ttl_seconds)
        lives_ms = int(1000 * seconds)
        if lives_ms <= 0:
            return
        name = _name(key, block)
        commands: list[_Command] = [
            ("EVAL", _STORE_SCRIPT, 1, name, _pack(key, block, data), lives_ms, _NEWS_CHANNEL)
        ]
        if len(data) < BLOCK_BYTES:
            size = _pack(key, "size", b"%d" % (block * BLOCK_BYTES + len(data)))
            commands.append(("SET", _name(key, "size"), size, "PX", lives_ms))
        await self._ask(key, commands)

    async def size(self, key: str) -> int | None:
        """See `PageCache.size`."""
        (value,) = await self._ask(key, [("GET", _name(key, "size"))]) or [None]
        digits = _unpack(key, "size", value)
        size = int(digits) if digits is not None and digits.isdigit() else None
        if size is None or await self.get(key, size // BLOCK_BYTES) is None:
            return None
        return size

    async def claim(self, key: str, first: int, count: int, owner: str) -> int:
        """See `ClaimingCache.claim`. While Valkey is unusable, it returns `count`: every process may read."""
        blocks = range(first, first + count)
        lives_ms = int(1000 * CLAIM_SECONDS)
        answers = await self._ask(
            key, [("SET", _claim_name(key, block), owner, "NX", "PX", lives_ms) for block in blocks]
        )
        if answers is None:
            return count
        claimed = [block for block, answer in zip(blocks, answers, strict=True) if answer]
        end = next((block for block in blocks if block not in claimed), first + count)
        past_end = [block for block in claimed if block > end]
        if past_end:  # the owner reads only up to the first block of another owner
            await self.release(key, past_end, owner)
        return end - first

    async def release(self, key: str, blocks: list[int], owner: str) -> None:
        """See `ClaimingCache.release`."""
        await self._ask(
            key,
            [
                ("EVAL", _RELEASE_SCRIPT, 1, _claim_name(key, n), owner, _NEWS_CHANNEL, _name(key, n))
                for n in blocks
            ],
        )

    async def wait(self, key: str, block: int, *, seconds: float) -> None:
        """See `ClaimingCache.wait`. Without a connection to listen on, it waits for all of `seconds`."""
        name = _name(key, block)
        with trio.move_on_after(seconds), self._news.watch(name, self._subscribe) as changed:
            # News from before the subscription is lost, so look once.
            state = await self._ask(key, [("EXISTS", name), ("EXISTS", _claim_name(key, block))])
            if state == [0, 1]:  # not stored, but claimed
                await changed.wait()

    def close(self) -> None:
        """Close the connections. The cache can be used again."""
        with self._connecting:
            if self._client is not None:
                self._client.close()
            self._client = None

    # --- requests --------------------------------------------------------------------------------------

    async def _ask(self, key: str, commands: list[_Command]) -> list[Any] | None:
        """Run `commands` on keys of one resource in one round trip. Returns None while Valkey is unusable."""
        node = self._node_of(key)
        unusable_until = self._unusable_until.get(node)
        retried_node = None
        if unusable_until is not None:
            now = time.monotonic()
            if now < unusable_until:
                await trio.lowlevel.checkpoint()
                return None
            retried_node = node
            self._unusable_until[node] = now + RETRY_SECONDS  # other requests do not wait for this one

        def run() -> list[Any] | None:
            return self._run_with_retry(key, commands, retried_node=retried_node)

        with trio.move_on_after(SLOW_SECONDS):
            try:
                return await trio.to_thread.run_sync(run, limiter=self._threads, abandon_on_cancel=True)
            except self._errors as error:
                self._report(str(error))
                return None
        self._mark_unusable(key)
        self._report(f"no answer within {SLOW_SECONDS:g} s")
        return None

    def _mark_unusable(self, key: str) -> None:
        self._unusable_until[self._node_of(key)] = time.monotonic() + RETRY_SECONDS

    def _report(self, why: str) -> None:
        is_first, self.trouble = self.trouble is None, why
        if is_first and self._on_trouble is not None:
            self._on_trouble(f"the cache {self._shown_url} is unusable ({why}): reading from the server")

    # --- in a worker thread ----------------------------------------------------------------------------

    def _run_with_retry(
        self, key: str, commands: list[_Command], *, retried_node: str | None
    ) -> list[Any] | None:
        """See `_run`. After an error it tries again if that may help; otherwise it raises the error."""
        for attempt in range(1, TRIES + 1):
            try:
                return self._run(key, commands, retried_node=retried_node)
            except self._errors as error:
                if attempt == TRIES or not self._may_try_again(key, error):
                    self._mark_unusable(key)
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _run(self, key: str, commands: list[_Command], *, retried_node: str | None) -> list[Any] | None:
        """Run `commands`, and return their answers. None if another request has found the node unusable
        meanwhile, unless it is `retried_node`, the unusable node that this request may use."""
        with self._connecting:
            if "" in self._unusable_until and retried_node != "":
                return None
            if self._client is None:
                self._client = self._connect()
            client = self._client
        node = self._node_of(key)
        if node in self._unusable_until and retried_node != node:
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
                answers[index] = self._follow_redirection(client, commands[index])
            elif isinstance(answer, Exception) and not str(answer).startswith("WRONGTYPE"):
                raise answer
        for name in ("", node):
            self._unusable_until.pop(name, None)
        return answers

    def _follow_redirection(self, client: Any, command: _Command) -> Any:
        """Run a command whose slot has moved. The library follows the slot, and updates its table."""
        with self._connecting:
            try:
                return client.execute_command(*command)
            except AttributeError as error:  # the library knows only nodes that had slots
                raise ConnectionError("a slot moves to a node that the cluster does not list yet") from error

    def _connect(self) -> Any:
        """Return the first server that answers, or the cluster that it belongs to."""
        from valkey.exceptions import ResponseError

        errors: list[Exception] = []
        for url, server in self._servers.items():
            try:
                server.cluster("info")
            except ResponseError:
                return server  # it has no cluster mode
            except self._errors as error:
                errors.append(error)
            else:
                # The library's first attempt may fail, because it asks the first node of its list for its
                # commands.
                return self._cluster_type.from_url(
                    url, cluster_error_retry_attempts=1, reinitialize_steps=1, **_options()
                )
        raise errors[-1]

    def _node_of(self, key: str) -> str:
        """Return the name of the cluster's node for `key`; empty for one server, or before a connection."""
        client = self._client
        if not isinstance(client, self._cluster_type):
            return ""
        try:
            return str(client.get_node_from_key(_name(key, 0)).name)
        except self._errors:
            return "no node"

    def _may_try_again(self, key: str, error: Exception) -> bool:
        """Return True after a timeout, and if a cluster has another node for `key` by now."""
        failed_node = self._node_of(key)
        with self._connecting:
            # Another thread may have updated the table of nodes already.
            if failed_node and failed_node == self._node_of(key):
                self._update_nodes(failed_node)
        return isinstance(error, self._timeout_error) or failed_node != self._node_of(key)

    def _update_nodes(self, failed_node: str) -> None:
        """Ask a cluster's other nodes which node has which slot."""
        manager = self._client.nodes_manager
        nodes = sorted(manager.startup_nodes.items(), key=lambda item: item[0] == failed_node)
        manager.startup_nodes = dict(nodes)  # the failed one is last
        try:
            manager.initialize()
        except self._errors:
            self._client = None  # no node answers; begin again with the servers of the URL

    def _subscribe(self) -> Any:
        """Return a connection that can subscribe to the news. In a cluster, any node has them."""
        client = self._client
        if isinstance(client, self._cluster_type):
            return client.pubsub(node=client.get_random_node())
        return (client or next(iter(self._servers.values()))).pubsub()


class _News:
    """Wakes tasks when other processes store or release the blocks that they wait for.

    While tasks wait, one connection listens in a thread. It wakes all waiters once it has subscribed, because
    their blocks may have been stored before. If the connection breaks, it wakes no waiter, and the next
    waiter opens another.
    """

    def __init__(self, errors: tuple[type[Exception], ...]) -> None:
        self._errors = errors
        self._lock = threading.Lock()
        self._waiters: dict[object, tuple[str, trio.lowlevel.TrioToken, trio.Event]] = {}
        self._is_listening = False

    @contextmanager
    def watch(self, name: str, subscribe: Callable[[], Any]) -> Iterator[trio.Event]:
        """Yield an event that is set by news of the block `name`. `subscribe` returns a connection."""
        waiter, event = object(), trio.Event()
        with self._lock:
            self._waiters[waiter] = name, trio.lowlevel.current_trio_token(), event
            must_listen, self._is_listening = not self._is_listening, True
        if must_listen:
            threading.Thread(
                target=self._listen, args=(subscribe,), name="playhead cache news", daemon=True
            ).start()
        try:
            yield event
        finally:
            with self._lock:
                del self._waiters[waiter]

    def _listen(self, subscribe: Callable[[], Any]) -> None:
        is_idle = False
        try:
            # A ValueError: `ValkeyCache.close` has closed the socket under this thread.
            with suppress(*self._errors, ValueError), subscribe() as channel:
                channel.subscribe(_NEWS_CHANNEL)
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
        """Return True if no task waits. The next waiter then starts another thread."""
        with self._lock:
            self._is_listening = bool(self._waiters)
            return not self._is_listening

    def _wake(self, reported: str | None) -> None:
        with self._lock:
            waiters = list(self._waiters.values())
        for name, token, event in waiters:
            if reported in (None, name):
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(event.set)


def _single_urls(url: str) -> list[str]:
    """Split a URL that may name several servers, separated by commas, into one URL per server."""
    parts = re.fullmatch(r"(\w+://(?:[^/?]*@)?)([^/?@]*)(.*)", url, re.DOTALL)
    if parts is None or url.startswith("unix:"):
        return [url]
    before, servers, after = parts.groups()
    return [f"{before}{server}{after}" for server in servers.split(",")]


def _options() -> dict[str, Any]:
    """Return the options of a connection. The library must not try again, because `ValkeyCache` does."""
    from valkey.backoff import NoBackoff
    from valkey.retry import Retry

    timeouts = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), TIMEOUT_SECONDS)
    return {**timeouts, "retry": Retry(NoBackoff(), 0)}


def _name(key: str, part: int | str) -> str:
    """Return the name in Valkey of a block, or of another part of a resource. The braces are its hash tag."""
    return f"playhead:1:{{{hashlib.sha256(key.encode()).hexdigest()}}}:{part}"


def _claim_name(key: str, block: int) -> str:
    return _name(key, f"{block}:claim")


def _pack(key: str, part: int | str, data: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, zlib.crc32(data, _checksum_seed(key, part))) + data


def _unpack(key: str, part: int | str, value: bytes | None) -> bytes | None:
    """Return the bytes in `value`; None if it is missing or not what was put."""
    if not isinstance(value, bytes) or not value.startswith(_MAGIC) or len(value) < _HEADER.size:
        return None
    data = value[_HEADER.size :]
    _, checksum = _HEADER.unpack_from(value)
    is_whole = len(data) <= BLOCK_BYTES and zlib.crc32(data, _checksum_seed(key, part)) == checksum
    return data if is_whole else None


def _checksum_seed(key: str, part: int | str) -> int:
    return zlib.crc32(f"{key}:{part}".encode())
