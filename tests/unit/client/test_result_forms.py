"""Audio that a result names: asked for with few, bare requests, where the user allows it, and then heard."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trio
import trio.testing

from playhead.client import CallResult, Session, connect
from playhead.config.servers import ServerConfig
from playhead.content.playlists import HLS_MIME
from playhead.errors import BlockedAddressError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.playback import NullSink, Player
from tests.live_kit import hls_files
from tests.servers.raw_http import Exchange, raw_http
from tests.servers.raw_origin import RawOrigin, answer, answer_range, raw_origin

DATA = Path(__file__).parents[2] / "data"
SONG = (DATA / "chord.wav").read_bytes()
OTHER = (DATA / "tagged.mp3").read_bytes()
PAGE = b"<!DOCTYPE html><p>no audio"


@asynccontextmanager
async def site(files: Mapping[str, tuple[str, bytes]]) -> AsyncIterator[RawOrigin]:
    """An origin with these files, in which `{origin}` stands for its own URL."""

    async def handle(origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
        path = head.split()[1].decode().partition("?")[0]
        mime_type, body = files.get(path, ("", b""))
        if path not in files:
            await answer(stream, "404 Not Found")
            return
        if mime_type == "redirect":
            await answer(stream, "302 Found", b"", f"location: {body.decode()}")
            return
        body = body.replace(b"{origin}", origin.url.encode())
        await answer_range(stream, head, body, f"content-type: {mime_type}")

    async with raw_origin(handle) as origin:
        yield origin


@asynccontextmanager
async def session_with(
    result: Mapping[str, Any],
    *,
    allow_origins: tuple[str, ...] = (),
    allow_paths: tuple[str, ...] = (),
    limits: Limits = DEFAULT_LIMITS,
    resource: str = "",
) -> AsyncIterator[Session]:
    async def handle(exchange: Exchange) -> None:
        if exchange.method == "tools/call":
            await exchange.result({"content": [], **result})
        elif exchange.method == "resources/read":
            contents = {"uri": exchange.message["params"]["uri"], "text": resource}
            await exchange.result({"contents": [contents]})
        else:
            await exchange.error(-32601, "Method not found")

    async with raw_http(handle) as server:
        headers = {"Authorization": "Bearer secret", "Cookie": "secret=1"}
        config = ServerConfig(
            url=server.url, headers=headers, allow_origins=allow_origins, allow_paths=allow_paths
        )
        async with connect(config, limits=limits) as session:
            yield session


async def called(result: Mapping[str, Any], **settings: Any) -> CallResult:
    async with session_with(result, **settings) as session:
        return await session.call_tool("x")


def text(value: object) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def outcomes(result: CallResult) -> list[tuple[str, str]]:
    return [(each.row, each.verdict.reason if each.verdict else "") for each in result.plan.candidates]


async def frames_heard(session: Session) -> list[int]:
    """Play all media of a result; return the frames of each."""
    heard: list[int] = []
    for media in (await session.call_tool("x")).media:
        sink = NullSink(real_time=False)
        async with Player(sink) as player:
            await player.play(media)
            await player.wait_finished()
        assert sink.report is not None
        heard.append(sink.report.frames)
    return heard


# --- requests ----------------------------------------------------------------------------------------------


async def test_a_candidate_costs_one_bare_get_with_a_range() -> None:
    async with site({"/a.wav": ("audio/wav", SONG)}) as origin:
        result = await called(text(f"Success. Audio URL: {origin.url}/a.wav."), allow_origins=(origin.url,))
        (media,) = result.media
        assert (media.uri, media.mime_type) == (f"{origin.url}/a.wav", "audio/wav")
        (head,) = origin.heads
        assert head.startswith(b"GET /a.wav ")
        assert b"range: bytes=0-" in head.lower()
        assert b"secret" not in head


async def test_audio_in_the_result_itself_is_heard_without_a_request() -> None:
    data = base64.b64encode(SONG).decode()
    async with site({"/a.wav": ("audio/wav", SONG)}) as origin:
        result = await called(
            text({"audio": data, "url": f"{origin.url}/a.wav"}), allow_origins=(origin.url,)
        )
        assert [media.uri for media in result.media] == [None]
        assert origin.heads == []
    assert ("url", "not asked: the result itself holds audio") in outcomes(result)
    assert data[:100] not in result.text_for_model


async def test_the_same_audio_at_two_urls_is_one_item() -> None:
    files = {"/a.mp3": ("audio/mpeg", OTHER), "/b.mp3": ("audio/mpeg", OTHER), "/c.wav": ("audio/wav", SONG)}
    async with site(files) as origin:
        urls = {
            "first": f"{origin.url}/a.mp3",
            "second": f"{origin.url}/b.mp3",
            "third": f"{origin.url}/c.wav",
        }
        result = await called({"structuredContent": urls}, allow_origins=(origin.url,))
    assert [media.uri for media in result.media] == [urls["first"], urls["third"]]


@pytest.mark.parametrize(
    ("mime_type", "body", "is_audio"),
    [
        ("audio/wav", SONG, True),
        ("application/octet-stream", SONG, True),
        ("text/html", PAGE, False),
        ("audio/mpeg", PAGE, False),
        ("audio/mpeg", b"\x89PNG\r\n\x1a\n" + bytes(100), False),
        ("image/png", b"\x89PNG\r\n\x1a\n" + bytes(100), False),
        ("application/json", b"{}", False),
    ],
)
async def test_bytes_and_the_type_of_the_origin_decide(mime_type: str, body: bytes, is_audio: bool) -> None:
    async with site({"/a.mp3": (mime_type, body)}) as origin:
        result = await called(
            {"structuredContent": {"audio_url": f"{origin.url}/a.mp3"}}, allow_origins=(origin.url,)
        )
    assert bool(result.media) is is_audio
    assert result.turn.decision == ("stop" if is_audio else "continue")


async def test_candidates_beyond_the_limit_are_not_asked() -> None:
    async with site({}) as origin:
        urls = [f"{origin.url}/{number}.mp3" for number in range(20)]
        result = await called({"structuredContent": {"urls": urls}}, allow_origins=(origin.url,))
        assert len(origin.heads) == DEFAULT_LIMITS.candidates == 16
    assert "Limits.candidates" in outcomes(result)[-1][1]


async def test_two_requests_are_under_way_at_a_time(autojump_clock: trio.testing.MockClock) -> None:
    busy = most = 0

    async def handle(_origin: RawOrigin, stream: trio.SocketStream, _head: bytes) -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await trio.sleep(0.1)
        busy -= 1
        await answer(stream, "404 Not Found")

    async with raw_origin(handle) as origin:
        urls = [f"{origin.url}/{number}.mp3" for number in range(8)]
        await called({"structuredContent": {"urls": urls}}, allow_origins=(origin.url,))
        assert (len(origin.heads), most) == (8, 2)


async def test_a_silent_origin_costs_a_stated_time(autojump_clock: trio.testing.MockClock) -> None:
    async def handle(_origin: RawOrigin, _stream: trio.SocketStream, _head: bytes) -> None:
        await trio.sleep_forever()

    async with raw_origin(handle) as origin:
        result = await called(text(f"{origin.url}/a.mp3"), allow_origins=(origin.url,))
    assert "Limits.sniff_seconds" in outcomes(result)[0][1]


# --- permissions -------------------------------------------------------------------------------------------


async def test_the_origin_of_the_server_itself_is_allowed() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.result(text(f"{server.url.rpartition('/')[0]}/a.mp3"))

    async with raw_http(handle) as server, connect(ServerConfig(url=server.url)) as session:
        result = await session.call_tool("x")
    assert result.plan.refused == ()


async def test_a_refused_url_names_its_permission_and_sees_no_request() -> None:
    async with site({"/a.mp3": ("audio/mpeg", OTHER)}) as canary:
        result = await called(text({"audio_url": f"{canary.url}/a.mp3"}))
        (refused,) = result.plan.refused
        assert refused.verdict is not None
        assert refused.verdict.permission == ("allow_origins", canary.url)
        assert "not allowed (allow_origins" in result.text_for_model
        assert canary.heads == []
    assert result.turn.decision == "continue"


SSRF = [
    "http://127.1:{port}/a.mp3",
    "http://2130706433:{port}/a.mp3",
    "http://0x7f000001:{port}/a.mp3",
    "http://0177.0.0.1:{port}/a.mp3",
    "http://[::ffff:127.0.0.1]:{port}/a.mp3",
    "http://user:pw@127.0.0.1:{port}/a.mp3",
    "http://localhost:{port}/a.mp3",
    "http://127.0.0.1:{port}/a.mp3",
    "gopher://127.0.0.1:{port}/a.mp3",
    "ftp://127.0.0.1:{port}/a.mp3",
    "http://127.0.0.1:{port}/\r\na.mp3",
    "data:audio/mpeg,a.mp3",
    "file:///etc/passwd.mp3",
]


@pytest.mark.parametrize("form", SSRF)
async def test_no_form_of_address_reaches_a_canary(form: str) -> None:
    async with site({"/a.mp3": ("audio/mpeg", OTHER)}) as canary:
        url = form.replace("{port}", str(canary.port))
        lists = {
            "/a.m3u": ("audio/x-mpegurl", f"#EXTM3U\n{url}\n".encode()),
            "/a.pls": ("audio/x-scpls", f"[playlist]\nFile1={url}\n".encode()),
            "/nested.m3u": ("audio/x-mpegurl", b"a.m3u\na.pls\n"),
            "/redirect.mp3": ("redirect", url.replace("\r\n", "").encode()),
        }
        async with site(lists) as allowed:
            link = {"type": "resource_link", "uri": f"{allowed.url}/a.m3u", "name": "list"}
            prose = f"Audio URL: {url} and [this]({url})"
            for result in (
                text(url),
                text(prose),
                text({"audio_url": url}),
                {"structuredContent": {"url": url, "file": url, "path": url}},
                text(f"{allowed.url}/a.m3u and {allowed.url}/a.pls"),
                text({"stream_url": f"{allowed.url}/nested.m3u"}),
                text(f"{allowed.url}/redirect.mp3"),
                {"content": [link]},
            ):
                found = await called(result, allow_origins=(allowed.url,))
                assert found.media == ()
        assert canary.heads == []


# --- playlists ---------------------------------------------------------------------------------------------


async def test_a_playlist_gives_its_entries_in_order_with_titles() -> None:
    files = {
        "/top.m3u": (
            "audio/x-mpegurl",
            b"#EXTM3U\n#EXTINF:2,One\na.wav\n#EXTINF:3,Inner\ninner.pls\ngone.mp3\n",
        ),
        "/inner.pls": ("audio/x-scpls", b"[playlist]\nFile1=b.mp3\nTitle1=Two\n"),
        "/a.wav": ("audio/wav", SONG),
        "/b.mp3": ("audio/mpeg", OTHER),
    }
    async with site(files) as origin:
        result = await called(text(f"{origin.url}/top.m3u"), allow_origins=(origin.url,))
        assert [(media.title, media.uri) for media in result.media] == [
            ("One", f"{origin.url}/a.wav"),
            ("Two", f"{origin.url}/b.mp3"),
            ("gone.mp3", f"{origin.url}/gone.mp3"),
        ]
        paths = [head.split()[1] for head in origin.heads]
        assert paths == [b"/top.m3u", b"/a.wav", b"/inner.pls"], "later entries are not asked"
    assert result.turn.decision == "stop"


LISTED = "#EXTM3U\n#EXTINF:2,One\n{origin}/a.wav\n#EXTINF:3,Two\n{origin}/b.mp3\n"
LISTED_IN_PLS = "[playlist]\nFile1={origin}/a.wav\nTitle1=One\nFile2={origin}/b.mp3\nTitle2=Two\n"
BARE = "{origin}/a.wav\n{origin}/b.mp3\n"


def holding(value: Any, playlist: str) -> Any:
    """`value` with the playlist in its places, also in those of JSON in text."""
    match value:
        case dict():
            return {key: holding(inner, playlist) for key, inner in value.items()}
        case list():
            return [holding(inner, playlist) for inner in value]
        case str() if value.startswith('{"'):
            return json.dumps(holding(json.loads(value), playlist))
        case str():
            encoded = base64.b64encode(playlist.encode()).decode()
            value = value.replace("{list}", playlist).replace("{base64}", encoded)
            return value.replace("{quoted}", quote(playlist))
        case _:
            return value


def link(uri: str, **fields: str) -> dict[str, Any]:
    return {"content": [{"type": "resource_link", "uri": uri, "name": "l"} | fields]}


def resource(**fields: str) -> dict[str, Any]:
    return {"content": [{"type": "resource", "resource": fields}]}


@pytest.mark.parametrize(
    ("result", "playlist"),
    [
        (text("{list}"), LISTED),
        (text("\n{list}"), LISTED_IN_PLS),
        ({"structuredContent": {"playlist": "{list}"}}, LISTED),
        (text({"playlist": "{list}"}), LISTED_IN_PLS),
        (resource(uri="radio://list", text="{list}"), LISTED),
        (resource(uri="radio://list.m3u", text="{list}"), BARE),
        (resource(uri="radio://list", mimeType="audio/x-scpls", text="{list}"), LISTED_IN_PLS),
        (resource(uri="radio://list", mimeType="audio/x-mpegurl", blob="{base64}"), LISTED),
        (link("radio://list.m3u"), LISTED),
        (link("radio://x", mimeType="audio/x-scpls"), LISTED_IN_PLS),
        (link("data:audio/x-mpegurl;base64,{base64}"), LISTED),
        (link("data:audio/x-scpls,{quoted}"), LISTED_IN_PLS),
    ],
)
async def test_a_playlist_in_the_result_gives_its_entries(result: dict[str, Any], playlist: str) -> None:
    files = {"/a.wav": ("audio/wav", SONG), "/b.mp3": ("audio/mpeg", OTHER)}
    async with site(files) as origin:
        content = playlist.replace("{origin}", origin.url)
        result = holding(result, content)
        async with session_with(result, allow_origins=(origin.url,), resource=content) as session:
            played = await session.call_tool("x")
            titles = ["a.wav", "b.mp3"] if playlist is BARE else ["One", "Two"]
            assert [(media.title, media.uri) for media in played.media] == [
                (titles[0], f"{origin.url}/a.wav"),
                (titles[1], f"{origin.url}/b.mp3"),
            ]
            assert [head.split()[1] for head in origin.heads] == [b"/a.wav"]
            assert [each.row for each in played.plan.candidates] == ["playlist"]
            assert played.turn.decision == "stop"
            assert len(await frames_heard(session)) == 2
        refused = await called(result, resource=content)
    assert (refused.media, refused.turn.decision) == ((), "continue")
    assert [each.verdict and each.verdict.permission for each in refused.plan.refused] == [
        ("allow_origins", origin.url)
    ]


async def test_a_playlist_nests_no_deeper_than_its_limit_and_may_name_itself() -> None:
    files = {"/top.m3u": ("audio/x-mpegurl", b"top.m3u\n")}
    async with site(files) as origin:
        result = await called(text(f"{origin.url}/top.m3u"), allow_origins=(origin.url,))
        assert len(origin.heads) == DEFAULT_LIMITS.playlist_depth
    assert result.media == ()
    assert "Limits.playlist_depth" in outcomes(result)[0][1]


async def test_a_playlist_of_a_local_address_names_the_permission() -> None:
    async with (
        site({}) as canary,
        site({"/a.m3u": ("audio/x-mpegurl", f"{canary.url}/x".encode())}) as origin,
    ):
        result = await called(text(f"{origin.url}/a.m3u"), allow_origins=(origin.url,))
        assert [each.verdict and each.verdict.permission for each in result.plan.candidates] == [
            ("allow_origins", canary.url)
        ]


@pytest.mark.parametrize("body", [PAGE, b""])
async def test_what_is_not_a_playlist_plays_nothing(body: bytes) -> None:
    async with site({"/a.m3u8": ("application/vnd.apple.mpegurl", body)}) as origin:
        assert (await called(text(f"{origin.url}/a.m3u8"), allow_origins=(origin.url,))).media == ()


async def test_an_hls_playlist_is_one_item_and_its_segments_are_heard(run_directory: Path) -> None:
    piece = hls_files("adts", run_directory)
    files = {f"/a/{name}": ("audio/aac", data) for name, data in piece.files.items()}
    files["/a/list.m3u8"] = ("application/vnd.apple.mpegurl", piece.playlist())
    async with (
        site(files) as origin,
        session_with(text({"url": f"{origin.url}/a/list.m3u8"}), allow_origins=(origin.url,)) as session,
    ):
        assert await frames_heard(session) == [len(piece.pcm) // 8]


async def test_an_hls_playlist_that_is_a_resource_is_read_by_the_session_and_its_segments_by_http(
    run_directory: Path,
) -> None:
    piece = hls_files("adts", run_directory)
    link = {"type": "resource_link", "uri": "station://live", "name": "Station", "mimeType": HLS_MIME}
    async with site({f"/a/{name}": ("audio/aac", data) for name, data in piece.files.items()}) as origin:
        playlist = piece.playlist().decode().replace("\ns", f"\n{origin.url}/a/s")
        async with session_with(
            {"content": [link]}, allow_origins=(origin.url,), resource=playlist
        ) as session:
            assert await frames_heard(session) == [len(piece.pcm) // 8]


# --- files -------------------------------------------------------------------------------------------------


def named(path: Path) -> list[dict[str, Any]]:
    return [
        text(f"Success. File saved as: {path}. Voice used: V"),
        text(str(path)),
        text({"file_path": str(path)}),
        {"structuredContent": {"saved": path.as_uri()}},
        {"content": [{"type": "resource_link", "uri": path.as_uri(), "name": "song"}]},
    ]


@pytest.mark.parametrize("form", range(5))
async def test_a_file_below_an_allowed_directory_is_heard(form: int, tmp_path: Path) -> None:
    path = tmp_path / "my music" / "a song.wav"
    path.parent.mkdir()
    path.write_bytes(SONG)
    async with session_with(named(path)[form], allow_paths=(str(tmp_path),)) as session:
        assert await frames_heard(session) == [(len(SONG) - 44) // 2]
        assert (await session.call_tool("x")).turn.decision == "stop"


async def test_a_playlist_below_an_allowed_directory_names_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(SONG)
    (tmp_path / "b.wav").write_bytes(SONG)
    path = tmp_path / "list.m3u"
    path.write_text(
        f"a.wav\nb.wav\n{(tmp_path / 'a.wav').as_uri()}\n../out.wav\nfile:a.wav\nhttp://a b.wav\n"
    )
    async with session_with(text(f"Saved as: {path}"), allow_paths=(str(tmp_path),)) as session:
        uris = [media.uri for media in (await session.call_tool("x")).media]
        assert len(uris) == 4, "an address that is neither a URL nor absolute is left out"
        assert uris[:3] == [(tmp_path / name).as_uri() for name in ("a.wav", "b.wav", "a.wav")]
        async with (await session.call_tool("x")).media[1].open() as stream:
            assert await stream.read_all() == SONG
        with pytest.raises(BlockedAddressError):
            async with (await session.call_tool("x")).media[3].open() as stream:
                await stream.read_all()


async def test_a_playlist_in_the_result_itself_names_no_file_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(SONG)
    listed = f"#EXTM3U\n{tmp_path}/a.wav\n{(tmp_path / 'a.wav').as_uri()}\na.wav\n"
    for uri in ((tmp_path / "list.m3u").as_uri(), str(tmp_path / "list.m3u"), "radio://list"):
        for result in (resource(uri=uri, text=listed), text(listed)):
            found = await called(result, allow_paths=(str(tmp_path),))
            assert found.media == ()
            assert "expected an http or https URL in a playlist" in outcomes(found)[0][1]


async def test_a_file_that_is_not_allowed_names_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(SONG)
    result = await called(text(f"File saved as: {path}"))
    assert [each.verdict and each.verdict.permission for each in result.plan.refused] == [
        ("allow_paths", str(tmp_path))
    ]
    assert (result.media, result.turn.decision) == ((), "continue")


async def test_nothing_but_a_regular_file_below_the_directory_is_opened(tmp_path: Path) -> None:
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    allowed.mkdir()
    outside.mkdir()
    (outside / "a.wav").write_bytes(SONG)
    (allowed / "link.wav").symlink_to(outside / "a.wav")
    (allowed / "way").symlink_to(outside)
    os.mkfifo(allowed / "pipe.wav")
    (allowed / "directory.wav").mkdir()
    for name in ("link.wav", "way/a.wav", "pipe.wav", "directory.wav", "../outside/a.wav", "missing.wav"):
        result = await called(text(f"{allowed}/{name}"), allow_paths=(str(allowed),))
        assert result.media == (), name


async def test_a_server_elsewhere_names_no_file_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(SONG)
    async with session_with({}, allow_paths=(str(tmp_path),)) as session:
        session._config = ServerConfig(url="https://mcp.example/mcp", allow_paths=(str(tmp_path),))
        with pytest.raises(BlockedAddressError, match="not below an allowed directory"):
            await session.head(f"{tmp_path}/a.wav", 64)
