"""The relay and the media port: audio read once, served to many, at addresses that outlive the proxy."""

from __future__ import annotations

import base64
import os
import re
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2
import mcp_types as types
import pytest
import trio
from mcp.server import Server

from playhead import connect
from playhead.client.session.session import Session
from playhead.config.servers import ServerConfig
from playhead.errors import DiskFullError, UsageError
from playhead.servers.proxy import ProxyOptions
from playhead.servers.proxy.media_table import LIFETIME_SECONDS, MediaEntry, MediaTable
from playhead.servers.proxy.proxy_server import open_proxy, serve
from playhead.servers.proxy.result_audio import ADDRESS_META
from playhead.servers.ranged_resource import ResourceBytes, ranged_resource
from tests.process_limits import descriptors_left, largest_file
from tests.servers.raw_origin import ignores_ranges, raw_origin
from tests.servers.wave import wave_header


@dataclass(slots=True)
class FarServer:
    """A server of songs that counts the bytes it serves."""

    size_bytes: int = 700_000
    mime_type: str = "audio/wav"
    with_etag: bool = True
    cache_scope: Literal["public", "private"] = "private"
    link_uri: str = ""
    """The URI that links name in place of the songs'."""
    served_bytes: int = 0
    songs: dict[str, bytes] = field(default_factory=dict)

    def song(self, name: str) -> bytes:
        if name not in self.songs:
            noise = sha256(name.encode()).digest() * (self.size_bytes // 32)
            self.songs[name] = (wave_header(44 + len(noise)) + noise)[: self.size_bytes]
        return self.songs[name]

    def server(self) -> Server[Any]:
        async def call_tool(_context: object, params: types.CallToolRequestParams) -> Any:
            name = str((params.arguments or {}).get("song"))
            if params.name == "inline":
                data = base64.b64encode(self.song(name)).decode()
                block = {"type": "audio", "data": data, "mimeType": self.mime_type}
                return {"resultType": "complete", "content": [block]}
            link = (await family.link(name=name)).model_dump(by_alias=True, exclude_none=True)
            link |= {"mimeType": self.mime_type} | ({"uri": self.link_uri} if self.link_uri else {})
            return {"resultType": "complete", "content": [link]}

        async def read(start: int, end: int, name: str) -> ResourceBytes:
            data = self.song(name)
            self.served_bytes += max(0, min(end, len(data)) - start)
            etag = sha256(data).hexdigest() if self.with_etag else None
            return ResourceBytes(
                data=data[start:end], total_bytes=len(data), etag=etag, mime_type=self.mime_type
            )

        server: Server[Any] = Server("far", on_call_tool=call_tool)
        family = ranged_resource(
            server, "songs://{name}", read, mime_type=self.mime_type, cache_scope=self.cache_scope
        )
        return server


@asynccontextmanager
async def house(
    far: FarServer, directory: Path, *, port: int = 0
) -> AsyncIterator[tuple[Session, httpx2.AsyncClient]]:
    """Open a proxy with a media port, with a host and an HTTP client."""
    options = ProxyOptions(media_port=port, state_directory=directory)
    async with (
        open_proxy({"far": far.server()}, None, options) as proxy,
        connect(proxy) as host,
        httpx2.AsyncClient(trust_env=False) as http,
    ):
        yield host, http


async def address_of(host: Session, song: str, tool: str = "play") -> str:
    return str((await host.call_tool(tool, {"song": song})).raw["_meta"][ADDRESS_META][0])


async def test_an_address_serves_the_song_and_its_ranges(tmp_path: Path) -> None:
    far = FarServer()
    async with house(far, tmp_path) as (host, http):
        address = await address_of(host, "a")
        whole = await http.get(address)
        assert (whole.status_code, whole.content) == (200, far.song("a"))
        assert whole.headers["content-type"] == "audio/wav"
        part = await http.get(
            address, headers={"range": "bytes=600000-600009", "if-range": whole.headers["etag"]}
        )
        assert (part.status_code, part.content) == (206, far.song("a")[600_000:600_010])
        assert part.headers["content-range"] == "bytes 600000-600009/700000"
        last = await http.get(address, headers={"range": "bytes=-5"})
        assert last.content == far.song("a")[-5:]
        assert (await http.get(address, headers={"range": "bytes=700000-"})).status_code == 416
        same = await http.get(address, headers={"if-none-match": whole.headers["etag"]})
        assert same.status_code == 304
        assert (await http.head(address)).headers["content-length"] == "700000"
        assert (await http.post(address)).status_code == 405


async def test_a_range_at_the_end_is_read_without_the_bytes_before_it(tmp_path: Path) -> None:
    far = FarServer(size_bytes=12_000_000)
    async with house(far, tmp_path) as (host, http):
        address = await address_of(host, "a")
        part = await http.get(address, headers={"range": "bytes=11999990-"})
        assert part.content == far.song("a")[-10:]
        assert far.served_bytes < 9_000_000


async def test_many_devices_cost_the_far_server_the_bytes_of_one(tmp_path: Path) -> None:
    far = FarServer(size_bytes=200_000)
    songs = [f"song-{number}" for number in range(5)]
    async with house(far, tmp_path) as (host, http):

        async def device(number: int) -> None:
            for song in songs[number % 5 :] + songs[: number % 5]:
                answer = await http.get(await address_of(host, song), timeout=60)
                assert answer.content == far.song(song)

        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(device, number)
    assert far.served_bytes <= 1.02 * sum(map(len, far.songs.values()))


async def test_devices_at_several_places_of_a_song_hardly_cost_more(tmp_path: Path) -> None:
    far = FarServer(size_bytes=4_000_000)
    async with house(far, tmp_path) as (host, http):
        address = await address_of(host, "a")

        async def device(start: int) -> None:
            answer = await http.get(address, headers={"range": f"bytes={start}-"}, timeout=60)
            assert answer.content == far.song("a")[start:]

        async with trio.open_nursery() as nursery:
            for start in range(0, 4_000_000, 400_000):
                nursery.start_soon(device, start)
    assert far.served_bytes <= 1.8 * far.size_bytes  # a move loses at most three quarters of a ring


@pytest.mark.parametrize(
    ("mode", "scope", "with_etag", "songs_served"),
    [
        ("2026-07-28", "public", True, 1),
        ("2026-07-28", "private", True, 2),
        ("2026-07-28", "public", False, 2),
        ("legacy", "private", True, 1),  # that generation has no `cacheScope`
    ],
)
async def test_hosts_share_what_the_server_lets_them_share(
    mode: str, scope: Literal["public", "private"], with_etag: bool, songs_served: int, tmp_path: Path
) -> None:
    far = FarServer(cache_scope=scope, with_etag=with_etag)
    options = ProxyOptions(media_port=0, state_directory=tmp_path)
    async with (
        open_proxy({"far": far.server()}, None, options) as proxy,
        connect(proxy, mode=mode) as first,
        connect(proxy, mode=mode) as second,
        httpx2.AsyncClient(trust_env=False) as http,
    ):
        addresses = [await address_of(host, "a") for host in (first, second)]
        far.served_bytes = 0

        async def device(address: str) -> None:
            assert (await http.get(address)).content == far.song("a")

        async with trio.open_nursery() as nursery:
            for address in [*addresses, *addresses]:
                nursery.start_soon(device, address)
    assert round(far.served_bytes / far.size_bytes, 2) == songs_served


async def test_an_address_never_leads_to_another_server_of_the_same_name(tmp_path: Path) -> None:
    far = FarServer()
    async with house(far, tmp_path) as (host, _http):
        address = await address_of(host, "a")
    command = (sys.executable, "-m", "tests.servers.old_asking")
    options = ProxyOptions(media_port=urlsplit(address).port, state_directory=tmp_path)
    targets: dict[str, Any] = {"far": ServerConfig(name="far", command=command), "other": far.server()}
    async with open_proxy(targets, None, options), httpx2.AsyncClient(trust_env=False) as http:
        answer = await http.get(address)
    assert (answer.status_code, answer.text) == (
        404,
        "the server 'far' of this address is no longer behind the proxy\n",
    )


async def test_what_a_hostile_server_links_to_is_not_fetched(tmp_path: Path) -> None:
    secret = tmp_path / "secret.wav"
    secret.write_bytes(wave_header(44 + 400) + bytes(400))
    far = FarServer()
    async with (
        raw_origin(ignores_ranges(secret.read_bytes())) as private,
        house(far, tmp_path) as (host, http),
    ):
        for far.link_uri in (f"{private.url}/secret.wav", secret.as_uri(), "playhead-media://" + "0" * 32):
            raw = (await host.call_tool("play", {"song": "a"})).raw
            for address in raw.get("_meta", {}).get(ADDRESS_META, ()):
                assert (await http.get(address, timeout=30)).status_code in (404, 502), far.link_uri
    assert private.heads == []


async def test_no_secret_of_the_configuration_reaches_a_device_the_page_or_the_table(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    far, secret = FarServer(), "canary-5up3r-s3cr3t-value-0123456789"
    options = ProxyOptions(media_port=0, state_directory=tmp_path)
    async with trio.open_nursery() as nursery:
        behind = ProxyOptions(transport="http", port=0, token=secret)
        url = await nursery.start(partial(serve, {"far": far.server()}, None, behind))
        bearer = {"Authorization": f"Bearer {secret}"}
        config = ServerConfig(name="far", url=f"{url}?key={secret}", headers=bearer)
        async with (
            open_proxy({"far": config}, None, options) as proxy,
            connect(proxy) as host,
            httpx2.AsyncClient(trust_env=False, follow_redirects=True) as http,
        ):
            result = await host.call_tool("play", {"song": "a"})
            song = await http.get(result.raw["_meta"][ADDRESS_META][0])
            assert song.content == far.song("a")
            page_url = re.findall(r"page is at (\S+)", printed := capfd.readouterr().err)[-1]
            page = await http.get(page_url)
            place = urlsplit(page_url)
            async with await trio.open_tcp_stream("127.0.0.1", place.port or 0) as stream:
                cookie = f"cookie: playhead={place.query.removeprefix('token=')}"
                head = f"GET /events HTTP/1.1\r\nhost: {place.netloc}\r\n{cookie}\r\n\r\n"
                await stream.send_all(head.encode())
                state = ""
                while "results" not in state:
                    state += (await stream.receive_some()).decode()
        nursery.cancel_scope.cancel()
    assert "far" in state
    seen: list[object] = [host.handshake, result.raw, song.headers, page.text, page.headers, state, printed]
    seen += [path.read_bytes() for path in (tmp_path / "proxy").iterdir()]
    assert secret not in str(seen)


async def test_addresses_work_after_a_restart(tmp_path: Path) -> None:
    far = FarServer()
    async with house(far, tmp_path) as (host, http):
        linked, inline = await address_of(host, "a"), await address_of(host, "b", "inline")
        etag = (await http.head(linked)).headers["etag"]
    port = urlsplit(linked).port
    assert port is not None
    async with house(far, tmp_path, port=port) as (_host, http):
        answer = await http.get(linked, headers={"range": "bytes=5-", "if-range": etag})
        assert (answer.status_code, answer.content) == (206, far.song("a")[5:])
        assert (await http.get(inline)).content == far.song("b")
    for path in (tmp_path / "proxy").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_an_address_is_read_over_mcp_in_ranges_too(tmp_path: Path) -> None:
    far = FarServer()
    async with house(far, tmp_path) as (host, _http):
        address = (await address_of(host, "a")).rpartition("/")[2]
        async with host.open(f"playhead-media://{address}") as stream:
            assert await stream.read_all() == far.song("a")


@pytest.mark.parametrize("mime_type", ["text/html", "image/svg+xml", "application/octet-stream"])
async def test_a_browser_never_renders_media(mime_type: str, tmp_path: Path) -> None:
    far = FarServer(mime_type=mime_type)
    far.songs["a"] = b"<!doctype html><script>alert(1)</script>"
    table = MediaTable(tmp_path / "proxy")
    entry = MediaEntry(
        server="far",
        identity="",
        uri="songs://a",
        title="a",
        mime_type=mime_type,
        size_bytes=None,
        validator="",
        read_at=0,
    )
    address = table.add(entry)
    options = ProxyOptions(media_port=0, state_directory=tmp_path)
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(open_proxy({"far": far.server()}, None, options))
        host = await stack.enter_async_context(connect(proxy))
        http = await stack.enter_async_context(httpx2.AsyncClient(trust_env=False))
        far.songs["b"] = wave_header(44 + 400) + bytes(400)
        far.mime_type = "audio/wav"
        base = (await address_of(host, "b")).rpartition("/")[0]
        far.mime_type = mime_type
        answer = await http.get(f"{base}/{address}")
    assert answer.content == far.songs["a"]
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert answer.headers["content-disposition"] == "attachment"


async def test_unknown_and_foreign_requests_are_refused(tmp_path: Path) -> None:
    async with house(FarServer(), tmp_path) as (host, http):
        address = await address_of(host, "a")
        base, _, known = address.rpartition("/")
        assert (await http.get(f"{base}/{'0' * 32}")).status_code == 404
        assert (await http.get(f"{base}/../{known}")).status_code == 404
        assert (await http.get(address, headers={"host": "evil.example"})).status_code == 421
        assert (await http.get(address, headers={"origin": "https://evil.example"})).status_code == 403


# --- a full disk --------------------------------------------------------------------------------------


async def test_a_full_disk_is_an_error_for_its_device_alone(tmp_path: Path) -> None:
    far = FarServer()
    far.songs["short"] = far.song("a")[:100_000]
    async with house(far, tmp_path) as (host, http):
        address, other = await address_of(host, "a"), await address_of(host, "short")
        with largest_file(0):
            refused = await http.get(address)
        assert (refused.status_code, refused.text) == (
            502,
            f"{tmp_path / 'proxy'}: File too large; make room, or set XDG_STATE_HOME to another directory\n",
        )
        with largest_file(300_000):
            with pytest.raises(httpx2.RemoteProtocolError):
                await http.get(address)  # it has begun, so that only its length can tell
            assert (await http.get(other)).content == far.song("short")
        assert (await http.get(address)).content == far.song("a")


async def test_a_write_that_takes_only_some_bytes_goes_on_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, write = FarServer(), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:999], at))
    async with house(far, tmp_path) as (host, http):
        assert (await http.get(await address_of(host, "a"))).content == far.song("a")


async def test_a_copy_without_a_free_file_descriptor_is_an_error_for_its_device_alone(tmp_path: Path) -> None:
    far = FarServer()
    async with house(far, tmp_path) as (host, http):
        first, second = await address_of(host, "a"), await address_of(host, "b")
        assert (await http.get(first)).content == far.song("a")  # this connection stays open
        with descriptors_left(0):
            refused = await http.get(second)
            assert (await http.get(first)).content == far.song("a")
        assert (refused.status_code, "RLIMIT_NOFILE" in refused.text) == (502, True)
        assert (await http.get(second)).content == far.song("b")


@pytest.mark.parametrize("tool", ["play", "inline"])
async def test_a_result_without_room_for_its_address_says_so(tool: str, tmp_path: Path) -> None:
    far = FarServer()
    async with house(far, tmp_path) as (host, http):
        with largest_file(0 if tool == "play" else 1000):  # the table has room for an entry, the audio none
            result = await host.call_tool(tool, {"song": "a"})
        assert not result.is_error
        assert ADDRESS_META not in result.raw.get("_meta", {})
        assert result.text.startswith(f"[the audio has no address: {tmp_path / 'proxy'}: File too large; ")
        assert len(list((tmp_path / "proxy").iterdir())) == 1
        assert (await http.get(await address_of(host, "a", tool))).content == far.song("a")


ENTRY = MediaEntry(server="s", identity="", uri="u", title="t", mime_type=None, size_bytes=None, read_at=0)


def test_an_entry_without_room_leaves_no_half_line_in_the_table(tmp_path: Path) -> None:
    now = 1000.0
    table = MediaTable(tmp_path, now=lambda: now)
    address = table.add(ENTRY)
    with largest_file((tmp_path / "media.jsonl").stat().st_size + 10):
        with pytest.raises(DiskFullError), table.saving():
            table.add(ENTRY)
        now += LIFETIME_SECONDS - 1
        assert table.get(address) is not None  # the time of the read is saved with the next one
    assert table.get(address) is not None
    second = table.add(ENTRY)
    now += LIFETIME_SECONDS - 1
    again = MediaTable(tmp_path, now=lambda: now)
    assert None not in (again.get(address), again.get(second))


def test_an_address_expires_a_day_after_the_last_read(tmp_path: Path) -> None:
    now = 1000.0
    table = MediaTable(tmp_path, now=lambda: now)
    address = table.add(ENTRY)
    now += LIFETIME_SECONDS - 1
    assert table.get(address) is not None
    now += LIFETIME_SECONDS - 1
    assert MediaTable(tmp_path, now=lambda: now).get(address) is not None
    now += 2 * LIFETIME_SECONDS
    assert table.get(address) is None


def test_reads_at_short_intervals_are_saved_too(tmp_path: Path) -> None:
    now = 1000.0
    table = MediaTable(tmp_path, now=lambda: now)
    address = table.add(ENTRY)
    for _read in range(1000):
        now += 30.0
        assert table.get(address) is not None
    now += LIFETIME_SECONDS - 61.0
    assert MediaTable(tmp_path, now=lambda: now).get(address) is not None


def test_an_unusable_table_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "media.jsonl").write_text("[]\n")
    with pytest.raises(UsageError, match="cannot be used for media addresses: expected lines of objects"):
        MediaTable(tmp_path)


def test_the_table_is_in_the_home_directory_not_in_a_directory_named_with_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    MediaTable(Path("~/state/proxy"))
    assert [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.jsonl")] == [
        "home/state/proxy/media.jsonl"
    ]
