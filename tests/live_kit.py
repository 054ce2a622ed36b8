"""Live streams for tests: HLS files made once by the FFmpeg program, a web in memory that serves them, and a
decoder of the whole."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx2
import pytest
import trio
from filelock import FileLock

from playhead.client.live.forms import web_form
from playhead.client.session.arrivals import Arrivals
from playhead.client.session.http_range_reader import PLAY_BYTES, HttpRangeReader
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.playback.decoder import PcmDecoder, open_decoder
from playhead.playback.decoder_source import DecoderSource
from playhead.playback.live_decoder import LiveDecoder
from playhead.stream.live_source import LinkRate
from playhead.stream.negotiation import RangeForm
from playhead.stream.options import DEFAULT_OPTIONS, StreamOptions
from playhead.stream.reader import RangeStream, open_forms
from tests.servers.answering_network import answering_client

WEB = "https://radio.example"
RATE_HZ = 22_050
SEGMENT_SECONDS = 1.0

_FORMS: Mapping[str, tuple[str, ...]] = {
    "adts": ("-f", "segment", "-segment_format", "adts", "-segment_list", "list.m3u8", "s%d.aac"),
    "ts": ("-f", "hls", "-hls_list_size", "0", "-hls_segment_filename", "s%d.ts", "list.m3u8"),
    "fmp4": (
        *("-f", "hls", "-hls_list_size", "0", "-hls_segment_type", "fmp4"),
        *("-hls_fmp4_init_filename", "init.mp4", "-hls_segment_filename", "s%d.m4s", "list.m3u8"),
    ),
}
_SPLIT = {"adts": ("-segment_time", "1"), "ts": ("-hls_time", "1"), "fmp4": ("-hls_time", "1")}


@dataclass(frozen=True, slots=True, kw_only=True)
class HlsFiles:
    """One piece of 4 s in one form: its files by name, its segments in order, and FFmpeg's own decode of
    them, joined, as floats."""

    form: str
    files: Mapping[str, bytes]
    names: tuple[str, ...]
    pcm: bytes

    @property
    def segments(self) -> list[bytes]:
        return [self.files[name] for name in self.names]

    def playlist(
        self,
        count: int | None = None,
        *,
        first: int = 0,
        kind: str = "VOD",
        is_ended: bool = True,
        target: str = "1",
        tags: Mapping[int, str] = {},
    ) -> bytes:
        """The list of the segments `[first, count)`; `tags` are written before the segment of that number."""
        lines = ["#EXTM3U", "#EXT-X-VERSION:7", f"#EXT-X-TARGETDURATION:{target}"]
        lines += [f"#EXT-X-MEDIA-SEQUENCE:{first}", *([f"#EXT-X-PLAYLIST-TYPE:{kind}"] if kind else [])]
        if "init.mp4" in self.files:
            lines.append('#EXT-X-MAP:URI="init.mp4"')
        for number in range(first, len(self.names) if count is None else count):
            lines += [*filter(None, [tags.get(number)]), "#EXTINF:1.0,", self.names[number % len(self.names)]]
        return "\n".join([*lines, *(["#EXT-X-ENDLIST"] if is_ended else []), ""]).encode()


def ffmpeg(*arguments: str | Path, cwd: Path, data: bytes | None = None) -> bytes:
    program = shutil.which("ffmpeg")
    if program is None:
        pytest.skip("no ffmpeg on PATH: install it to make HLS and to compare with its decoder")
    command = [program, "-v", "error", "-y", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, input=data, capture_output=True, check=True).stdout


def decoded_by_ffmpeg(data: bytes, cwd: Path) -> bytes:
    """FFmpeg's own decode, as floats in the machine's order, interleaved."""
    return ffmpeg("-i", "pipe:0", "-f", "f32le", "pipe:1", cwd=cwd, data=data)


def hls_files(form: str, run_directory: Path) -> HlsFiles:
    """The files of `form`, made by the first worker that asks for them."""
    place = run_directory / f"hls-{form}"
    with FileLock(f"{place}.lock"):
        if not place.exists():
            making = Path(f"{place}.new")
            making.mkdir(exist_ok=True)
            tone = f"aevalsrc=0.4*sin(2*PI*t*(300+90*t))|0.3*sin(2*PI*t*(500+70*t)):s={RATE_HZ}:d=4"
            ffmpeg(
                *("-f", "lavfi", "-i", tone, "-c:a", "aac", "-b:a", "48k"),
                *(*_SPLIT[form], *_FORMS[form]),
                cwd=making,
            )
            joined = b"".join(
                (making / name).read_bytes()
                for name in ("init.mp4", *_names(making))
                if (making / name).exists()
            )
            (making / "pcm.f32").write_bytes(decoded_by_ffmpeg(joined, making))
            making.rename(place)
    names = _names(place)
    wanted = [*names, *(["init.mp4"] if form == "fmp4" else [])]
    return HlsFiles(
        form=form,
        files={name: (place / name).read_bytes() for name in wanted},
        names=names,
        pcm=(place / "pcm.f32").read_bytes(),
    )


def _names(place: Path) -> tuple[str, ...]:
    found = (each.name for each in place.iterdir() if re.fullmatch(r"s\d+\.\w+", each.name))
    return tuple(sorted(found, key=lambda name: int(re.findall(r"\d+", name)[0])))


Route = bytes | Callable[[httpx2.Request], httpx2.Response]


@dataclass(slots=True)
class MemoryWeb:
    """The web: what each path answers, with ranges, and the requests that arrived."""

    routes: dict[str, Route] = field(default_factory=dict)
    requests: list[httpx2.Request] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        return [each.url.path for each in self.requests]

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        route = self.routes.get(request.url.path)
        if route is None:
            return httpx2.Response(404)
        if not isinstance(route, bytes):
            return route(request)
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
        if match is None:
            return _response(200, route)
        first, last = int(match[1]), min(int(match[2]), len(route) - 1)
        if first > last:
            return httpx2.Response(416, headers={"content-range": f"bytes */{len(route)}"})
        place = {"content-range": f"bytes {first}-{last}/{len(route)}"}
        return _response(206, route[first : last + 1], **place)

    @asynccontextmanager
    async def opened(
        self,
        path: str,
        *,
        options: StreamOptions = DEFAULT_OPTIONS,
        limits: Limits = DEFAULT_LIMITS,
        rate: LinkRate | None = None,
    ) -> AsyncIterator[RangeStream]:
        """Open a stream as `Web` does."""
        reader = HttpRangeReader(
            answering_client(self.answer), WEB + path, run_bytes=PLAY_BYTES, arrivals=(arrivals := Arrivals())
        )

        async def make_plain() -> RangeForm:
            return RangeForm(name="http-range", read=reader)

        async with AsyncExitStack() as stack:
            await stack.enter_async_context(aclosing(reader))
            form = web_form(
                reader,
                make_plain,
                options=options,
                limits=limits,
                rate=rate or LinkRate(),
                server_name=WEB + path,
                stack=stack,
            )
            stream = open_forms(
                [form],
                options=options,
                limits=limits,
                size_bytes=None,
                server_name=WEB + path,
                last_received=arrivals.last_received,
            )
            async with stream as opened:
                yield opened

    async def decoded(self, path: str, *, rate: LinkRate | None = None) -> bytes:
        """Play a path to its end as fast as it arrives, and return its PCM."""
        async with self.opened(path, rate=rate) as stream:
            return await trio.to_thread.run_sync(decode_all, stream)


@dataclass(slots=True, kw_only=True)
class LiveMedia:
    """A live stream of a `MemoryWeb`, for a player."""

    web: MemoryWeb
    path: str
    title: str = "live"
    mime_type: str | None = None
    size_bytes: int | None = None
    uri: str | None = None
    stream: RangeStream | None = None

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[RangeStream]:
        async with self.web.opened(self.path, options=options or DEFAULT_OPTIONS) as self.stream:
            yield self.stream


def _response(status: int, body: bytes, **headers: str) -> httpx2.Response:
    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 1500):
            yield body[at : at + 1500]

    return httpx2.Response(status, headers={**headers, "content-length": str(len(body))}, content=chunks())


def decoder_of(stream: RangeStream) -> PcmDecoder:
    """The decoder of a stream, as the player makes it. For a thread."""
    source = DecoderSource(stream)
    opened = partial(open_decoder, source, mime_type=None, uri=None)
    first = opened()
    return first if source.live is None else LiveDecoder(source, source.live, first, opened)


def decode_all(stream: RangeStream) -> bytes:
    decoder = decoder_of(stream)
    try:
        return b"".join(iter(lambda: bytes(memoryview(decoder.read()).cast("B")), b""))
    finally:
        decoder.close()


def decode_some(stream: RangeStream, n_bytes: int) -> bytes:
    """The first `n_bytes` of PCM, or more, of a stream that may have no end."""
    decoder, pcm = decoder_of(stream), b""
    try:
        while len(pcm) < n_bytes and (piece := bytes(memoryview(decoder.read()).cast("B"))):
            pcm += piece
        return pcm
    finally:
        decoder.close()


def tagged_opus(number: int, run_directory: Path) -> bytes:
    """Half a second of Ogg Opus with a title."""
    place = run_directory / f"link-{number}.opus"
    with FileLock(f"{place}.lock"):
        if not place.exists():
            tone = f"sine=frequency={300 + 200 * number}:sample_rate=48000:duration=0.5"
            tags = ("-metadata", f"title=Song {number}", "-metadata", "artist=Band")
            ffmpeg("-f", "lavfi", "-i", tone, "-c:a", "libopus", *tags, "new.opus", cwd=run_directory)
            (run_directory / "new.opus").rename(place)
    return place.read_bytes()
