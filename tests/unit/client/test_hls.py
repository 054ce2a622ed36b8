"""HLS through our own HTTP client: each segment once, as FFmpeg decodes the joined segments."""

from __future__ import annotations

import math
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path

import httpcore2
import httpx2
import pytest
import trio
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from playhead.client.live.hls import HlsReader
from playhead.client.web import Web, origin_of
from playhead.errors import (
    BlockedAddressError,
    ContentError,
    HttpRefusedError,
    StreamBrokenError,
    UnsupportedFormatError,
)
from playhead.limits import Limits
from playhead.stream.live_source import LinkRate
from playhead.stream.options import StreamEvent, StreamOptions, StreamSkipped, StreamTitle
from tests.live_kit import WEB, HlsFiles, MemoryWeb, decoder_of, hls_files
from tests.servers.answering_network import answering_client
from tests.servers.raw_origin import RawOrigin, answer, raw_origin

FORMS = ("adts", "ts", "fmp4")
LIST = "/live/list.m3u8"


@pytest.fixture(params=FORMS)
def piece(request: pytest.FixtureRequest, run_directory: Path) -> HlsFiles:
    return hls_files(request.param, run_directory)


@pytest.fixture
def adts(run_directory: Path) -> HlsFiles:
    return hls_files("adts", run_directory)


def served(piece: HlsFiles, playlist: bytes | Callable[[httpx2.Request], httpx2.Response]) -> MemoryWeb:
    web = MemoryWeb({f"/live/{name}": data for name, data in piece.files.items()})
    web.routes[LIST] = playlist
    return web


def same(pcm: bytes, expected: bytes) -> bool:
    """Equal samples, but for the last bit of a float: FFmpeg converts planar samples in another order."""
    got, wanted = array("f", pcm), array("f", expected)
    return len(got) == len(wanted) and all(
        math.isclose(a, b, abs_tol=1e-6) for a, b in zip(got[::7], wanted[::7], strict=True)
    )


async def test_segments_sound_as_ffmpeg_decodes_them_joined(piece: HlsFiles) -> None:
    web = served(piece, piece.playlist())
    assert same(await web.decoded(LIST), piece.pcm)
    assert len(web.paths) == len(set(web.paths)) == 1 + len(piece.files)  # each once


async def test_byte_ranges_and_a_map_in_one_file_sound_the_same(run_directory: Path) -> None:
    piece = hls_files("fmp4", run_directory)
    whole, lines = piece.files["init.mp4"], ["#EXTM3U", "#EXT-X-TARGETDURATION:1"]
    lines.append(f'#EXT-X-MAP:URI="all.mp4",BYTERANGE="{len(whole)}@0"')
    for number, segment in enumerate(piece.segments):
        place = f"@{len(whole)}" if number in (0, 2) else ""  # otherwise it follows the one before
        lines += ["#EXTINF:1,", f"#EXT-X-BYTERANGE:{len(segment)}{place}", "all.mp4"]
        whole += segment
    web = MemoryWeb({LIST: "\n".join([*lines, "#EXT-X-ENDLIST"]).encode(), "/live/all.mp4": whole})
    assert same(await web.decoded(LIST), piece.pcm)
    assert web.requests[1].headers["range"] == f"bytes=0-{len(piece.files['init.mp4']) - 1}"


@pytest.mark.parametrize("iv", [None, bytes(range(16))])
async def test_aes_128_is_decrypted_with_the_key_of_the_list(adts: HlsFiles, iv: bytes | None) -> None:
    key, files = b"0123456789abcdef", dict[str, bytes]()
    for number, name in enumerate(adts.names):
        padder = PKCS7(128).padder()
        cipher = Cipher(algorithms.AES(key), modes.CBC(iv or number.to_bytes(16, "big"))).encryptor()
        files[f"/live/{name}"] = cipher.update(padder.update(adts.files[name]) + padder.finalize())
    tag = '#EXT-X-KEY:METHOD=AES-128,URI="secret.key"' + (f",IV=0x{iv.hex()}" if iv else "")
    routes = {LIST: adts.playlist(tags={0: tag}), "/live/secret.key": key, **files}
    web = MemoryWeb(dict(routes))
    assert same(await web.decoded(LIST), adts.pcm)
    assert web.paths.count("/live/secret.key") == 1
    wrong = MemoryWeb({**routes, "/live/secret.key": bytes(16)})
    with pytest.raises(ContentError, match="expected a segment that its key"):
        await all_bytes(wrong)
    short = MemoryWeb({**routes, "/live/secret.key": b"short"})
    with pytest.raises(ContentError, match="expected a key of 16 bytes, got 5"):
        await all_bytes(short)


async def all_bytes(web: MemoryWeb, options: StreamOptions | None = None) -> bytes:
    async with web.opened(LIST, options=options or StreamOptions()) as stream:
        return await stream.read_all()


@pytest.mark.parametrize(
    ("bits_per_second", "chosen"),
    [(None, "mid"), (10_000_000.0, "high"), (128_000.0, "low"), (1_000.0, "low")],
)
async def test_a_master_list_gives_the_best_variant_that_the_link_carries(
    adts: HlsFiles, bits_per_second: float | None, chosen: str
) -> None:
    master = "#EXTM3U\n" + "".join(
        f"#EXT-X-STREAM-INF:BANDWIDTH={rate}\n{name}.m3u8\n"
        for name, rate in (("low", 48_000), ("high", 256_000), ("mid", 128_000))
    )
    web = served(adts, master.encode())
    web.routes |= {f"/live/{name}.m3u8": adts.playlist() for name in ("low", "mid", "high")}
    rate = LinkRate(bits_per_second)
    assert same(await web.decoded(LIST, rate=rate), adts.pcm)
    assert [path for path in web.paths if path.endswith("m3u8")] == [LIST, f"/live/{chosen}.m3u8"]


async def test_an_audio_group_is_played_in_place_of_its_films(adts: HlsFiles) -> None:
    master = (
        b'#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="a",NAME="fr",URI="fr.m3u8"\n'
        b'#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="a",NAME="en",DEFAULT=YES,URI="en.m3u8"\n'
        b'#EXT-X-STREAM-INF:BANDWIDTH=90000,AUDIO="a"\nfilm.m3u8\n'
    )
    web = served(adts, master)
    web.routes["/live/en.m3u8"] = adts.playlist()
    assert await all_bytes(web) == b"".join(adts.segments)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('#EXT-X-KEY:METHOD=SAMPLE-AES,URI="k"', "METHOD=SAMPLE-AES"),
        ('#EXT-X-KEY:METHOD=AES-128,URI="k",KEYFORMAT="com.apple.streamingkeydelivery"', "KEYFORMAT"),
        ("#EXT-X-GAP", "EXT-X-GAP"),
        ('#EXT-X-DEFINE:NAME="a",VALUE="b"', "EXT-X-DEFINE"),
    ],
)
async def test_a_tag_that_is_not_supported_is_an_error_that_names_it(
    adts: HlsFiles, line: str, named: str
) -> None:
    with pytest.raises(UnsupportedFormatError, match=named):
        await all_bytes(served(adts, adts.playlist(tags={1: line})))


@pytest.mark.parametrize(
    "line",
    [
        "#EXTINF:1,\nfile:///etc/passwd",
        '#EXT-X-MAP:URI="data:audio/mp4;base64,AAAA"\n#EXTINF:1,\ns0.aac',
        '#EXT-X-KEY:METHOD=AES-128,URI="gopher://127.0.0.1/"\n#EXTINF:1,\ns0.aac',
        "#EXTINF:1,\nconcat:http://radio.example/live/s0.aac",
    ],
)
async def test_what_is_not_on_the_web_is_never_opened(adts: HlsFiles, line: str) -> None:
    web = served(adts, f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n{line}\n#EXT-X-ENDLIST\n".encode())
    with pytest.raises(BlockedAddressError, match="expected an http or https URL in an HLS playlist"):
        await all_bytes(web)
    assert web.paths == [LIST]


@pytest.mark.parametrize(
    "damaged", ["#EXTINF:x,\ns0.aac", "#EXT-X-MEDIA-SEQUENCE:z", "#EXT-X-MAP:foo\n#EXTINF:1,\ns0.aac"]
)
async def test_a_damaged_list_is_our_own_error(adts: HlsFiles, damaged: str) -> None:
    web = served(adts, f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n{damaged}\n".encode())
    with pytest.raises(ContentError, match=r"radio\.example/live/list\.m3u8: expected an HLS playlist"):
        await all_bytes(web)


async def test_a_missing_first_segment_is_the_error_of_its_own_url(adts: HlsFiles) -> None:
    web = served(adts, adts.playlist())
    del web.routes[f"/live/{adts.names[0]}"]
    with pytest.raises(HttpRefusedError, match=rf"^https?://\S+/live/{adts.names[0]} answered HTTP 404"):
        await all_bytes(web)


async def test_a_segment_that_breaks_off_goes_on_at_its_byte(adts: HlsFiles, autojump_clock: object) -> None:
    web, name = served(adts, adts.playlist()), f"/live/{adts.names[1]}"
    segment = adts.files[adts.names[1]]
    ranges = []

    def breaks_once(request: httpx2.Request) -> httpx2.Response:
        start = int(request.headers["range"][6:].partition("-")[0])
        ranges.append(start)

        async def chunks() -> AsyncIterator[bytes]:
            yield segment[start : start + 3000]
            if len(ranges) > 1:
                yield segment[start + 3000 :]
            else:
                raise httpcore2.ReadError("cut")

        place = {"content-range": f"bytes {start}-{len(segment) - 1}/{len(segment)}"}
        length = {"content-length": str(len(segment) - start)}
        return httpx2.Response(206, headers=place | length, content=chunks())

    web.routes[name] = breaks_once
    assert await all_bytes(web) == b"".join(adts.segments)
    assert ranges == [0, 3000]


class Growing:
    """A list that has one more segment every second of trio's clock, up to its end."""

    def __init__(
        self, piece: HlsFiles, *, window: int | None = None, every: float = 1.0, kind: str = "EVENT"
    ) -> None:
        self._piece, self._window, self._every, self._kind = piece, window, every, kind
        self._began = trio.current_time()
        self.read_at: list[float] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        now = trio.current_time() - self._began
        self.read_at.append(now)
        total = len(self._piece.names)
        count = min(total, int(now / self._every))
        data = self._piece.playlist(count, kind="EVENT", is_ended=count == total, target="0.5")
        return httpx2.Response(200, content=data)


async def test_a_list_that_grows_is_read_to_its_end_and_each_segment_once(
    piece: HlsFiles, autojump_clock: object
) -> None:
    growing = Growing(piece, every=2.0)
    web = served(piece, growing)
    begun = trio.current_time()
    head = piece.files.get("init.mp4", b"")
    got = await all_bytes(web)
    if piece.form == "ts":
        assert len(got) > 1000  # without its packets
    else:
        assert got == head + b"".join(piece.segments)
    segments = [path for path in web.paths if not path.endswith(("m3u8", "init.mp4"))]
    assert segments == [f"/live/{name}" for name in piece.names]
    assert trio.current_time() - begun <= 2.0 * len(piece.names) + 0.6
    pauses = [b - a for a, b in pairwise(growing.read_at)]
    assert min(pauses) >= 0.25  # half of the target duration of 0.5 s, at least 0.5 s


async def test_a_live_window_begins_three_target_durations_before_its_end_and_skips_what_it_has_dropped(
    adts: HlsFiles, autojump_clock: object
) -> None:
    windows = [(0, 8), (4, 9), (20, 24)]

    def window(_request: httpx2.Request) -> httpx2.Response:
        ended = len(windows) == 1
        first, stop = windows[0] if ended else windows.pop(0)
        data = adts.playlist(stop, first=first, kind="", is_ended=ended)
        return httpx2.Response(200, content=data)

    web, events = served(adts, window), list[StreamEvent]()
    data = await all_bytes(web, StreamOptions(on_event=events.append))
    numbers = [5, 6, 7, 8, 20, 21, 22, 23]
    names = [adts.names[number % len(adts.names)] for number in numbers]
    assert data == b"".join(adts.files[name] for name in names)
    (skipped,) = events
    assert isinstance(skipped, StreamSkipped)
    assert skipped.skipped_seconds == 11.0


async def test_a_list_that_stands_still_is_a_broken_stream(adts: HlsFiles, autojump_clock: object) -> None:
    web = served(adts, adts.playlist(is_ended=False, kind="EVENT", target="4"))
    begun = trio.current_time()
    async with web.opened(LIST, options=StreamOptions(patience_seconds=20)) as stream:
        got = await stream.receive_some()
        while len(got) < len(b"".join(adts.segments)):
            got += await stream.receive_some()
        with pytest.raises(StreamBrokenError, match="expected"):
            await stream.receive_some()
    assert got == b"".join(adts.segments)
    assert 20 <= trio.current_time() - begun <= 26
    assert web.paths.count(LIST) <= 12


async def test_a_list_without_a_segment_is_read_every_half_second(
    adts: HlsFiles, autojump_clock: object
) -> None:
    growing = Growing(adts, every=3.7)
    await all_bytes(served(adts, growing))
    first = [at for at in growing.read_at if at < 3.7]
    assert [round(b - a, 3) for a, b in pairwise(first)] == [0.5] * (len(first) - 1)


async def test_a_seek_goes_to_the_sample_and_back_to_what_the_server_still_has(piece: HlsFiles) -> None:
    web = served(piece, piece.playlist())
    frame_bytes, at_frames = 8, int(1.5 * 22_050)

    async with web.opened(LIST) as stream:

        def play() -> tuple[bytes, bytes]:
            decoder = decoder_of(stream)
            read = lambda: bytes(memoryview(decoder.read()).cast("B"))  # noqa: E731
            whole = b"".join(iter(read, b""))
            decoder.seek(at_frames)
            assert decoder.position_frames == at_frames
            again = b"".join(iter(read, b""))
            decoder.close()
            return whole, again

        whole, again = await trio.to_thread.run_sync(play)
    assert same(whole, piece.pcm)
    # A new decoder lacks the overlap of one frame, and a segment's duration is rounded to a millisecond.
    assert abs(len(again) - (len(whole) - at_frames * frame_bytes)) <= 2048 * frame_bytes


async def test_a_first_get_that_fails_is_asked_again_and_recognised_as_a_list(
    adts: HlsFiles, autojump_clock: object
) -> None:
    answers = [httpx2.Response(503), httpx2.Response(200, content=adts.playlist())]
    web = served(adts, lambda request: answers.pop(0))
    assert await all_bytes(web) == b"".join(adts.segments)
    assert web.paths.count(LIST) == 2


async def test_going_live_after_a_pause_reads_the_list_again_and_begins_with_its_newest_segment(
    adts: HlsFiles, autojump_clock: object
) -> None:
    first = 0

    def window() -> bytes:
        return adts.playlist(first + 4, first=first, kind="", is_ended=False)

    async def next_is(number: int) -> bool:
        wanted = adts.segments[number % len(adts.segments)]
        data = b""
        while len(data) < len(wanted):
            data += b"".join(bytes(blob) for blob in (await reader(0, 1)).blobs if not isinstance(blob, str))
        return data == wanted

    web = served(adts, lambda request: httpx2.Response(200, content=window()))
    client, limits = answering_client(web.answer), Limits()
    reader = HlsReader(client, WEB + LIST, window(), limits=limits, patience_seconds=60, rate=LinkRate())
    async with aclosing(reader):
        assert await next_is(1)  # three target durations before the end
        assert reader.live.seek(math.inf) == (2.0, 2.0)
        assert await next_is(3)
        assert web.paths.count(LIST) == 0  # the list was new enough
        await trio.sleep(3600)
        first = 3600
        assert reader.live.seek(math.inf) == (3.0, 3.0)
        assert await next_is(3603)
        assert web.paths.count(LIST) == 1
        assert reader.live.seek(2.5) == (2.0, 2.5)  # back, on the same time scale
        assert await next_is(3602)
        assert web.paths.count(LIST) == 1


async def test_a_seek_at_any_moment_loses_no_byte_after_it(adts: HlsFiles) -> None:
    web = served(adts, adts.playlist())
    for checkpoints in range(40):
        async with web.opened(LIST) as stream:
            await stream.receive_some(1)
            for _ in range(checkpoints):
                await trio.lowlevel.checkpoint()
            stream._driver.seek_time(2.0)
            assert await stream.read_all() == b"".join(adts.segments[2:]), checkpoints


async def test_a_discontinuity_with_another_encoding_gets_a_new_decoder(
    adts: HlsFiles, run_directory: Path
) -> None:
    film = hls_files("fmp4", run_directory)
    lines = ["#EXTM3U", "#EXT-X-TARGETDURATION:1"]
    for turn in range(2):
        lines += ["#EXT-X-DISCONTINUITY"] * turn + [f'#EXT-X-MAP:URI="init.mp4?{turn}"']
        lines += [f"#EXTINF:1,\n{name}" for name in film.names]
    web = served(film, "\n".join([*lines, "#EXT-X-ENDLIST"]).encode())
    assert same(await web.decoded(LIST), 2 * film.pcm)


async def test_a_separator_without_a_duration_is_passed_through(adts: HlsFiles) -> None:
    text = adts.playlist().decode().replace("#EXTINF:1.0,\ns1", "#EXTINF:0.0,\ngap.aac\n#EXTINF:1.0,\ns1")
    web = served(adts, text.encode())
    web.routes["/live/gap.aac"] = b""
    assert same(await web.decoded(LIST), adts.pcm)


async def test_a_title_of_a_segment_is_reported(adts: HlsFiles) -> None:
    text = adts.playlist().decode().replace("#EXTINF:1.0,", "#EXTINF:1.0,The News")
    web, events = served(adts, text.encode()), list[StreamEvent]()
    await all_bytes(web, StreamOptions(on_event=events.append))
    assert events == [StreamTitle(title="The News")]


async def test_the_address_guard_refuses_a_segment_a_map_and_a_key_at_a_private_address() -> None:
    """A list on a radio's origin that is allowed, and names a canary that is not: it gets no request."""

    async def canary(origin: RawOrigin, stream: trio.SocketStream, _head: bytes) -> None:
        await answer(stream, "200 OK", b"secret")

    async with raw_origin(canary) as inside:
        url = f"{inside.url}/x"
        for line in (
            f"#EXTINF:1,\n{url}",
            f'#EXT-X-MAP:URI="{url}"\n#EXTINF:1,\nown.aac',
            f'#EXT-X-KEY:METHOD=AES-128,URI="{url}"\n#EXTINF:1,\nown.aac',
            f"#EXT-X-STREAM-INF:BANDWIDTH=1\n{url}",
        ):
            data = f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n{line}\n#EXT-X-ENDLIST\n".encode()

            async def station(
                origin: RawOrigin, stream: trio.SocketStream, _head: bytes, data: bytes = data
            ) -> None:
                await answer(stream, "200 OK", data)

            async with raw_origin(station) as own, aclosing(Web(allow_origins={origin_of(own.url)})) as web:
                with pytest.raises(BlockedAddressError, match=r"127\.0\.0\.1"):
                    async with web.media(f"{own.url}/list.m3u8").open() as reader:
                        await reader.receive_some()
        assert inside.heads == []
