"""Fuzz targets of the parsers in Python, with atheris, which only `make fuzz` installs.

    python -m tests.fuzz.parsers TARGET [CORPUS] [options of libFuzzer]

The laws are those of tests/property, for input that no strategy draws: any bytes, cut anywhere.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import atheris

with atheris.instrument_imports(include=["playhead"]):
    from playhead.agent.tool_use import ToolUseParser
    from playhead.agent.tool_use_block import TextRun, ToolUseEvent
    from playhead.errors import LimitError, ProtocolError
    from playhead.limits import DEFAULT_LIMITS
    from playhead.protocol import messages
    from playhead.protocol.event_stream import EventStream
    from playhead.protocol.exchange import Answered, Asked, Exchange, Faulted, Notified, Progressed
    from playhead.protocol.frame_stream import FrameStream
    from playhead.protocol.framing import Line, LineEvent, LineFramer, LongLine
    from playhead.protocol.revisions import NEWEST, REVISIONS
    from playhead.servers.messages import decode as read_by_server
    from playhead.strict_json import parse_json

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, TextMessage

OLDEST_WITH_BATCHES = next(each for each in REVISIONS.values() if each.has_batches)
PIECES = 200
"""Most pieces of an input: 24 KiB byte by byte would be nine tenths of the time."""


def cut(data: bytes) -> tuple[bytes, list[bytes]]:
    """The input without its first byte; and the same in pieces, whose lengths that byte decides."""
    if not data:
        return b"", []
    whole = data[1:]
    step = max(1 + data[0] % 61, len(whole) // PIECES)
    return whole, [whole[at : at + step] for at in range(0, len(whole), step)]


def tool_use(data: bytes) -> None:
    """The prompt-mode parser: any cutting gives the same events, and no text for the user has a tag."""

    def events(chunks: list[str]) -> list[ToolUseEvent]:
        parser = ToolUseParser(limit_chars=300)
        found: list[ToolUseEvent] = []
        for event in [*(event for chunk in chunks for event in parser.feed(chunk)), *parser.finish()]:
            if isinstance(event, TextRun) and found and isinstance(found[-1], TextRun):
                found[-1] = TextRun(text=found[-1].text + event.text)
            else:
                found.append(event)
        return found

    step = 1 + data[0] % 61 if data else 1
    text = data[1:].decode("utf-8", "replace")
    found = events([text])
    assert events([text[at : at + step] for at in range(0, len(text), step)]) == found
    shown = "".join(event.text for event in found if isinstance(event, TextRun))
    assert "<tool_use>" not in shown.lower()


def frames(data: bytes) -> None:
    """WebSocket frames at either end: the messages that wsproto reads, and the same limits, whatever the
    cutting."""
    # A fuzzer would not write a long frame of 4 KiB: the first 0xF8, which no UTF-8 has, are 4000 blanks.
    # The end completes the last head: wsproto refuses some before they are complete.
    whole, pieces = cut(data[:1] + data[1:].replace(b"\xf8", b" " * 4000, 6) + bytes(16))
    role = ConnectionType.SERVER if data[:1] > b"\x7f" else ConnectionType.CLIENT
    assert of_frames(role, [whole], FRAME_BYTES) == of_frames(role, pieces, FRAME_BYTES)
    lines, binary_messages, _ping, closed = of_frames(role, [whole], 1 << 62)
    expected = by_wsproto(role, whole)
    assert ([line.data for line in lines if isinstance(line, Line)], binary_messages, closed) == expected


FRAME_BYTES = 40


def of_frames(
    role: ConnectionType, chunks: list[bytes], max_bytes: int
) -> tuple[list[LineEvent], int, bytes | None, int | None]:
    """The events of the messages, the number of binary ones, the newest ping, and the code at the end."""
    stream = FrameStream(role, max_bytes=max_bytes, allowed_bytes=4 * max_bytes, head_bytes=8)
    events: list[LineEvent] = []
    for chunk in chunks:
        stream.feed(chunk)
        while (event := stream.next_event()) is not None or stream.has_more:
            if event is not None:
                events.append(event)
            if max_bytes == FRAME_BYTES and isinstance(event, LongLine) and b"s" in event.head:
                stream.message.skip()  # wsproto skips none
    code = None if stream.closed is None else stream.closed.code
    if code == 1007:  # how much of the text before the error was read depends on the cutting
        events = [event for event in events if isinstance(event, Line)]
    return events, stream.binary_messages, stream._pong, code


def by_wsproto(role: ConnectionType, data: bytes) -> tuple[list[bytes], int, int | None]:
    connection, text, messages, binary_messages = Connection(role), "", list[bytes](), 0
    connection.receive_data(data)
    for event in connection.events():
        match event:
            case TextMessage():
                text += event.data
                if event.message_finished:
                    messages.append(text.encode())
                    text = ""
            case BytesMessage():
                binary_messages += event.message_finished
            case CloseConnection():
                return messages, binary_messages, int(event.code)
    return messages, binary_messages, None


def message(data: bytes) -> None:
    """A message with views of its blobs is the one that the standard library parses, or both refuse it; a
    server reads it, or answers with an error."""
    data = data.replace(b"\x01", b"QUJD" * 256)
    read_by_server(data)
    found = None
    try:
        found = messages.decode(data, DEFAULT_LIMITS)
    except ProtocolError:
        pass
    except LimitError:
        return
    if isinstance(found, dict) and isinstance(found.get("result"), dict):
        messages.plain(found["result"])
    assert found == _parsed(data)


def _parsed(data: bytes) -> object:
    try:
        value = parse_json(str(data, "utf-8"))
        json.dumps(value, ensure_ascii=False).encode()  # no lone surrogate
    except (ValueError, RecursionError):
        return None
    return value


def lines(data: bytes) -> None:
    """Lines of stdio: any cutting gives the same events."""
    whole, pieces = cut(data)

    def of_lines(chunks: list[bytes]) -> list[object]:
        framer = LineFramer(max_bytes=40, head_bytes=8)
        found: list[object] = []
        for chunk in chunks:
            framer.feed(chunk)
            while (event := framer.next_event()) is not None:
                found.append(event)
                if isinstance(event, LongLine) and b"s" in event.head:
                    framer.message.skip()
        return found

    assert of_lines(pieces) == of_lines([whole])


def events(data: bytes) -> None:
    """Event streams of HTTP: any cutting gives the same messages."""
    whole, pieces = cut(data)

    def received(chunks: list[bytes]) -> tuple[object, ...]:
        parser = EventStream(max_bytes=40)
        found: list[object] = []
        for chunk in chunks:
            parser.feed(chunk)
            found += iter(parser.next_event, None)
        return found, parser.last_event_id, parser.retry_seconds, parser.message.head

    assert received(pieces) == received([whole])


POSTS: dict[bytes, int | str] = {b"a": 1, b"b": 2, b"c": 9, b"d": "listen-1"}


def exchange(data: bytes) -> None:
    """The requests in flight: whatever arrives in whatever order, an answer is given to one of them, once,
    and on a POST only to its own."""
    table = Exchange(DEFAULT_LIMITS)
    table.revision = OLDEST_WITH_BATCHES if data[:1] > b"\x7f" else NEWEST
    for _ in range(4):
        table.request("resources/read", {}, reports=True)
    for step in data[1:].split(b"\n"):
        only = POSTS.get(step[:1])
        waiting = set(table.in_flight)
        for event in table.receive(step[1:].replace(b"\x01", b'{"jsonrpc":"2.0","id":'), only=only):
            match event:
                case Answered() | Faulted(id=int() | str()):
                    assert str(event.id) in waiting
                    assert only is None or event.id == only
                    waiting.remove(str(event.id))
                case Progressed():
                    assert str(event.id) in waiting
                case Asked():
                    table.refuse(event.id, 0, "no")
                case Notified() | Faulted():
                    pass
        assert set(table.in_flight) == waiting


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (tool_use, frames, message, lines, events, exchange)
}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        raise SystemExit(f"expected one of {', '.join(TARGETS)}, got {name!r}")
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
