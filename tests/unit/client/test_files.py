"""Files and URLs out of band: from the result of a tool to the bytes of another origin."""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp.server.lowlevel import Server
from mcp_types import CLIENT_CAPABILITIES_META_KEY

from playhead import errors
from playhead.client import Session, connect
from playhead.client.call_results.media import ResourceMedia
from playhead.client.call_results.spool import NotSaved, Saved
from playhead.client.call_results.tee import TeeMedia
from playhead.config.outputs import OutputStore
from playhead.config.servers import ServerConfig
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.playback import NullSink, Player
from playhead.results.plan import Policy, SendText
from tests.servers.raw_http import Exchange, raw_http
from tests.servers.raw_origin import Handler, RawOrigin, answer, answer_range, bounds, raw_origin
from tests.servers.wave import CHANNELS, HEADER_BYTES, RATE_HZ, wave_header


def wave(seconds: int) -> bytes:
    n_bytes = seconds * RATE_HZ * CHANNELS * 2
    return wave_header(HEADER_BYTES + n_bytes) + random.Random(seconds).randbytes(n_bytes)


SONG = wave(2)
DIGEST = hashlib.sha256(SONG).hexdigest()
HANDLE = "mcp-file://songs/4711"


@dataclass
class FileServer:
    """An MCP server whose one tool returns `result`, and which authorises downloads of `HANDLE`."""

    result: dict[str, Any] = field(default_factory=dict)
    download: dict[str, Any] = field(default_factory=dict)
    file: dict[str, Any] = field(default_factory=lambda: {"uri": HANDLE})
    declares: bool = True
    methods: list[str] = field(default_factory=list)

    async def __call__(self, exchange: Exchange) -> None:
        match exchange.method:
            case "tools/call":
                await exchange.result({"content": [], **self.result})
            case "files/authorizeDownload" if exchange.message["params"]["uri"] == HANDLE:
                await exchange.result({"file": self.file, "download": self.download})
            case "files/authorizeDownload":
                await exchange.error(-32602, "unknown file")
            case _:
                await exchange.error(-32601, "Method not found")

    @asynccontextmanager
    async def session(self, *origins: RawOrigin, limits: Limits = DEFAULT_LIMITS) -> AsyncIterator[Session]:
        """Connect to it, with `origins` allowed."""
        async with raw_http(self) as server:
            self.methods = server.methods
            if self.declares:
                server.capabilities["files"] = {"download": True, "transports": ["https"]}
            config = ServerConfig(url=server.url, allow_origins=tuple(origin.url for origin in origins))
            async with connect(config, limits=limits) as session:
                yield session


def anything(_head: bytes) -> bool:
    return True


def serves(
    body: bytes, *, mime_type: str = "audio/wav", allows: Callable[[bytes], bool] = anything
) -> Handler:
    """Serve `body` in ranges to the requests that `allows` accepts; 403 to the others."""

    async def handle(origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
        if allows(head):
            await answer_range(stream, head, body, f"content-type: {mime_type}", 'etag: "song"')
        else:
            await answer(stream, "403 Forbidden")

    return handle


def file_block(**facts: object) -> dict[str, Any]:
    named = {"uri": HANDLE, "name": "song.wav", "mimeType": "audio/wav", "size": len(SONG)}
    return {"type": "file", "file": {**named, **facts}}


def files_in(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


async def only_media(session: Session) -> ResourceMedia:
    (media,) = (await session.call_tool("song")).media
    assert isinstance(media, ResourceMedia)
    return media


# --- files (SEP-2631) -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_client_declares_that_it_downloads_files(mode: str) -> None:
    declared: list[object] = []

    async def listen(ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        params = ctx.params or {}
        modern = (params.get("_meta") or {}).get(CLIENT_CAPABILITIES_META_KEY)
        declared.append(modern if ctx.method != "initialize" else params["capabilities"])
        return await call_next(ctx)

    server: Server[Any] = Server("listens")
    server.middleware.insert(0, listen)
    async with connect(server, mode=mode) as session:
        with suppress(errors.ServerError):
            await session.list_resources()
    assert {"files": {"download": True, "transports": ["https"]}} in declared


async def test_a_file_of_a_result_is_read_from_where_the_server_says() -> None:
    server = FileServer(result={"content": [file_block(digest={"sha-256": DIGEST})]})
    async with raw_origin(serves(SONG)) as origin, server.session(origin) as session:
        server.download = {
            "transport": "https",
            "method": "GET",
            "url": f"{origin.url}/song?signature=s",
            "headers": {"X-Ticket": "t"},
            "expiresAt": "2099-01-01T00:00:00Z",
        }
        media = await only_media(session)
        assert (media.title, media.size_bytes) == ("song.wav", len(SONG))
        async with media.open() as stream:
            assert await stream.read_all() == SONG
        told = stream.statistics()
    assert (told.strategy, told.strategy_reason) == ("file", "the result names it as a file")
    assert b"x-ticket: t\r\n" in origin.heads[0].lower()
    assert "resources/read" not in server.methods


async def test_a_file_by_its_handle_is_read_if_the_server_declares_files() -> None:
    server = FileServer()
    async with raw_origin(serves(SONG)) as origin, server.session(origin) as session:
        server.download = {"url": origin.url}
        async with session.open(HANDLE) as stream:
            assert await stream.read_all() == SONG
        assert stream.statistics().strategy == "file"


async def test_a_file_that_the_server_does_not_authorise_is_its_error() -> None:
    server = FileServer(result={"content": [file_block(uri="mcp-file://gone")]})
    async with server.session() as session, (await only_media(session)).open() as stream:
        with pytest.raises(errors.ServerError, match="unknown file") as caught:
            await stream.read_all()
    assert caught.value.code == -32602


async def test_a_download_at_an_origin_that_is_not_allowed_is_not_requested() -> None:
    server = FileServer(result={"content": [file_block()]})
    async with raw_origin(serves(SONG)) as origin, server.session() as session:
        server.download = {"url": f"{origin.url}/song?signature=canary"}
        async with (await only_media(session)).open() as stream:
            with pytest.raises(errors.BlockedAddressError) as caught:
                await stream.read_all()
    assert origin.heads == []
    assert "canary" not in str(caught.value)


async def test_a_link_that_expires_in_the_middle_plays_on() -> None:
    """The first URL is refused from the middle of the file on; the player hears all of it, without a gap."""
    long = wave(40)
    server = FileServer(result={"content": [file_block(size=len(long))]})

    def allows(head: bytes) -> bool:
        is_second = server.methods.count("files/authorizeDownload") > 1
        return is_second or bounds(head)[0] < len(long) // 2

    sink = NullSink(real_time=False)
    async with raw_origin(serves(long, allows=allows)) as origin, server.session(origin) as session:
        server.download = {"url": f"{origin.url}/song"}
        async with Player(sink) as player:
            await player.play(await only_media(session))
            await player.wait_finished()
            assert player.snapshot().underruns == 0
    assert server.methods.count("files/authorizeDownload") == 2
    assert sink.report is not None
    assert sink.report.frames == (len(long) - HEADER_BYTES) // 4


@pytest.mark.parametrize("where", ["block", "authorisation"])
async def test_wrong_bytes_are_an_error_after_them_and_nothing_is_saved(where: str, tmp_path: Path) -> None:
    wrong = {"digest": {"algorithm": "sha-256", "value": hashlib.sha256(b"other").hexdigest()}}
    server = FileServer(result={"content": [file_block(**wrong if where == "block" else {})]})
    if where == "authorisation":
        server.file |= wrong
    async with raw_origin(serves(SONG)) as origin, server.session(origin) as session:
        server.download = {"url": origin.url}
        media = await only_media(session)
        async with media.open() as stream:
            assert await trio.to_thread.run_sync(stream.file().read, len(SONG)) == SONG
            with pytest.raises(errors.DigestError) as caught:
                await stream.receive_some()
        assert (caught.value.got, caught.value.offset) == (DIGEST, len(SONG))
        async with media.open() as stream:
            with pytest.raises(errors.DigestError):
                await stream.save(tmp_path / "song.wav")
        assert files_in(tmp_path) == []


async def test_a_player_reports_wrong_bytes_after_it_has_played_them() -> None:
    """The decoder stops at the last frame and never reads the end."""
    server = FileServer(result={"content": [file_block(digest={"sha-256": "0" * 64})]})
    sink = NullSink(real_time=False)
    async with raw_origin(serves(SONG)) as origin, server.session(origin) as session:
        server.download = {"url": origin.url}
        async with Player(sink) as player:
            await player.play(await only_media(session))
            with pytest.raises(errors.DigestError):
                await player.wait_finished()
    assert sink.report is not None
    assert sink.report.frames == (len(SONG) - HEADER_BYTES) // 4


@pytest.mark.parametrize("digest", [DIGEST, hashlib.sha256(b"other").hexdigest()])
async def test_an_output_is_saved_only_if_its_digest_is_right(digest: str, tmp_path: Path) -> None:
    """The decoder skips bytes, so the whole file is checked on the disk."""
    server = FileServer(result={"content": [file_block(digest={"sha-256": digest})]})
    store = OutputStore(tmp_path)
    async with raw_origin(serves(SONG)) as origin, server.session(origin) as session:
        server.download = {"url": origin.url}
        media = TeeMedia(await only_media(session), lambda: store.open_writer("files__song", {}))
        async with media.open() as reader:
            await trio.to_thread.run_sync(_skip_and_read, reader)
        outcome = await media.saved()
    if digest == DIGEST:
        assert isinstance(outcome, Saved)
        assert outcome.output.path.read_bytes() == SONG
    else:
        assert isinstance(outcome, NotSaved)
        assert isinstance(outcome.error, errors.DigestError)
        assert files_in(tmp_path) == []


def _skip_and_read(reader: Any) -> None:
    buffer = bytearray(4096)
    reader.readinto(buffer[:44])
    reader.seek_from_thread(100_000)
    while reader.readinto(buffer):
        pass


# --- URLs of the web --------------------------------------------------------------------------------------

RESULTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "text": lambda url: {"content": [{"type": "text", "text": f" {url}\n"}]},
    "tag": lambda url: {"content": [{"type": "text", "text": f'Here: <audio controls src="{url}"></audio>'}]},
    "source": lambda url: {
        "content": [{"type": "text", "text": f"<audio>\n <source type='audio/wav' src='{url}'></audio>"}]
    },
    "downloadUrl": lambda url: {"structuredContent": {"downloadUrl": url}},
    "httpUrl": lambda url: {"structuredContent": {"song": {"httpUrl": url}}},
    "audio_url": lambda url: {"structuredContent": {"results": [{"audio_url": url}]}},
    "url": lambda url: {"structuredContent": {"result": {"url": url, "title": "Song", "codec": "pcm"}}},
}


@pytest.mark.parametrize("place", RESULTS)
async def test_a_url_whose_origin_serves_audio_is_media(place: str) -> None:
    server = FileServer(declares=False)
    async with raw_origin(serves(SONG)) as origin, server.session(origin) as session:
        name = "track.wav" if place in ("tag", "source") else "track"  # prose needs a suffix
        url = f"{origin.url}/{name}?id=7"
        server.result = RESULTS[place](url)
        result = await session.call_tool("song")
        (media,) = result.media
        assert isinstance(media, ResourceMedia)
        assert (media.uri, media.mime_type) == (url, "audio/wav")
        assert media.title == ("Song" if place == "url" else name)
        assert result.turn.decision == "stop"
        assert any(isinstance(part, SendText) for part in result.plan.parts())  # the model reads it, too
        async with media.open() as stream:
            assert await stream.read_all() == SONG
        assert stream.statistics().strategy == "http-range"


async def test_bytes_tell_where_the_origin_gives_no_type() -> None:
    server = FileServer()
    kind = "application/octet-stream"
    async with raw_origin(serves(SONG, mime_type=kind)) as origin, server.session(origin) as session:
        server.result = RESULTS["text"](f"{origin.url}/track")
        assert len((await session.call_tool("song")).media) == 1


@pytest.mark.parametrize("place", RESULTS)
async def test_a_url_whose_origin_serves_something_else_is_text_only(place: str) -> None:
    server = FileServer()
    html = b"<html>" + bytes(100)
    async with (
        raw_origin(serves(html, mime_type="text/html")) as origin,
        server.session(origin) as session,
    ):
        server.result = RESULTS[place](f"{origin.url}/track")
        result = await session.call_tool("song")
    assert result.media == ()
    assert result.turn.decision == "continue"


async def test_no_origin_is_asked_for_an_error_nor_where_the_policy_forbids_it() -> None:
    server = FileServer()
    async with raw_origin(serves(SONG)) as origin, server.session(origin) as session:
        server.result = RESULTS["text"](f"{origin.url}/track")
        assert (await session.call_tool("song", policy=Policy(sniff_links=False))).media == ()
        server.result["isError"] = True
        assert (await session.call_tool("song")).media == ()
    assert origin.heads == []


async def test_a_url_at_an_origin_that_is_not_allowed_is_not_requested() -> None:
    server = FileServer()
    async with raw_origin(serves(SONG)) as origin, server.session() as session:
        server.result = RESULTS["downloadUrl"](f"{origin.url}/track")
        assert (await session.call_tool("song")).media == ()
    assert origin.heads == []


async def test_a_result_asks_a_bounded_number_of_origins() -> None:
    server = FileServer()
    async with raw_origin(serves(b"words" * 100, mime_type="text/plain")) as origin:
        urls = [{"audio_url": f"{origin.url}/{index}"} for index in range(20)]
        server.result = {"structuredContent": {"items": urls}}
        async with server.session(origin, limits=Limits(candidates=3)) as session:
            assert (await session.call_tool("song")).media == ()
    paths = {head.split()[1] for head in origin.heads}
    assert paths == {b"/0", b"/1", b"/2"}
