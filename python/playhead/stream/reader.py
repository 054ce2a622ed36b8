"""`open_stream`: a resource as bytes that can be read while they are still arriving.

    async with open_stream(read_range) as stream:
        async for chunk in stream: ...              # a trio task
        stream.readinto(buffer)                     # a thread
        await stream.read_all(); await stream.save(path)

One of these at a time: a stream has one reader.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import trio

from playhead.errors import BusyError, ClosedError, LimitError, UsageError
from playhead.limits import DEFAULT_LIMITS, KIB, Limits
from playhead.stream.blocking import StreamFile
from playhead.stream.driver import CLOSED, Driver
from playhead.stream.options import DEFAULT_OPTIONS, StreamOptions
from playhead.stream.page import ReadRange
from playhead.stream.saving import whole_file
from playhead.stream.statistics import StreamStatistics

if TYPE_CHECKING:
    from typing_extensions import Buffer

CHUNK_BYTES = 64 * KIB
SAVE_BYTES = 256 * KIB
"""One hop to a thread for each write: 256 KiB make it cheap, and are still far below the ring."""


class RangeStream(trio.abc.ReceiveStream):
    """A resource's bytes, in order, each once. Made by `open_stream`.

    A broken stream is never an end of file: readers get the error, after the good bytes before it. Errors
    that any reading method raises: `StreamBrokenError` when a page could not be had in all its tries;
    `LimitError`, `Base64Error`, `TextContentError`, `ContradictionError` or `RangeNotHonouredError` for what
    the server sent; its own `ServerError`; `ClosedError` after `open_stream`'s block was left.
    """

    def __init__(self, driver: Driver, *, limits: Limits) -> None:
        self._driver = driver
        self._pipe = driver.pipe
        self._limits = limits
        self._token = trio.lowlevel.current_trio_token()
        self._clock = trio.lowlevel.current_clock()
        self._receiving = False

    # --- a trio task -----------------------------------------------------------------------------------

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What is there, at least one byte and at most `max_bytes` (64 KiB); `b""` is the end.

        Raises `BusyError` while another task or thread reads. Cancelled: no byte is lost.
        """
        if max_bytes is not None and max_bytes < 1:
            raise UsageError(f"receive_some: expected max_bytes of 1 or more, got {max_bytes}")
        ready = self._pipe.tail - self._pipe.head
        buffer = bytearray(min(max_bytes or CHUNK_BYTES, max(ready, 4 * KIB)))
        count = await self._receive_into(buffer)
        del buffer[count:]
        return bytes(buffer)

    async def _receive_into(self, buffer: bytearray) -> int:
        self._driver.require_open()
        if self._receiving:
            raise BusyError("stream: expected one reader, got a second task; let one task read")
        self._receiving = True
        try:
            await trio.lowlevel.checkpoint()
            while (count := self._pipe.readinto_nowait(buffer)) is None:
                await self._driver.inlet.wait_bytes()
            return count
        finally:
            self._receiving = False

    async def read_all(self, max_bytes: int | None = None) -> bytes:
        """The rest of the stream. More than `max_bytes` (`Limits.block_bytes`, 48 MiB) is a `LimitError`."""
        allowed = self._limits.block_bytes if max_bytes is None else max_bytes
        whole = bytearray()
        async for chunk in self:
            whole += chunk
            if len(whole) > allowed:
                raise LimitError(
                    f"read_all: expected at most {allowed} bytes, got more; pass max_bytes, or save it",
                    limit="max_bytes",
                    allowed=allowed,
                    got=len(whole),
                )
        return bytes(whole)

    async def save(
        self, path: str | Path, *, tap: Callable[[memoryview], object] | None = None
    ) -> StreamStatistics:
        """Write the rest of the stream to `path`, which appears only when it is whole.

        `tap` sees each piece in turn, in a worker thread (a hash's `update`, say). Raises `OSError` where
        the folder can't be written, and what reading raises. Failed or cancelled: no file is left behind.
        """
        buffer = bytearray(SAVE_BYTES)
        async with whole_file(Path(path)) as file:

            def write(view: memoryview) -> None:
                if tap is not None:
                    tap(view)
                while view:
                    view = view[file.write(view) :]

            with memoryview(buffer) as window:
                while count := await self._receive_into(buffer):
                    await trio.to_thread.run_sync(write, window[:count])
        return self.statistics()

    async def seek(self, offset: int) -> None:
        """Go on at `offset`, in bytes: free within the ring, else by new reads; stale ones are cancelled.

        An offset past the end reads as the end. Raises the stream's own error when it is broken.
        """
        _check_offset(offset)
        await trio.lowlevel.checkpoint()
        self._driver.seek(offset)

    async def aclose(self) -> None:
        """Stop every read in flight; readers get `ClosedError`. Leaving `open_stream`'s block does this."""
        self._driver.stop()
        self._driver.inlet.abort(ClosedError(CLOSED))
        await trio.lowlevel.checkpoint()

    # --- a thread --------------------------------------------------------------------------------------

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        """Block a thread until bytes are there, without the GIL, and give what is; 0 is the end.

        Raises `TimeoutError` after `timeout` seconds without a byte, `BusyError` for a second reader, and
        `UsageError` in a trio task, whose loop it would stop, and with it the bytes that it waits for.
        """
        if trio.lowlevel.in_trio_run():
            raise UsageError(
                "readinto: expected a thread of its own, got trio's, which it would block for ever; use "
                "receive_some or read_all, or call it in trio.to_thread.run_sync"
            )
        self._driver.require_open()
        return self._pipe.readinto(buffer, timeout)

    def seek_from_thread(self, offset: int) -> None:
        """`seek`, from a thread that is not trio's."""
        _check_offset(offset)
        trio.from_thread.run_sync(self._driver.seek, offset, trio_token=self._token)

    def file(self, *, timeout: float | None = None) -> io.BufferedReader:
        """The stream as a seekable binary file for a thread: what `open(path, "rb")` gives for a local one.

        `read(n)` waits for all `n` bytes or the end, as parsers of files expect; `read1` gives what is there.
        Each wait lasts at most `timeout` seconds (default: no limit), then `TimeoutError`; `read` loses what
        it had gathered. Otherwise it raises what `readinto` does. Closing it leaves the stream open.
        """
        raw = StreamFile(self, size_bytes=self._driver.total_bytes, timeout=timeout)
        return io.BufferedReader(raw, CHUNK_BYTES)

    # --- from anywhere ---------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Offset of the next byte to be read."""
        return self._pipe.head

    @property
    def buffered_bytes(self) -> int:
        """Bytes that can be read without waiting."""
        return self._pipe.tail - self._pipe.head

    @property
    def size_bytes(self) -> int | None:
        """The proved end, else the announced size; a hint until `statistics().ended_by` is set."""
        return self._driver.total_bytes()

    def can_play(self, needed_bytes: int) -> bool:
        """Whether playing may start, or resume, with what is buffered; a decoder needs `needed_bytes`."""
        return self._driver.can_play(needed_bytes, self._clock.current_time())

    def statistics(self) -> StreamStatistics:
        """A snapshot."""
        return self._driver.statistics()


def _check_offset(offset: int) -> None:
    if offset < 0:
        raise UsageError(f"seek: expected an offset of 0 or more, got {offset}")


class _Apart(AbstractContextManager["_Apart"]):
    """Carries an error of the caller's block past the nursery, so that it is not wrapped in a group."""

    def __init__(self) -> None:
        self._error: BaseException | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or isinstance(error, (trio.Cancelled, GeneratorExit)):
            return False
        self._error = error
        return True

    def drop(self) -> None:
        self._error = None

    def raise_again(self) -> None:
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # no cycle through the traceback


@asynccontextmanager
async def open_stream(
    read_range: ReadRange,
    *,
    options: StreamOptions = DEFAULT_OPTIONS,
    limits: Limits = DEFAULT_LIMITS,
    size_bytes: int | None = None,
    strategy_name: str = "",
    server_name: str = "the server",
) -> AsyncIterator[RangeStream]:
    """Read a resource by `read_range`, several ranges at once, from now until the block is left.

    `size_bytes` is the announced size, if there is one; `options.size_bytes` wins. `strategy_name` goes into
    the statistics, and `"whole"` means that every read gives the whole resource. `server_name` is for error
    messages. The pages in flight and the ring (`options.capacity_bytes`) bound the memory.

    Nothing is raised here for the server's faults: the stream's readers get them. Leaving the block, or
    cancelling it, cancels every read in flight, and a blocked reader gets `ClosedError`. What
    `read_range` raises that is no `PlayheadError` is a bug in it, and comes out in an exception group.
    """
    driver = Driver(
        read_range,
        options=options,
        limits=limits,
        size_bytes=size_bytes if options.size_bytes is None else options.size_bytes,
        strategy_name=strategy_name,
        server_name=server_name,
    )
    stream = RangeStream(driver, limits=limits)
    apart = _Apart()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(driver.run)
            try:
                with apart:
                    yield stream
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup:
        apart.drop()  # `read_range` raised what it must not: the block's own error came of that
        raise
    finally:
        apart.raise_again()
