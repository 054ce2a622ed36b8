"""Values of events are counted alike however the bytes are cut."""

from __future__ import annotations

import random

import pytest

from playhead.protocol.framing import EventValues

CASES = [
    (b'data: {"a":[1,2],"b":{}}\n\n', 5),
    (b'data: {"a":",[{,"}\n\n', 1),
    (b'data: {"a":"\\",[{,"}\n\n', 1),
    (b'data: {"a":"\\\\","b":1}\n\n', 2),
    (b'data: {"a":"\\\\\\",,,"}\n\n', 1),
    (b"data: [1,\ndata: 2]\n\n", 2),
    (b"data: [1,\r\ndata: 2]\r\n\r\n", 2),
    (b"data: [1,\rdata: 2]\r\r", 2),
    (b"data: [1,2]\n\ndata: [1,2,3]\n\n", 3),
    (b"data: [1,2]\r\n\r\ndata: [1,2,3]\r\n\r\n", 3),
    (b': "\ndata: [1,2]\n\n', 2),
    (b"data: [\n\\\n[\n\n", 2),
]


@pytest.mark.parametrize(("stream", "most"), CASES)
def test_commas_and_brackets_outside_strings_are_counted_by_event(stream: bytes, most: int) -> None:
    whole = EventValues()
    whole.feed(stream)
    assert whole.most == most
    for seed in range(30):
        cuts = random.Random(seed)
        values, rest = EventValues(), stream
        while rest:
            size = 1 if seed == 0 else cuts.randint(1, 6)
            values.feed(rest[:size])
            rest = rest[size:]
        assert values.most == most
