"""Web resources without a server: one GET tells what a URL is, and audio is read on from its answer."""

from __future__ import annotations

from contextlib import aclosing

import pytest
import trio

from playhead.client.web import Web, WebKind, encoded_url, kind_of, origin_of
from playhead.errors import AccessDeniedError, BlockedAddressError
from playhead.limits import DEFAULT_LIMITS, Limits
from tests.servers.raw_origin import RawOrigin, answer, answer_range, bounds, raw_origin
from tests.servers.wave import wave_header

WAVE = wave_header(200_000) + bytes(range(250)) * 800


def web(origin: RawOrigin, limits: Limits = DEFAULT_LIMITS) -> Web:
    return Web(allow_origins={origin_of(origin.url)}, limits=limits)


async def ranges(origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
    await answer_range(stream, head, WAVE, "content-type: audio/wav")


async def test_audio_is_read_on_from_the_answer_that_told_what_it_is() -> None:
    async with raw_origin(ranges) as origin, web(origin) as reached:
        asked = await reached.ask(f"{origin.url}/a/My%20song.wav")
        assert (asked.kind, asked.media.title, asked.media.mime_type) == (
            WebKind.AUDIO,
            "My song.wav",
            "audio/wav",
        )
        async with asked.media.open() as stream:
            assert await stream.read_all() == WAVE
        assert [bounds(head)[0] for head in origin.heads].count(0) == 1
        async with asked.media.open() as stream:  # again: another GET
            assert await stream.read_all() == WAVE


async def test_an_event_stream_that_sends_nothing_is_a_server_at_once() -> None:
    async def silent(_origin: RawOrigin, stream: trio.SocketStream, _head: bytes) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        await trio.sleep_forever()

    async with raw_origin(silent) as origin, aclosing(web(origin)) as reached:
        with trio.fail_after(30):
            asked = await reached.ask(f"{origin.url}/mcp")
        assert (asked.kind, asked.got) == (WebKind.SERVER, "text/event-stream")


@pytest.mark.parametrize("status", [400, 404, 405, 406])
@pytest.mark.parametrize(
    ("path", "kind"), [("/mcp", WebKind.SERVER), ("/a.mp3", WebKind.OTHER), ("/a.m3u?x", WebKind.OTHER)]
)
async def test_a_refusal_is_a_servers_unless_the_url_names_a_file(
    status: int, path: str, kind: WebKind
) -> None:
    async def refuse(_origin: RawOrigin, stream: trio.SocketStream, _head: bytes) -> None:
        await answer(stream, f"{status} No")

    async with raw_origin(refuse) as origin, aclosing(web(origin)) as reached:
        asked = await reached.ask(f"{origin.url}{path}")
        assert (asked.kind, asked.got) == (kind, f"HTTP {status}")


async def test_another_refusal_is_an_error() -> None:
    async def refuse(_origin: RawOrigin, stream: trio.SocketStream, _head: bytes) -> None:
        await answer(stream, "403 Forbidden")

    async with raw_origin(refuse) as origin, aclosing(web(origin)) as reached:
        with pytest.raises(AccessDeniedError, match="403"):
            await reached.ask(f"{origin.url}/mcp")


@pytest.mark.parametrize("has_length", [True, False])
async def test_a_playlist_is_read_whole_up_to_the_limit(has_length: bool) -> None:
    data = b"#EXTM3U\n" + b"http://127.0.0.1:9/a.mp3\n" * 4_000

    async def playlist(_origin: RawOrigin, stream: trio.SocketStream, _head: bytes) -> None:
        if has_length:
            await answer(stream, "200 OK", data, "content-type: audio/x-mpegurl")
        else:
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n"
            await stream.send_all(head + data)
            raise trio.BrokenResourceError

    async with raw_origin(playlist) as origin:
        async with aclosing(web(origin)) as reached:
            asked = await reached.ask(f"{origin.url}/list")
            assert asked.kind is WebKind.PLAYLIST
            assert await reached.read_playlist(asked) == data
        async with aclosing(web(origin, Limits(playlist_bytes=70_000))) as reached:
            asked = await reached.ask(f"{origin.url}/list")
            assert len(await reached.read_playlist(asked)) > 70_000, "which `playlist_entries` refuses"


async def test_only_allowed_origins_are_reached_on_this_machine() -> None:
    async with raw_origin(ranges) as origin, aclosing(Web()) as reached:
        with pytest.raises(BlockedAddressError):
            await reached.ask(f"{origin.url}/a.wav")
        with pytest.raises(BlockedAddressError):
            async with reached.media(f"{origin.url}/a.wav").open() as stream:
                await stream.read_all()
        assert origin.heads == []


@pytest.mark.parametrize(
    ("url", "mime_type", "head", "kind"),
    [
        ("/x", "audio/mpeg", b"", WebKind.AUDIO),
        ("/x", "video/mp4", b"\0\0\0\x20ftypisom", WebKind.AUDIO),
        ("/x", "application/octet-stream", b"ID3\x04", WebKind.AUDIO),
        ("/x.mp3", "application/octet-stream", b"\xff\xfe\0\0", WebKind.AUDIO),
        ("/x", "application/octet-stream", b"\x7fELF", WebKind.OTHER),
        ("/x.mp3", "image/png", b"\x89PNG", WebKind.OTHER),
        ("/x.mp3", "text/html", b"<!doctype html>", WebKind.OTHER),
        ("/x.mp3", "audio/mpeg", b"<html>Not found, sorry</html>", WebKind.OTHER),
        ("/x.m3u", "text/html", b"<!doctype html>", WebKind.OTHER),
        ("/x.pls", "text/plain", b"[Playlist]", WebKind.PLAYLIST),
        ("/x", "text/plain", b"#EXTM3U\n", WebKind.PLAYLIST),
        ("/x", "audio/x-scpls", b"[playlist]\n", WebKind.PLAYLIST),
        ("/x", "text/plain", b"hello, world", WebKind.OTHER),
    ],
)
def test_the_type_the_first_bytes_and_the_suffix_tell_what_an_answer_is(
    url: str, mime_type: str, head: bytes, kind: WebKind
) -> None:
    assert kind_of(f"http://radio.example{url}", mime_type, head) is kind


def test_a_url_may_be_typed_with_spaces_and_letters_of_any_kind() -> None:
    assert (
        encoded_url("http://a.example/Ö b%20c.mp3?d=[1]&e") == "http://a.example/%C3%96%20b%20c.mp3?d=[1]&e"
    )
