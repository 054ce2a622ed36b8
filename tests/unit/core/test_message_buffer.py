"""A message collected piece by piece, in memory that is given up without a copy."""

from __future__ import annotations

import random

import pytest

from playhead._core import MessageBuffer

MIB = 1 << 20


@pytest.mark.parametrize("expected", [0, 7, 6 * MIB])
@pytest.mark.parametrize("size", [0, 1, 70_000, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 6 * MIB + 5])
def test_the_pieces_become_one_message_whatever_was_expected(size: int, expected: int) -> None:
    chosen = random.Random(size)
    data = chosen.randbytes(size)
    buffer, at = MessageBuffer(expected), 0
    while at < size:
        end = min(size, at + chosen.choice([1, 100, 65_536, MIB]))
        buffer.write(memoryview(data)[at:end])
        assert len(buffer) == end
        at = end
    assert (buffer.tail(3), buffer.tail(size + 1)) == (data[-3:], data)
    taken = buffer.take()
    assert (type(taken), taken == data) == (bytes, True)


def test_a_message_longer_than_the_largest_step_is_whole() -> None:
    data = random.Random(0).randbytes(MIB)
    buffer = MessageBuffer()
    for _ in range(70):
        buffer.write(data)
    assert buffer.take() == 70 * data


def test_a_buffer_is_empty_once_its_bytes_were_taken_and_leaves_them_alone() -> None:
    buffer = MessageBuffer()
    buffer.write(b"first")
    first = buffer.take()
    assert (len(buffer), buffer.tail(9), buffer.take()) == (0, b"", b"")
    buffer.write(bytearray(b"second"))
    assert (buffer.take(), first) == (b"second", b"first")


def test_only_bytes_are_taken() -> None:
    buffer = MessageBuffer()
    with pytest.raises(TypeError):
        buffer.write("text")  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        buffer.write(memoryview(b"every other")[::2])
    with pytest.raises((MemoryError, OverflowError)):
        MessageBuffer(1 << 62)
    assert len(buffer) == 0
