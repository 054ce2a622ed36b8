"""Lines from a file descriptor: any chunking gives the same lines."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import trio

from playhead.errors import LimitError
from playhead.limits import Limits
from playhead.servers import stdio
from playhead.servers.stdio import StdinLines

TEXT = "first\n\nthïrd with ü\r\nlong " + "x" * 10_000 + "\nlast without an end"
LINES = TEXT.split("\n")


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    readable, writable = os.pipe()
    try:
        yield readable, writable
    finally:
        os.close(readable)


async def write_in_pieces(fd: int, data: bytes, size: int) -> None:
    with os.fdopen(fd, "wb", buffering=0) as file:
        for at in range(0, len(data), size):
            await trio.to_thread.run_sync(file.write, data[at : at + size])


@pytest.mark.parametrize("size", [61, 4096, 10**6])
async def test_any_chunking_gives_the_same_lines(size: int) -> None:
    with pipe() as (readable, writable):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_in_pieces, writable, TEXT.encode(), size)
            assert [line async for line in StdinLines(readable)] == LINES


async def test_bytes_that_are_no_text_spoil_only_their_line() -> None:
    with pipe() as (readable, writable):
        await write_in_pieces(writable, b"good\n\xff\xfe\ngood\n", 100)
        assert [line async for line in StdinLines(readable)] == ["good", "\ufffd\ufffd", "good"]


async def test_a_line_beyond_the_limit_is_an_error_and_not_a_growing_buffer() -> None:
    with pipe() as (readable, writable):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_in_pieces, writable, b"x" * 50_000, 1000)
            with pytest.raises(LimitError) as caught:
                await anext(StdinLines(readable, limits=Limits(message_bytes=10_000)))
            nursery.cancel_scope.cancel()
    assert caught.value.limit == "message_bytes"


async def test_a_cancelled_read_ends_although_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, left = threading.Event(), threading.Event()

    def read(fd: int, size: int) -> bytes:
        reading.set()
        try:
            return os.read(fd, size)
        finally:
            left.set()

    monkeypatch.setattr(stdio, "os", SimpleNamespace(read=read))
    with pipe() as (readable, writable):
        # Ends the read where the cancellation did not: then the writer below is closed, and the test fails.
        rescue = threading.Timer(10, os.close, [writable])
        rescue.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(anext, StdinLines(readable))
            await trio.to_thread.run_sync(reading.wait, 10)
            nursery.cancel_scope.cancel()
        rescue.cancel()
        os.close(writable)
        # The thread that was left behind must be through with the descriptor before its number is free: it
        # would read what belongs to whoever gets the number next.
        assert await trio.to_thread.run_sync(left.wait, 10)
