"""A source that still grows: the bytes of an async iterator, for any number of readers at once.

The iterator runs in a task of its own, from the first read on, whether anyone reads or not: a speech engine
does not wait for a slow listener. Of its bytes the newest `kept_bytes` are kept, and all of them for
`ENDED_SECONDS` after its end. A reader that comes too late for a byte gets an error with the earliest offset
there is.

It runs under asyncio and trio, as servers of the SDK and of FastMCP do.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

import anyio
import anyio.abc
import mcp_types as types
from mcp.shared.exceptions import MCPError

from playhead.cache import EARLIEST_META, LIVE_META
from playhead.limits import MIB
from playhead.servers.byte_sources import ResourceBytes

KEPT_BYTES: Final = 64 * MIB
"""The default limit of the bytes of one item: 25 minutes of PCM speech at 22 kHz."""
ENDED_SECONDS: Final = 600.0
"""The time for which an item that has ended can still be read."""
MOST_ITEMS: Final = 32
"""Limits the items of one server. The oldest one that has ended makes room."""
MOST_SUBSCRIBERS: Final = 256
"""Limits the subscribers of one item, each of which costs a task."""
NOTIFY_SECONDS: Final = 0.05
"""The shortest time between two notifications of one subscriber: an engine may write every millisecond."""
LAST_SECONDS: Final = 5.0
"""Limits the notifications of the end, for subscribers that do not read."""

Growing = AsyncIterator[bytes] | Callable[..., AsyncIterator[bytes]]
"""An iterator of bytes, or a callable that returns one for the variables of a URI template."""


@dataclass(slots=True, eq=False, kw_only=True)
class GrowingItem:
    """The bytes of one iterator."""

    iterator: AsyncIterator[bytes]
    kept_bytes: int
    error: Exception | None = None
    """The error that the iterator raised."""
    is_over: bool = False
    earliest: int = 0
    """The first byte that is kept."""
    _data: bytearray = field(default_factory=bytearray)
    _grown: anyio.Event = field(default_factory=anyio.Event)
    """Set and replaced at each growth, and at the end."""
    _subscribers: dict[object, tuple[Callable[[], Any], anyio.CancelScope]] = field(default_factory=dict)
    """Each subscriber's function that notifies it, and the scope of its task, by the subscriber's key."""
    _tasks: anyio.abc.TaskGroup | None = None
    """The tasks that notify subscribers; None unless the item grows."""

    @property
    def size_bytes(self) -> int:
        """The present size."""
        return self.earliest + len(self._data)

    def read(self, start: int, end: int) -> ResourceBytes:
        """Return the bytes `[start, end)`, as far as they exist.

        Raises `MCPError` with the earliest offset for bytes that were dropped, and at the end of an item
        whose iterator has failed.
        """
        size_bytes, is_live = self.size_bytes, not self.is_over
        if start < self.earliest:
            raise MCPError(
                types.INVALID_PARAMS,
                f"the bytes before {self.earliest} were dropped; read from there",
                {EARLIEST_META: self.earliest},
            )
        if start >= size_bytes and self.error is not None:
            raise MCPError(
                types.INTERNAL_ERROR,
                f"its source failed after {size_bytes} bytes ({type(self.error).__name__})",
                {LIVE_META: False},
            )
        data = bytes(memoryview(self._data)[max(0, start - self.earliest) : max(0, end - self.earliest)])
        # A failed source never has an end.
        return ResourceBytes(data=data, total_bytes=size_bytes, is_live=is_live or self.error is not None)

    async def wait_over(self) -> None:
        """Wait until the iterator has ended or failed."""
        while not self.is_over:
            await self._grown.wait()

    async def run(self) -> None:
        """Take everything from the iterator. Raises nothing of it."""
        try:
            async with anyio.create_task_group() as tasks, AsyncExitStack() as stack:
                self._tasks = tasks
                for key in self._subscribers:
                    tasks.start_soon(self._notify, key)
                if hasattr(self.iterator, "aclose"):
                    await stack.enter_async_context(aclosing(cast("Any", self.iterator)))
                try:
                    async for chunk in self.iterator:
                        self._append(chunk)
                except Exception as error:  # noqa: BLE001 - the readers get it
                    self.error = error
                self._end()
                tasks.cancel_scope.deadline = anyio.current_time() + LAST_SECONDS
        finally:
            self._end()

    def _append(self, chunk: object) -> None:
        if not isinstance(chunk, bytes | bytearray | memoryview):
            raise TypeError(f"expected bytes from the iterator, got {type(chunk).__name__}")
        self._data += chunk
        if (surplus := len(self._data) - self.kept_bytes) > 0:
            del self._data[:surplus]
            self.earliest += surplus
        self._announce()

    def _end(self) -> None:
        self.is_over = True
        self._announce()

    def _announce(self) -> None:
        self._grown.set()
        self._grown = anyio.Event()

    # --- subscriptions -----------------------------------------------------------------------------------

    def subscribe(self, key: object, notify: Callable[[], Any]) -> None:
        """Await `notify` after each growth, until `unsubscribe(key)` or the end. Does nothing after the end.

        Raises `MCPError` for more than `MOST_SUBSCRIBERS`.
        """
        if self.is_over or key in self._subscribers:
            return
        if len(self._subscribers) >= MOST_SUBSCRIBERS:
            raise MCPError(types.INTERNAL_ERROR, f"expected at most {MOST_SUBSCRIBERS} subscriptions")
        self._subscribers[key] = notify, anyio.CancelScope()
        if self._tasks is not None:
            self._tasks.start_soon(self._notify, key)

    def unsubscribe(self, key: object) -> None:
        """End the subscription `key`, if there is one."""
        if key in self._subscribers:
            self._subscribers[key][1].cancel()

    async def _notify(self, key: object) -> None:
        notify, scope = self._subscribers[key]
        try:
            with scope:
                seen_bytes = -1
                while True:
                    if seen_bytes == self.size_bytes and not self.is_over:
                        await self._grown.wait()
                    seen_bytes, is_last = self.size_bytes, self.is_over
                    await notify()
                    if is_last:
                        return
                    await anyio.sleep(NOTIFY_SECONDS)
        except Exception:  # noqa: BLE001 - whatever a connection that has ended raises
            return
        finally:
            del self._subscribers[key]


class GrowingItems:
    """The growing items of one server."""

    def __init__(self) -> None:
        self.by_uri: dict[str, GrowingItem] = {}
        """The oldest first."""
        self._tasks: set[asyncio.Task[None]] = set()

    def make_room(self) -> None:
        """Drop the oldest item that has ended if there are `MOST_ITEMS`. Raises `MCPError` if all grow."""
        if len(self.by_uri) < MOST_ITEMS:
            return
        ended = next((uri for uri, item in self.by_uri.items() if item.is_over), None)
        if ended is None:
            raise MCPError(
                types.INTERNAL_ERROR, f"{MOST_ITEMS} items are being made at once; wait until one ends"
            )
        del self.by_uri[ended]

    def start(self, uri: str, item: GrowingItem, *, on_dropped: Callable[[], None]) -> None:
        """Run `item` in a task that lives as long as the program's loop: no request, and no reader, owns it.

        `on_dropped` is called when it can no longer be read.
        """
        run = partial(self._run, uri, item, on_dropped)
        if (trio := sys.modules.get("trio")) is not None and trio.lowlevel.in_trio_run():
            trio.lowlevel.spawn_system_task(run)
        else:
            loop = asyncio.get_running_loop()
            task = loop.create_task(run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self.by_uri[uri] = item

    async def _run(self, uri: str, item: GrowingItem, on_dropped: Callable[[], None]) -> None:
        await item.run()
        await anyio.sleep(ENDED_SECONDS)
        if self.by_uri.get(uri) is item:
            del self.by_uri[uri]
        on_dropped()


class GrowingSource:
    """A `ByteSource` of growing items, one for each set of values of the URI's variables."""

    def __init__(
        self, growing: Growing, *, kept_bytes: int, items: GrowingItems, announce: Callable[[str], Any]
    ) -> None:
        """`announce` is awaited with the URI of an item that has grown."""
        self._growing = growing
        self._kept_bytes = kept_bytes
        self._items = items
        self._announce = announce
        self._is_started = False
        self.expand: Callable[..., str] = lambda **values: ""
        """Returns the URI for values of the variables."""
        self.on_dropped: Callable[[], None] = lambda: None
        """Called when the item of an iterator can no longer be read."""

    async def read(self, start: int, end: int, values: Mapping[str, str]) -> ResourceBytes:
        """Read as far as the item exists, which the first read starts. Raises `MCPError` as `item` and
        `GrowingItem.read`."""
        return self.item(values).read(start, end)

    async def sha256(self, piece: ResourceBytes) -> bytes | None:
        return None

    def start_now(self) -> None:
        """Start the item of an iterator, if a loop runs; otherwise the first read does."""
        if not callable(self._growing):
            with suppress(RuntimeError):  # no loop runs yet
                self.item({})

    def item(self, values: Mapping[str, str]) -> GrowingItem:
        """Return the item of `values`, which is started if there is none.

        Raises `MCPError` as `GrowingItems.make_room`, and for an iterator whose item was dropped after its
        end, and what the callable raises.
        """
        uri = self.expand(**values)
        if (item := self._items.by_uri.get(uri)) is not None:
            return item
        self._items.make_room()
        growing, on_dropped = self._growing, lambda: None
        if callable(growing):
            iterator = growing(**values)
        elif self._is_started:
            raise MCPError(
                types.INVALID_PARAMS,
                "this server dropped the resource after its end; request a new one",
                {"uri": uri},
            )
        else:
            iterator, on_dropped = growing, self.on_dropped
        item = GrowingItem(iterator=iterator, kept_bytes=self._kept_bytes)
        self._items.start(uri, item, on_dropped=on_dropped)  # raises `RuntimeError` without a loop
        self._is_started = True
        item.subscribe(self, partial(self._announce, uri))
        return item
