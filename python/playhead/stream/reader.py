"""`open_stream`: a resource as a byte stream that is read while it arrives.

    async with open_stream(read_range) as stream:
        async for chunk in stream: ...              # a trio task
        stream.readinto(buffer)                     # a thread
        await stream.read_all(); await stream.save(path)

A stream has one reader at a time: a task, a thread or a file parser. The methods for all three are in this
file.
"""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import trio

from playhead.concurrency import iter_leaves
from playhead.errors import BusyError, ClosedError, LimitError, UsageError
from playhead.limits import DEFAULT_LIMITS, KIB, Limits
from playhead.stream.answer import ReadRange
from playhead.stream.digest_check import DigestCheck
from playhead.stream.driver import CLOSED, NO_SEEK, Driver
from playhead.stream.live_source import LiveSource
from playhead.stream.negotiation import LateForm, RangeForm
from playhead.stream.options import (
    DEFAULT_OPTIONS,
    ReadCounts,
    StreamEvent,
    StreamOptions,
    StreamStatistics,
    StreamTitle,
)
from playhead.stream.saving import whole_file
from playhead.stream.source import Demand, Reader

if TYPE_CHECKING:
    from typing_extensions import Buffer

CHUNK_BYTES = 256 * KIB
"""The largest chunk. Each costs a turn of trio's loop: with 64 KiB these cost as much as the transport."""
FILE_BYTES = 64 * KIB
SAVE_BYTES = 256 * KIB
"""The size of a write, which is one call in a worker thread: large enough to be cheap, and far below the
ring."""


class RangeStream(trio.abc.ReceiveStream, Reader):
    """A resource's bytes, in order, each once. Made by `open_stream`.

    A broken stream never looks like the end: readers get the error after the good bytes before it. Every
    reading method raises `StreamBrokenError` when `StreamOptions.patience_seconds` have passed; `LimitError`,
    `Base64Error`, `TextContentError`, `ContradictionError`, `ResourceChangedError` or `RangeNotHonouredError`
    for a faulty answer; `ServerError` for an error answer; `DigestError` at the end if the bytes do not have
    the announced SHA-256; and `ClosedError` after `open_stream`'s block was left.
    """

    def __init__(
        self, driver: Driver, *, limits: Limits, sha256: Callable[[], str | None], counts: ReadCounts
    ) -> None:
        self._driver = driver
        self._counts = counts
        self._digest = DigestCheck(sha256)
        self._pipe = driver.pipe
        self._limits = limits
        self._token = trio.lowlevel.current_trio_token()
        self._clock = trio.lowlevel.current_clock()
        self._receiving = False

    # --- a trio task -----------------------------------------------------------------------------------

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return the available bytes, at least one and at most `max_bytes` (256 KiB); `b""` is the end.

        Raises `BusyError` while another task or thread reads. Cancelled: no byte is lost.
        """
        if max_bytes is not None and max_bytes < 1:
            raise UsageError(f"receive_some: expected max_bytes of 1 or more, got {max_bytes}")
        buffer = io.BytesIO()  # gives up its `bytes` without a copy

        def read() -> int | None:
            nonlocal buffer
            ready = self._pipe.tail - self._pipe.head
            buffer = io.BytesIO(bytes(min(max_bytes or CHUNK_BYTES, max(ready, 1))))
            with buffer.getbuffer() as view:
                return self._pipe.readinto_nowait(view)

        offset, count = await self._receive(read)
        buffer.truncate(count)
        chunk = buffer.getvalue()
        self._digest.read(offset, chunk)
        return chunk

    async def _receive(self, read: Callable[[], int | None]) -> tuple[int, int]:
        """Call `read` until it is not None. Return the offset and the number of the bytes read."""
        self._driver.require_open()
        if self._receiving:
            raise BusyError("stream: expected one reader, got a second task; let one task read")
        self._receiving = True
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
            count = read()
            if count is not None:
                await trio.lowlevel.cancel_shielded_checkpoint()  # the bytes are out of the ring
            while count is None:
                self._driver.set_reader_waits(True)
                try:
                    await self._driver.writer.arrived.wait()
                finally:
                    self._driver.set_reader_waits(False)
                count = read()
            if (live := self._driver.live) is not None:
                live.moved(self._pipe.head)  # a task reads all parts as one stream
                self._noting_titles(live, count)
            return self._pipe.head - count, count
        finally:
            self._receiving = False

    async def read_all(self, max_bytes: int | None = None) -> bytes:
        """Return the rest of the stream. More than `max_bytes` (`Limits.block_bytes`, 48 MiB) raise
        `LimitError`."""
        allowed = self._limits.block_bytes if max_bytes is None else max_bytes
        whole = bytearray()
        async for chunk in self:
            whole += chunk
            if len(whole) > allowed:
                raise LimitError(
                    f"read_all: expected at most {allowed} bytes, got more; pass max_bytes, or use save()",
                    limit="max_bytes",
                    allowed=allowed,
                    got=len(whole),
                )
        return bytes(whole)

    async def save(
        self, path: str | Path, *, tap: Callable[[memoryview], object] | None = None
    ) -> StreamStatistics:
        """Write the rest of the stream to `path`, which appears only when complete.

        `tap` is called with each piece in a worker thread (a hash's `update`, for example). Raises `OSError`
        if the directory cannot be written, and the errors of reading. Failed or cancelled: no file is left
        behind.
        """
        buffer = bytearray(SAVE_BYTES)
        async with whole_file(Path(path)) as file:

            def write(offset: int, view: memoryview) -> None:
                self._digest.read(offset, view)
                if tap is not None:
                    tap(view)
                while view:
                    view = view[file.write(view) :]

            with memoryview(buffer) as window:
                while True:
                    offset, count = await self._receive(lambda: self._pipe.readinto_nowait(buffer))
                    if not count:
                        break
                    await trio.to_thread.run_sync(write, offset, window[:count])
            self._digest.read(offset, b"")
        return self.statistics()

    async def seek(self, offset: int) -> None:
        """Continue at `offset`, in bytes. Within the ring this is free; elsewhere new reads replace the old.

        An offset past the end reads as the end, and one past the present end of a live source as that one.
        Raises the stream's own error if it is broken, and `UsageError` if it is not `seekable`.
        """
        _check_offset(offset)
        await trio.lowlevel.checkpoint()
        self._driver.seek(offset)

    async def aclose(self) -> None:
        """Stop every read in flight; readers get `ClosedError`. Leaving `open_stream`'s block does it too."""
        self._driver.stop()
        self._driver.writer.abort(ClosedError(CLOSED))
        await trio.lowlevel.checkpoint()

    # --- a thread --------------------------------------------------------------------------------------

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        """Block a thread, without the GIL, until bytes are available, and read them; 0 is the end.

        Raises `TimeoutError` after `timeout` seconds without a byte, `BusyError` for a second reader, and
        `UsageError` in a trio task, whose loop it would block.
        """
        if trio.lowlevel.in_trio_run():
            raise UsageError(
                "readinto: expected a thread of its own, got trio's, which it would block forever; use "
                "receive_some or read_all, or call it in trio.to_thread.run_sync"
            )
        self._driver.require_open()

        def read(buffer: Buffer) -> int:
            count = self._pipe.readinto_nowait(buffer)
            return self._wait_into(buffer, timeout) if count is None else count

        live = self._driver.live
        if live is not None:
            return self._noting_titles(live, live.read(buffer, read))
        count = read(buffer)
        if (live := self._driver.live) is not None:  # it has become known with the first bytes
            return self._noting_titles(live, live.read(buffer, lambda _buffer: count))
        view = memoryview(buffer).cast("B")
        if view:
            self._digest.read(self._pipe.head - count, view[:count])
        return count

    def _noting_titles(self, live: LiveSource, count: int) -> int:
        """Report the titles that begin before the position."""
        for title in live.titles():
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._driver.wait.notify, StreamTitle(title=title))
        return count

    def _wait_into(self, buffer: Buffer, timeout: float | None) -> int:
        # If trio has ended, reading the pipe raises the error.
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._driver.set_reader_waits, True)
        try:
            return self._pipe.readinto(buffer, timeout)
        finally:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._driver.set_reader_waits, False)

    def seek_from_thread(self, offset: int) -> None:
        """Do as `seek`, from a thread other than trio's."""
        _check_offset(offset)
        trio.from_thread.run_sync(self._driver.seek, offset, trio_token=self._token)

    def file(self, *, timeout: float | None = None) -> io.BufferedReader:
        """Return the stream as a seekable binary file for a thread, like `open(path, "rb")`.

        `read(n)` waits for all `n` bytes or the end, as file parsers expect; `read1` returns what is
        available. Each wait lasts at most `timeout` seconds (default: no limit), then raises `TimeoutError`,
        and `read` loses the bytes gathered so far. Otherwise both raise as `readinto`. Closing the file
        leaves the stream open.
        """
        raw = StreamFile(self, size_bytes=self._driver.total_bytes, timeout=timeout)
        return io.BufferedReader(raw, FILE_BYTES)

    # --- from anywhere ---------------------------------------------------------------------------------

    @property
    def seekable(self) -> bool:
        """False for the strategies `poll` and `cursor`, whose bytes are handed out once. A radio and HLS seek
        by time (`seek_time`)."""
        return not self.is_queue

    def can_seek(self, offset: int) -> bool:
        """Return whether a seek to `offset` is possible and reads no more than the bytes after it.

        False for the strategies `poll` and `cursor`. False for `whole` if `offset` is not in the bytes in
        hand, because the resource would be read again from its beginning.
        """
        return self._driver.can_seek(offset)

    @property
    def buffered_range(self) -> tuple[int, int]:
        return self._pipe.kept_from, self._pipe.tail

    @property
    def newest_offset(self) -> int | None:
        return self._driver.present_bytes

    def joined(self, offset: int) -> int:
        return self._driver.joined(offset)

    def interrupt(self) -> None:
        """See `Reader.interrupt`. Does nothing if the stream cannot seek, because no bytes are read again. A
        live source can at least go back."""
        is_live = self.live is not None or self._driver.present_bytes is not None
        if is_live or self._driver.can_seek(self._pipe.tail + 1):
            self._pipe.interrupt()

    @property
    def is_queue(self) -> bool:
        """True for the strategies `poll` and `cursor`."""
        return self._driver.is_queue and self._driver.live is None

    @property
    def position(self) -> int:
        """Offset of the next byte to read."""
        return self._pipe.head

    @property
    def live(self) -> LiveSource | None:
        return self._driver.live

    def seek_time(self, seconds: float) -> tuple[float, float] | None:
        """See `Reader.seek_time`."""
        return trio.from_thread.run_sync(self._driver.seek_time, seconds, trio_token=self._token)

    @property
    def buffered_bytes(self) -> int:
        """Bytes that can be read without waiting."""
        live = self._driver.live
        return self._pipe.tail - self._pipe.head + (0 if live is None else live.rest_bytes)

    @property
    def size_bytes(self) -> int | None:
        """The accepted end, else the announced size; a hint until `statistics().ended_by` is set."""
        return self._driver.total_bytes()

    def can_play(self, in_hand_bytes: int, bytes_per_second: float) -> bool:
        """Return whether playing may start, or resume, without a foreseeable stall.

        `in_hand_bytes` is the audio buffered and decoded but not played, in bytes of the stream;
        `bytes_per_second` is the rate at which the listener uses them. From any thread.
        """
        return self._driver.can_play(in_hand_bytes, bytes_per_second, self._clock.current_time())

    def set_demand(self, demand: Demand) -> None:
        """Set how urgently a player needs the next byte (default `WAITING`). Call it in the trio thread.

        The patience of the stream runs only while its reader waits and the demand is `WAITING`.
        """
        self._driver.set_demand(demand)

    @property
    def sha256(self) -> str | None:
        return self._digest.expected

    def verify(self) -> None:
        """See `Reader.verify`. Compares only if all bytes were read in order, up to the accepted end or,
        before that is known, the announced size."""
        statistics = self._driver.statistics()
        end = statistics.size_bytes if statistics.end_bytes is None else statistics.end_bytes
        if end is not None:
            self._digest.read(end, b"")

    def set_in_hand(self, in_hand_seconds: Callable[[], float]) -> None:
        self._driver.in_hand_seconds = in_hand_seconds
        if (live := self._driver.live) is not None:
            live.in_hand_seconds = in_hand_seconds

    def watch(self, on_event: Callable[[StreamEvent], None]) -> None:
        """Also call `on_event` with each event of the stream; see `StreamOptions.on_event`."""
        self._driver.wait.watchers.append(on_event)

    def statistics(self) -> StreamStatistics:
        """Return a snapshot."""
        served_bytes = self._driver.received_bytes - self._counts.cache_bytes
        reads = replace(self._counts, server_bytes=served_bytes)
        return replace(self._driver.statistics(), reads=reads)


def _check_offset(offset: int) -> None:
    if offset < 0:
        raise UsageError(f"seek: expected an offset of 0 or more, got {offset}")


class StreamFile(io.RawIOBase):
    """A raw binary file over a stream, for one thread other than trio's.

    `read` returns the available bytes, as for a pipe; `RangeStream.file` adds the buffer that reads whole
    blocks. Seeking from the end needs a known size. Closing the file leaves the stream open.
    """

    def __init__(
        self, stream: RangeStream, *, size_bytes: Callable[[], int | None], timeout: float | None
    ) -> None:
        self._stream = stream
        self._size_bytes = size_bytes
        self._timeout = timeout

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._stream.seekable

    def readinto(self, buffer: Buffer) -> int:
        """Call `RangeStream.readinto`. 0 is the end."""
        self._checkClosed()
        count = self._stream.readinto(buffer, self._timeout)
        if not count and (live := self._stream.live) is not None and live.next_part():
            return self.readinto(buffer)
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to `offset`. Raises `io.UnsupportedOperation` if the stream is not `seekable`, and for a seek
        from the end if the size is unknown."""
        self._checkClosed()
        if not self.seekable():
            raise io.UnsupportedOperation(NO_SEEK)
        if whence not in {os.SEEK_SET, os.SEEK_CUR, os.SEEK_END}:
            raise ValueError(f"seek: expected a whence of 0, 1 or 2, got {whence}")
        if whence == os.SEEK_CUR:
            offset += self.tell()
        elif whence == os.SEEK_END:
            size = self._size_bytes()
            if size is None:
                raise io.UnsupportedOperation(
                    "seek from the end: the stream's size is not known yet; read to its end first, or "
                    "open it with a size (size_bytes)"
                )
            offset += size
        if offset < 0:
            raise ValueError(f"seek: expected 0 or more, got {offset}")
        if offset != self.tell():
            self._stream.seek_from_thread(offset)
        return offset

    def tell(self) -> int:
        self._checkClosed()
        return self._stream.position


class _BlockError(AbstractContextManager["_BlockError"]):
    """Carries an error of the caller's block past the nursery, which would wrap it in a group."""

    def __init__(self) -> None:
        self._error: BaseException | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or isinstance(error, GeneratorExit):
            return False
        self._error = error
        return not isinstance(error, trio.Cancelled)

    def drop(self, group: BaseExceptionGroup[BaseException]) -> bool:
        """Forget the error in favour of `group`, unless both are cancellations: a group of these would be in
        a reference cycle with the frames of its contexts. Returns whether no error is left."""
        errors = (group,) if self._error is None else (group, self._error)
        if not all(isinstance(leaf, trio.Cancelled) for error in errors for leaf in iter_leaves(error)):
            self._error = None
        return self._error is None

    def raise_again(self) -> None:
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # no cycle through the traceback


def open_stream(
    read_range: ReadRange,
    *,
    options: StreamOptions = DEFAULT_OPTIONS,
    limits: Limits = DEFAULT_LIMITS,
    size_bytes: int | None = None,
    strategy_name: str = "",
    fallbacks: Sequence[RangeForm] = (),
    server_name: str = "the server",
    last_received: Callable[[], float] = lambda: 0.0,
) -> AbstractAsyncContextManager[RangeStream]:
    """Read a resource with `read_range`, several ranges at once, until the block is left.

    `size_bytes` is the announced size, if any; `options.size_bytes` overrides it. `strategy_name` is for the
    statistics; `"whole"` means that every read returns the whole resource. `fallbacks` are other forms of the
    same read, tried in order if the server refuses the one before. `server_name` is for error messages.
    `last_received` returns the time on trio's clock of the newest byte of any answer to this stream's reads
    (0.0: not known). The pages in flight and the ring (`options.capacity_bytes`) bound the memory.

    The server's faults are raised by the stream's reading methods, not here. Leaving the block, or cancelling
    it, cancels every read in flight, and a blocked reader gets `ClosedError`. An error of `read_range` other
    than `PlayheadError` is a bug in it, and is raised in an exception group.
    """
    return open_forms(
        (RangeForm(name=strategy_name, read=read_range), *fallbacks),
        options=options,
        limits=limits,
        size_bytes=size_bytes,
        server_name=server_name,
        last_received=last_received,
    )


@asynccontextmanager
async def open_forms(
    forms: Sequence[RangeForm | LateForm],
    *,
    options: StreamOptions,
    limits: Limits,
    size_bytes: int | None,
    server_name: str,
    last_received: Callable[[], float],
    sha256: Callable[[], str | None] = lambda: None,
    counts: ReadCounts | None = None,
    grid_bytes: int = 0,
    remark: Callable[[bool], str] = lambda _: "",
    is_live: bool | None = None,
) -> AsyncIterator[RangeStream]:
    """Read a resource in the first of the `forms` that delivers. Works like `open_stream`, with more
    arguments:

    `sha256` returns the announced digest, if any, in hexadecimal; it is final once the first byte can be
    read. The readers of the forms count their reads in `counts`. Pages of `grid_bytes` or more end on a
    multiple of it. `remark` completes the error message if all forms are refused; see `FormNegotiation`. If
    `is_live`, by default `options.live`, the resource still grows, and `size_bytes` is its present size.
    """
    driver = Driver(
        forms,
        options=options,
        limits=limits,
        size_bytes=size_bytes if options.size_bytes is None else options.size_bytes,
        server_name=server_name,
        last_received=last_received,
        grid_bytes=grid_bytes,
        remark=remark,
        is_live=bool(options.live if is_live is None else is_live),
    )
    stream = RangeStream(driver, limits=limits, sha256=sha256, counts=counts or ReadCounts())
    block_error = _BlockError()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(driver.run)
            try:
                with block_error:
                    yield stream
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if block_error.drop(group):  # a bug in `read_range`
            raise
    finally:
        block_error.raise_again()
