"""Live streams: in whatever pieces bytes arrive, the audio, the titles and the parts are the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.content.hls import MasterPlaylist, MediaPlaylist, parse_hls
from playhead.content.hls_segments import SegmentAudio
from playhead.content.icy import IcyPiece, IcySplitter
from playhead.content.mpeg_ts import PACKET_BYTES, TransportStream
from playhead.content.ogg_links import OggLink, OggLinks
from playhead.errors import PlayheadError
from playhead.stream.live_source import LiveSource

URL = "https://radio.example/a/list.m3u8"
SIZES = st.lists(st.integers(1, 300), max_size=40)


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    """`data` in pieces of `sizes`, and the rest in one."""
    parts, at = list[bytes](), 0
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    return [part for part in (*parts, data[at:]) if part]


def block(title: str) -> bytes:
    text = f"StreamTitle='{title}';".encode() if title else b""
    return bytes([-(-len(text) // 16)]) + text.ljust(-(-len(text) // 16) * 16, b"\0")


TITLES = st.lists(st.text("abc'öß -", max_size=30).map(lambda text: text.strip(" ';")), max_size=6)


@given(interval=st.integers(1, 200), titles=TITLES, tail=st.binary(max_size=199), sizes=SIZES)
def test_titles_and_audio_come_apart_however_they_arrive(
    interval: int, titles: list[str], tail: bytes, sizes: list[int]
) -> None:
    audio = bytes(range(256)) * 5
    rounds = [audio[at * interval : (at + 1) * interval] for at in range(len(titles))]
    rounds = [part.ljust(interval, b"\xff") for part in rounds]
    body = b"".join(part + block(title) for part, title in zip(rounds, titles, strict=True)) + tail[:interval]
    splitter = IcySplitter(interval)
    got: list[IcyPiece] = [piece for part in pieces(body, sizes) for piece in splitter.feed(part)]
    assert b"".join(piece.audio for piece in got) == b"".join(rounds) + tail[:interval]
    assert [piece.title for piece in got if piece.title] == [title for title in titles if title]


def packet(pid: int, payload: bytes, *, begins: bool, counter: int) -> bytes:
    """A transport packet; what is missing is an adaptation field."""
    missing = PACKET_BYTES - 4 - len(payload)
    field = (
        b""
        if not missing
        else bytes([missing - 1]) + (b"\0" + b"\xff" * (missing - 2) if missing > 1 else b"")
    )
    head = bytes([0x47, begins << 6 | pid >> 8, pid & 255, (0x30 if field else 0x10) | counter & 15])
    return head + field + payload


def section(table: int, body: bytes) -> bytes:
    return (
        b"\0"
        + bytes([table])
        + (0xB000 | len(body) + 9).to_bytes(2, "big")
        + b"\0\1\xc1\0\0"
        + body
        + b"\0" * 4
    )


def transport_stream(frames: list[bytes]) -> bytes:
    """One PES packet for each frame, between packets of another stream."""
    program = section(0, b"\0\1\xe1\x00")
    streams = section(2, b"\xe1\x01\xf0\x00" + b"\x1b\xe1\x02\xf0\x00" + b"\x0f\xe1\x01\xf0\x00")
    data = packet(0, program, begins=True, counter=0) + packet(0x100, streams, begins=True, counter=0)
    counter = 0
    for frame in frames:
        pes = b"\0\0\1\xc0\0\0\x80\x80\x05" + b"!\0\1\0\1" + frame
        for at in range(0, len(pes), 170):
            data += packet(0x101, pes[at : at + 170], begins=at == 0, counter=counter)
            data += packet(0x102, b"film", begins=at == 0, counter=counter)
            counter += 1
    return data


@given(frames=st.lists(st.binary(min_size=1, max_size=500), min_size=1, max_size=8), sizes=SIZES)
def test_a_transport_stream_gives_its_audio_however_it_arrives(frames: list[bytes], sizes: list[int]) -> None:
    data, stream = transport_stream(frames), TransportStream()
    assert b"".join(map(stream.feed, pieces(data, sizes))) == b"".join(frames)
    segment = SegmentAudio()
    got = b"".join(map(segment.feed, pieces(data, sizes))) + segment.feed(b"")
    assert got == b"".join(frames)


@given(tag_bytes=st.integers(0, 400), audio=st.binary(max_size=600), sizes=SIZES)
def test_the_tag_in_front_of_packed_audio_is_left_out(tag_bytes: int, audio: bytes, sizes: list[int]) -> None:
    audio = b"\xff" + audio
    tag = b"ID3\4\0\0" + bytes([0, 0, tag_bytes >> 7, tag_bytes & 127]) + bytes(tag_bytes)
    for data in (audio, tag + audio):
        segment = SegmentAudio()
        assert b"".join(map(segment.feed, pieces(data, sizes))) + segment.feed(b"") == audio


@settings(max_examples=300)
@given(data=st.binary(max_size=800), sizes=SIZES)
def test_damaged_bytes_are_an_error_of_ours_or_pass_through(data: bytes, sizes: list[int]) -> None:
    for reader in (TransportStream(), SegmentAudio()):
        try:
            for part in pieces(b"\x47" + data, sizes):
                reader.feed(part)
        except PlayheadError:
            pass


LINES = st.sampled_from(
    [
        "#EXTM3U",
        "#EXT-X-TARGETDURATION:4",
        "#EXT-X-TARGETDURATION:17.075",
        "#EXT-X-MEDIA-SEQUENCE:7",
        "#EXT-X-MEDIA-SEQUENCE:-7",
        "#EXTINF:4.0,Title",
        "#EXTINF:0.0,",
        "#EXTINF:nan,",
        "#EXT-X-BYTERANGE:100@7",
        "#EXT-X-BYTERANGE:100",
        "#EXT-X-BYTERANGE:x@y",
        '#EXT-X-MAP:URI="init.mp4"',
        "#EXT-X-MAP:",
        '#EXT-X-KEY:METHOD=AES-128,URI="k",IV=0x1',
        "#EXT-X-KEY:METHOD=AES-128",
        "#EXT-X-KEY:METHOD=NONE",
        "#EXT-X-DISCONTINUITY",
        "#EXT-X-ENDLIST",
        "#EXT-X-PLAYLIST-TYPE:EVENT",
        '#EXT-X-STREAM-INF:BANDWIDTH=100,AUDIO="a"',
        '#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="a",NAME="x",URI="a.m3u8"',
        "#EXT-X-PROGRAM-DATE-TIME:then",
        "seg.aac",
        "https://other.example/x.aac",
        "file:///etc/passwd",
    ]
) | st.text(max_size=20)


@settings(max_examples=400)
@given(lines=st.lists(LINES, max_size=14))
def test_every_list_is_parsed_or_an_error_of_ours(lines: list[str]) -> None:
    try:
        parsed = parse_hls("\n".join(lines).encode(), URL)
    except PlayheadError:
        return
    match parsed:
        case MediaPlaylist(segments=segments):
            assert 0 <= parsed.starts_at() <= len(segments)
            addresses = [each.data for each in segments]
            addresses += [each.map for each in segments if each.map is not None]
            assert all(each.url.startswith("http") for each in addresses)
        case MasterPlaylist():
            assert parsed.choose(None).startswith("http")


def ogg_page(serial: int, number: int, body: bytes, *, first: bool = False) -> bytes:
    head = b"OggS\0" + bytes([2 if first else 0]) + bytes(8) + serial.to_bytes(4, "little")
    head += number.to_bytes(4, "little")
    lacing = bytes([255] * (len(body) // 255) + [len(body) % 255])
    data = head + bytes(4) + bytes([len(lacing)]) + lacing + body
    return data[:22] + _ogg_crc(data).to_bytes(4, "little") + data[26:]


def _ogg_crc(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc & 0x80000000 else 0)) & 0xFFFFFFFF
    return crc


def comments(title: str) -> bytes:
    field = f"TITLE={title}".encode()
    return b"OpusTags" + b"\1\0\0\0x" + b"\1\0\0\0" + len(field).to_bytes(4, "little") + field


LINKS = [
    ogg_page(serial, 0, b"OpusHead", first=True)
    + ogg_page(serial, 1, comments(f"Song {serial}"))
    + ogg_page(serial, 2, bytes([serial]) * 300)
    for serial in (5, 6, 7)
]


@given(sizes=SIZES)
def test_the_links_of_chained_ogg_are_found_however_they_arrive(sizes: list[int]) -> None:
    links, whole, found = OggLinks(), b"", list[OggLink]()
    for part in pieces(b"".join(LINKS), sizes):
        audio, marks = links.feed(part)
        found += [OggLink(len(whole) + mark.place, mark.title) for mark in marks]
        whole += audio
    assert whole == b"".join(LINKS)
    starts = [len(LINKS[0]), len(LINKS[0]) + len(LINKS[1])]
    assert [mark.place for mark in found if mark.title is None] == starts
    assert [mark.title for mark in found if mark.title] == ["Song 5", "Song 6", "Song 7"]


@given(parts=st.lists(st.integers(1, 60), min_size=1, max_size=6), sizes=SIZES, late=st.booleans())
def test_a_decoder_reads_each_part_to_its_end_and_then_the_next(
    parts: list[int], sizes: list[int], late: bool
) -> None:
    """`late`: the parts become known only while a read waits, with their bytes."""
    data = b"".join(bytes([number]) * length for number, length in enumerate(parts))
    live = LiveSource(seek=lambda seconds: None)
    starts = [sum(parts[:number]) for number in range(1, len(parts))]
    if not late:
        for start in starts:
            live.begin_part(start)
    position, waiting = 0, list(sizes)

    def read(buffer: object) -> int:
        nonlocal position
        with memoryview(buffer) as view:  # type: ignore[arg-type]
            count = min(waiting.pop(0) if waiting else 7, len(view), len(data) - position)
            if late:
                for start in starts:
                    if position <= start < position + count:
                        live.begin_part(start)
            view[:count] = data[position : position + count]
        position += count
        return count

    got = [b""]
    buffer = bytearray(50)
    while True:
        if count := live.read(buffer, read):
            got[-1] += buffer[:count]
        elif live.next_part():
            got.append(b"")
        else:
            break
    assert got == [bytes([number]) * length for number, length in enumerate(parts)]


def test_titles_are_reported_when_the_decoder_gets_there() -> None:
    live = LiveSource(seek=lambda seconds: None)
    live.set_title(0, "A")
    live.set_title(5, "A")
    live.set_title(8, "B")
    assert live.titles() == ["A"]
    assert live.read(bytearray(6), lambda buffer: 6) == 6
    assert live.titles() == []
    assert live.read(bytearray(6), lambda buffer: 6) == 6
    assert live.titles() == ["B"]


@pytest.mark.parametrize(("rate", "url"), [(None, "b"), (300.0, "b"), (100.0, "a"), (1e9, "c")])
def test_the_best_variant_below_seven_tenths_of_the_rate(rate: float | None, url: str) -> None:
    lines = "".join(f"#EXT-X-STREAM-INF:BANDWIDTH={n}\n{n}{name}\n" for name, n in (("a", 50), ("b", 200)))
    data = f"#EXTM3U\n{lines}#EXT-X-STREAM-INF:BANDWIDTH=900000\n9c\n".encode()
    parsed = parse_hls(data, URL)
    assert isinstance(parsed, MasterPlaylist)
    assert parsed.choose(rate).endswith(url)
