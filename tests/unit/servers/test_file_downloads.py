"""Files over HTTP: links, ranges, versions; and the audio server, which offers them."""

from __future__ import annotations

import hashlib
import ssl
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2
import pytest
import trio
import trustme
from mcp import MCPError
from mcp.server import Server

from playhead.errors import UsageError
from playhead.servers.audio import AudioServerOptions
from playhead.servers.audio.audio_server import serve
from playhead.servers.file_downloads import FileDownloads
from playhead.servers.ranged_resource import RangedResource, ResourceBytes, ranged_resource
from tests.servers.loopback import started
from tests.servers.messages import initialize, request
from tests.servers.raw_websocket import raw_websocket

MUSIC = Path(__file__).parents[3] / "python/playhead/servers/audio/music"
SONG = (MUSIC / "first-light.mp3").read_bytes()
BASE = "https://music.example.org/files"


class Clock:
    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def __call__(self) -> float:
        return self.time


def offered(source: Any, clock: Clock | None = None, **options: Any) -> tuple[FileDownloads, RangedResource]:
    files = FileDownloads(now=clock or Clock())
    options = {"mime_type": "audio/mpeg", **options}
    return files, ranged_resource(Server("bare"), "music://song.mp3", source, files=files, **options)


async def url_of(files: FileDownloads, resource: RangedResource) -> str:
    url: str = (await files.authorize(resource, {}, base_url=BASE))["download"]["url"]
    return url


async def fetch(files: FileDownloads, url: str, method: str = "GET", **headers: str) -> httpx2.Response:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=files)) as client:
        return await client.request(method, url, headers=given)


async def in_pieces(start: int, end: int) -> bytes:
    """A callable that knows no size, and reads less than it is asked for."""
    return SONG[start : min(end, start + 100_000)]


async def test_a_link_names_the_file_its_method_and_when_it_expires() -> None:
    files, resource = offered(SONG)
    result = await files.authorize(resource, {}, base_url=BASE)
    assert result["file"]["size"] == len(SONG)
    assert result["file"]["digest"]["sha-256"] == hashlib.sha256(SONG).hexdigest()
    download = result["download"]
    assert (download["transport"], download["method"]) == ("https", "GET")
    assert download["expiresAt"] == "2027-01-15T08:05:00Z"
    assert urlsplit(download["url"]).path.endswith("/song.mp3")


@pytest.mark.parametrize(
    "source", [SONG, MUSIC / "first-light.mp3", in_pieces], ids=["bytes", "path", "read"]
)
async def test_the_whole_file_and_its_headers(source: Any) -> None:
    files, resource = offered(source)
    response = await fetch(files, await url_of(files, resource))
    assert response.status_code == 200
    assert response.content == SONG
    assert response.headers["content-type"] == "audio/mpeg"
    assert response.headers["accept-ranges"] == "bytes"
    assert (response.headers["content-disposition"], response.headers["x-content-type-options"]) == (
        "attachment",
        "nosniff",
    )
    assert response.headers.get("content-length") == (None if source is in_pieces else str(len(SONG)))
    assert ("etag" in response.headers) == (source is not in_pieces)


END = len(SONG)


@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=100-200099", 100, 200_100),
        ("bytes=5-", 5, END),
        ("Bytes= 5-99999999", 5, END),
        ("bytes=-7", END - 7, END),
        ("bytes=-99999999", 0, END),
        (f"bytes={END - 1}-{END + 5}", END - 1, END),
    ],
)
async def test_a_range_is_answered_with_its_bytes_and_their_place(wanted: str, start: int, end: int) -> None:
    files, resource = offered(SONG)
    response = await fetch(files, await url_of(files, resource), range=wanted)
    assert response.status_code == 206
    assert response.headers["content-range"] == f"bytes {start}-{end - 1}/{END}"
    assert response.headers["content-length"] == str(end - start)
    assert response.content == SONG[start:end]


async def test_ranges_of_something_of_unknown_size_add_up_to_the_whole() -> None:
    files, resource = offered(in_pieces)
    url = await url_of(files, resource)
    got = b""
    while (response := await fetch(files, url, range=f"bytes={len(got)}-{len(got) + 149_999}")).is_success:
        last = len(got) + len(response.content) - 1
        assert response.headers["content-range"] == f"bytes {len(got)}-{last}/*"
        got += response.content
    assert response.status_code == 416
    assert got == SONG
    assert (await fetch(files, url, range="bytes=-5")).status_code == 200


@pytest.mark.parametrize("wanted", [f"bytes={END}-", f"bytes={END + 5}-{END + 9}", "bytes=-0"])
async def test_a_range_past_the_end_is_416_with_the_size(wanted: str) -> None:
    files, resource = offered(SONG)
    response = await fetch(files, await url_of(files, resource), range=wanted)
    assert response.status_code == 416
    assert response.headers["content-range"] == f"bytes */{END}"


@pytest.mark.parametrize("wanted", ["bytes=9-5", "bytes=-", "bytes=a-b", "bytes=0-1,5-6", "items=0-1"])
async def test_what_is_not_one_range_of_bytes_is_ignored(wanted: str) -> None:
    files, resource = offered(SONG)
    response = await fetch(files, await url_of(files, resource), range=wanted)
    assert (response.status_code, response.content) == (200, SONG)


async def test_an_empty_file_has_no_range() -> None:
    files, resource = offered(b"")
    url = await url_of(files, resource)
    whole = await fetch(files, url)
    assert (whole.status_code, whole.headers["content-length"], whole.content) == (200, "0", b"")
    assert (await fetch(files, url, range="bytes=0-")).headers["content-range"] == "bytes */0"


async def test_if_range_gives_the_range_of_the_same_version_and_the_whole_of_another() -> None:
    files, resource = offered(SONG)
    url = await url_of(files, resource)
    etag = (await fetch(files, url, "HEAD")).headers["etag"]
    same = await fetch(files, url, range="bytes=5-9", if_range=etag)
    assert (same.status_code, same.content) == (206, SONG[5:10])
    for other in ('"other"', f"W/{etag}", "Wed, 21 Oct 2015 07:28:00 GMT"):
        whole = await fetch(files, url, range="bytes=5-9", if_range=other)
        assert (whole.status_code, whole.content) == (200, SONG)
    assert (await fetch(files, url, if_none_match=f'"x", {etag}')).status_code == 304


async def test_a_weak_version_never_joins_two_ranges() -> None:
    async def read(start: int, end: int) -> ResourceBytes:
        return ResourceBytes(data=SONG[start:end], total_bytes=END, etag='W/"1"')

    files, resource = offered(read)
    whole = await fetch(files, await url_of(files, resource), range="bytes=5-9", if_range='W/"1"')
    assert (whole.status_code, whole.content) == (200, SONG)


async def test_head_has_the_headers_alone() -> None:
    files, resource = offered(SONG)
    response = await fetch(files, await url_of(files, resource), "HEAD", range="bytes=0-4")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-length"] == str(END)


async def test_other_methods_are_refused() -> None:
    files, resource = offered(SONG)
    response = await fetch(files, await url_of(files, resource), "PUT")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")


async def test_a_link_expires() -> None:
    clock = Clock()
    files, resource = offered(SONG, clock)
    url = await url_of(files, resource)
    clock.time += 300
    assert (await fetch(files, url)).status_code == 200
    clock.time += 1
    expired = await fetch(files, url)
    assert expired.status_code == 410
    assert "files/authorizeDownload" in expired.text
    assert (await fetch(files, await url_of(files, resource))).status_code == 200


async def test_a_link_that_was_not_given_out_is_refused() -> None:
    files, resource = offered(SONG)
    url = await url_of(files, resource)
    token = urlsplit(url).path.split("/")[2]
    flipped = ("B" if token[10] == "A" else "A").join((token[:10], token[11:]))
    for wrong in (flipped, token[:-2], "A", "", "é", "A" * 200):
        assert (await fetch(files, f"{BASE}/{wrong}/song.mp3")).status_code == 403
    stranger, _ = offered(SONG)
    assert (await fetch(stranger, url)).status_code == 403
    assert (await fetch(files, BASE)).status_code == 403


async def test_servers_with_one_key_answer_for_one_another() -> None:
    key = bytes(32)
    one, other = FileDownloads(key=key), FileDownloads(key=key)
    for files in (one, other):
        added = ranged_resource(Server("bare"), "music://song.mp3", SONG, files=files)
    url = await url_of(one, added)
    assert (await fetch(other, url)).content == SONG
    assert (await fetch(FileDownloads(key=key), url)).status_code == 404


async def test_a_file_that_changes_under_a_download_breaks_it_off(tmp_path: Path) -> None:
    path = tmp_path / "song.mp3"
    path.write_bytes(b"a" * 1_000_000)
    files, resource = offered(path)
    url = await url_of(files, resource)
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)
        if len(sent) == 2:
            (tmp_path / "new").write_bytes(b"b" * 1_000_000)
            (tmp_path / "new").replace(path)

    scope = {"type": "http", "method": "GET", "path": urlsplit(url).path, "headers": []}
    await files(scope, trio.sleep_forever, send)
    body = b"".join(message.get("body", b"") for message in sent)
    assert 0 < len(body) < 1_000_000
    assert set(body) == {ord("a")}
    assert sent[-1]["more_body"]


async def test_a_source_that_fails_is_404_or_502_with_its_words() -> None:
    code = -32602

    async def read(start: int, end: int) -> bytes:
        raise MCPError(code, "no such song")

    files, resource = offered(read)
    url = f"{BASE}/{files._token('music://song.mp3', 2**40)}/x"
    assert ((got := await fetch(files, url)).status_code, got.text) == (404, "no such song\n")
    code = -32603
    assert (await fetch(files, url)).status_code == 502
    with pytest.raises(MCPError, match="no such song"):
        await files.authorize(resource, {}, base_url=BASE)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"path": "files"}, "begins with /"),
        ({"url": "ftp://x/"}, "http or https"),
        ({"key": b"x"}, "16 bytes"),
    ],
)
def test_invalid_options_are_usage_errors(options: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        FileDownloads(**options)


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
OFFER = {"download": True, "transports": ["http"]}


def audio_server(transport: Literal["http", "ws"], **options: Any) -> AbstractAsyncContextManager[str]:
    return started(serve, AudioServerOptions(transport=transport, port=0, mixer="memory", **options))


async def test_the_audio_server_offers_its_music_as_files_over_http() -> None:
    headers = {"accept": "application/json, text/event-stream", "authorization": "Bearer secret"}
    async with audio_server("http", token="secret") as url, httpx2.AsyncClient(headers=headers) as client:
        began = await client.post(url, json=initialize("2025-11-25"))
        session = {"mcp-session-id": began.headers["mcp-session-id"]}

        async def ask(method: str, **params: Any) -> Any:
            return (await client.post(url, json=request(method, **params), headers=session)).json()

        await client.post(
            url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session
        )
        called = await ask("tools/call", name="musicPlayer", arguments={"query": "first light"})
        link = called["result"]["content"][0]
        by_arguments = await ask(
            "files/authorizeDownload", uri=link["uri"], arguments={"url": link["description"]}
        )
        uri = by_arguments["result"]["file"]["uri"]
        by_uri = await ask("files/authorizeDownload", uri=uri)
        unknown = await ask("files/authorizeDownload", uri="resource://other")
        no_url = await ask("files/authorizeDownload", uri=link["uri"])
        modern = request("server/discover", _meta=META)
        modern_headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "server/discover"}
        discovered = (await client.post(url, json=modern, headers=modern_headers)).json()
        download = by_uri["result"]["download"]["url"]
        async with httpx2.AsyncClient() as anyone:
            part = await anyone.get(download, headers={"range": "bytes=1000-1999"})
            tampered = await anyone.get(f"{download[:-30]}A{download[-29:]}")
            without_token = await anyone.post(url, json=initialize("2025-11-25"))
    assert began.json()["result"]["capabilities"]["files"] == OFFER
    assert discovered["result"]["capabilities"]["files"] == OFFER
    assert (by_uri["result"]["file"]["size"], by_uri["result"]["file"]["mimeType"]) == (END, "audio/mpeg")
    assert by_uri["result"]["file"]["name"] == link["description"].rpartition("/")[2]
    assert by_uri["result"]["download"]["transport"] == "http"
    assert download.startswith(url.removesuffix("/mcp") + "/files/")
    assert (part.status_code, part.content) == (206, SONG[1000:2000])
    assert (tampered.status_code, without_token.status_code) == (403, 401)
    assert unknown["error"]["code"] == -32002
    assert "url is missing" in no_url["error"]["message"]


async def test_the_audio_server_offers_them_over_websocket_too() -> None:
    async with audio_server("ws") as url:
        port = urlsplit(url).port or 0
        async with raw_websocket(port) as socket, raw_websocket(port, path="/files/a/b") as elsewhere:
            await socket.send(initialize("2025-11-25"))
            began = await socket.receive()
            await socket.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
            link = (await socket.ask("tools/call", {"name": "musicPlayer", "arguments": {"query": ""}}))[
                "result"
            ]
            params = {
                "uri": link["content"][0]["uri"],
                "arguments": {"url": link["content"][0]["description"]},
            }
            result = (await socket.ask("files/authorizeDownload", params))["result"]
        async with httpx2.AsyncClient() as client:
            whole = await client.get(result["download"]["url"])
    assert began["result"]["capabilities"]["files"] == OFFER
    assert result["download"]["url"].startswith(f"http://127.0.0.1:{port}/files/")
    assert len(whole.content) == result["file"]["size"] > 0
    assert elsewhere.status == 404


async def test_behind_tls_the_links_are_https(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = tmp_path / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    headers = {"accept": "application/json, text/event-stream"}
    async with (
        audio_server("http", tls_certificate=certificate) as url,
        httpx2.AsyncClient(headers=headers, verify=trusting) as client,
    ):
        began = await client.post(url, json=initialize("2025-11-25"))
        session = {"mcp-session-id": began.headers["mcp-session-id"]}
        await client.post(
            url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session
        )
        call = request("tools/call", name="musicPlayer", arguments={"query": "first light"})
        link = (await client.post(url, json=call, headers=session)).json()["result"]["content"][0]
        asked = request("files/authorizeDownload", uri=link["uri"], arguments={"url": link["description"]})
        download = (await client.post(url, json=asked, headers=session)).json()["result"]["download"]
        part = await client.get(download["url"], headers={"range": "bytes=0-9"})
    assert began.json()["result"]["capabilities"]["files"]["transports"] == ["https"]
    assert (download["transport"], download["url"].partition(":")[0]) == ("https", "https")
    assert (part.status_code, part.content) == (206, SONG[:10])
