"""Lines from and to a file descriptor: any chunking gives the same lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio.testing
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from playhead.errors import LimitError
from playhead.limits import Limits
from playhead.servers.stdio import StdinLines, StdoutMessages

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


async def test_a_cancelled_read_ends_although_nothing_is_written() -> None:
    with pipe() as (readable, writable):
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(anext, StdinLines(readable))
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
        os.close(writable)


async def test_a_file_is_read_too(tmp_path: Path) -> None:
    (file := tmp_path / "lines").write_bytes(TEXT.encode())
    fd = os.open(file, os.O_RDONLY)
    try:
        assert [line async for line in StdinLines(fd)] == LINES
    finally:
        os.close(fd)


async def test_messages_of_any_length_are_written_whole_and_in_order_to_a_slow_reader() -> None:
    lengths = [1 + number * 997 % 9000 for number in range(300)]
    messages = [JSONRPCNotification(jsonrpc="2.0", method="x" * length) for length in lengths]

    async def write() -> None:
        with trio.CancelScope() as scope:
            stdout = StdoutMessages(writable, scope)
            for message in messages:
                await stdout.send(SessionMessage(message))
        os.close(writable)

    with pipe() as (readable, writable):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()  # the pipe is full
            lines = [line async for line in StdinLines(readable)]
    assert [JSONRPCNotification.model_validate_json(line) for line in lines] == messages


@pytest.mark.parametrize("size_bytes", [100, 50_000, 100_000])
async def test_a_message_that_the_pipe_has_room_for_takes_no_thread(
    size_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    run_sync = trio.to_thread.run_sync

    async def counted(function: Any, *args: Any) -> None:
        threads.append(function)
        await run_sync(function, *args)

    monkeypatch.setattr(trio.to_thread, "run_sync", counted)
    message = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="x" * size_bytes))
    with pipe() as (readable, writable), os.fdopen(writable, "wb"), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            lines = StdinLines(readable)
            nursery.start_soon(StdoutMessages(writable, scope).send, message)
            assert "x" * size_bytes in await anext(lines)
    assert len(threads) == (size_bytes > 65_536)


async def test_a_closed_reader_ends_the_serving() -> None:
    readable, writable = os.pipe()
    os.close(readable)
    message = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="x"))
    with os.fdopen(writable, "wb"), trio.CancelScope() as scope:
        stdout = StdoutMessages(writable, scope)
        with pytest.raises(anyio.BrokenResourceError):
            await stdout.send(message)
    assert scope.cancel_called
    assert isinstance(stdout.failure, BrokenPipeError)
