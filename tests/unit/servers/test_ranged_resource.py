"""`ranged_resource` on servers of the SDK, through a real SDK client: each form, the caps, the ends."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server import MCPServer, Server

from playhead.cache import ETAG_META, OFFSET_META, SIZE_META
from playhead.errors import UsageError
from playhead.servers.file_downloads import FileDownloads
from playhead.servers.ranged_resource import ResourceBytes, ranged_resource
from tests.servers.ranged_read import read_blob

URI = "music://albums/song.mp3"
SONG = bytes(range(256)) * 40
ERAS: list[Literal["legacy", "auto"]] = ["legacy", "auto"]
AnyServer = Server[Any] | MCPServer


def with_own_resources() -> MCPServer:
    server = MCPServer("own")

    @server.resource("notes://today")
    def today() -> str:
        return "rain"

    @server.resource("notes://{day}")
    def of_day(day: str) -> str:
        return day

    return server


def bare() -> Server[Any]:
    return Server("bare")


SERVERS: dict[str, Callable[[], AnyServer]] = {"lowlevel": bare, "MCPServer": with_own_resources}


async def data(connected: Client, params: dict[str, Any]) -> bytes:
    return base64.b64decode((await read_blob(connected, params)).blob, validate=True)


def in_uri(start: int, end: int) -> dict[str, Any]:
    return {"uri": f"{URI}?start={start}&end={end}"}


def in_arguments(start: int, end: int) -> dict[str, Any]:
    return {"uri": URI, "arguments": {"start": start, "end": end}}


def in_meta(start: int, end: int) -> dict[str, Any]:
    return {"uri": URI, "_meta": {"playhead/range": {"start": start, "end": end}}}


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("source", ["path", "bytes", "callable"])
async def test_each_form_reads_the_same_bytes_and_ends_with_an_empty_blob(
    source: str, kind: str, mode: Literal["legacy", "auto"], tmp_path: Path
) -> None:
    (tmp_path / "song.mp3").write_bytes(SONG)

    async def read(start: int, end: int) -> bytes:
        return SONG[start:end]

    sources: dict[str, Any] = {"path": tmp_path / "song.mp3", "bytes": SONG, "callable": read}
    server = SERVERS[kind]()
    ranged_resource(server, URI, sources[source], mime_type="audio/mpeg")
    async with Client(server, mode=mode) as connected:
        for form in (in_uri, in_arguments, in_meta):
            got = b""
            while page := await data(connected, form(len(got), len(got) + 4000)):
                got += page
            assert got == SONG
            past = await read_blob(connected, form(len(SONG) + 5, len(SONG) + 6))
            assert (past.blob, (past.meta or {})[OFFSET_META]) == ("", len(SONG) + 5)
        whole = await read_blob(connected, {"uri": URI})
        assert (base64.b64decode(whole.blob), (whole.meta or {})[OFFSET_META]) == (SONG, 0)


async def test_the_server_s_own_resources_stay_and_this_one_is_listed_with_them() -> None:
    server = with_own_resources()
    ranged_resource(server, URI, SONG, title="A song", mime_type="audio/mpeg")
    async with Client(server) as connected:
        resources = {str(each.uri): each for each in (await connected.list_resources()).resources}
        templates = (await connected.list_resource_templates()).resource_templates
        (today,) = (await connected.read_resource("notes://today")).contents
    assert set(resources) == {"notes://today", URI}
    assert (resources[URI].name, resources[URI].title) == ("song.mp3", "A song")
    assert (resources[URI].mime_type, resources[URI].size) == ("audio/mpeg", len(SONG))
    assert [each.uri_template for each in templates] == ["notes://{day}", URI + "{?start,end}"]
    assert isinstance(today, types.TextResourceContents)
    assert today.text == "rain"


async def test_a_file_that_is_missing_is_listed_without_its_size_and_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "gone.mp3"
    path.write_bytes(SONG)
    server = with_own_resources()
    ranged_resource(server, "a://gone.mp3", path, title="Gone")
    ranged_resource(server, URI, SONG)
    path.unlink()
    async with Client(server) as connected:
        _, gone, song = (await connected.list_resources()).resources
    assert (gone.uri, gone.name, gone.title) == ("a://gone.mp3", "gone.mp3", "Gone")
    assert (gone.mime_type, gone.size) == ("audio/mpeg", None)
    assert (song.uri, song.size) == (URI, len(SONG))


@pytest.mark.parametrize(
    ("uri", "template"),
    [
        ("a://b", "a://b{?start,end}"),
        ("a://b?lang=en", "a://b?lang=en{&start,end}"),
        ("a://{id}", "a://{id}{?start,end}"),
        ("a://b{?id}", "a://b{?id,start,end}"),
        ("a://b{?id,start,end}", "a://b{?id,start,end}"),
        ("a://b/{start}/{end}", "a://b/{start}/{end}"),
    ],
)
async def test_the_template_ends_with_start_and_end(uri: str, template: str) -> None:
    async def read(start: int, end: int, **variables: str) -> bytes:
        return repr(variables).encode()[start:end]

    server = Server("bare")
    added = ranged_resource(server, uri, read)
    assert added.template == template
    async with Client(server) as connected:
        (listed,) = (await connected.list_resource_templates()).resource_templates
        wanted = added.expand(id="x") if added.variables else uri
        asked = {"uri": wanted, "arguments": {"start": 0, "end": 100}}
        got = None if "/{start}/" in uri else await data(connected, asked)
    assert listed.uri_template == template
    assert got in (None, b"{}", b"{'id': 'x'}")


async def test_a_family_gives_its_variables_to_the_callable_wherever_they_stand() -> None:
    seen: list[dict[str, str]] = []

    async def read(start: int, end: int, *, url: str, lang: str = "en") -> ResourceBytes:
        seen.append({"url": url, "lang": lang})
        return ResourceBytes(data=b"0123456789"[start:end], total_bytes=10, mime_type="text/plain", etag="v1")

    server = Server("bare")
    ranged_resource(server, "web://page{?url,lang}", read)
    async with Client(server) as connected:
        page = await read_blob(
            connected, {"uri": "web://page?url=http%3A%2F%2Fx%2F%3Fa&lang=de&start=2&end=5"}
        )
        await read_blob(connected, {"uri": "web://page", "arguments": {"url": "y", "start": 0, "end": 5}})
        with pytest.raises(
            MCPError, match=r"url is missing; expected lang \(a string\), url \(a string\), start"
        ):
            await read_blob(connected, {"uri": "web://page?start=0&end=5"})
        with pytest.raises(MCPError, match="url is 7"):
            await read_blob(connected, {"uri": "web://page", "arguments": {"url": 7, "start": 0, "end": 5}})
        assert (await connected.list_resources()).resources == []
    assert seen == [{"url": "http://x/?a", "lang": "de"}, {"url": "y", "lang": "en"}]
    assert (base64.b64decode(page.blob), page.mime_type) == (b"234", "text/plain")
    assert page.meta == {OFFSET_META: 2, ETAG_META: '"v1"', SIZE_META: 10}


@pytest.mark.parametrize("span", [{}, {"start": 0, "end": 5}])
@pytest.mark.parametrize("way", ["arguments", "_meta"])
async def test_a_variable_beside_the_uri_never_reads_another_resource_than_the_uri_names(
    way: str, span: dict[str, Any]
) -> None:
    async def read(start: int, end: int, *, id: str) -> bytes:
        return id.encode()[start:end]

    def ask(id: object) -> dict[str, Any]:
        given = {"id": id, **span}
        return {"uri": "music://public", way: given if way == "arguments" else {"playhead/range": given}}

    server = Server("bare")
    ranged_resource(server, "music://{id}", read)
    async with Client(server) as connected:
        for other in ("private", None):
            with pytest.raises(MCPError, match=f"id is {other!r}, and 'public' in the URI") as caught:
                await data(connected, ask(other))
            assert caught.value.code == -32602
        assert await data(connected, ask("public")) == b"public"[: span.get("end")]


async def test_a_long_range_is_answered_with_its_first_bytes() -> None:
    server = Server("bare")
    ranged_resource(server, URI, SONG, page_bytes=1000)
    async with Client(server) as connected:
        assert await data(connected, in_uri(100, 2**40)) == SONG[100:1100]


@pytest.mark.parametrize("knows_size", [True, False])
async def test_a_read_without_a_range_is_the_whole_or_an_error_but_never_a_part(knows_size: bool) -> None:
    async def read(start: int, end: int) -> bytes:
        return SONG[start : min(end, start + 1000)]

    server = Server("bare")
    size = len(SONG) if knows_size else None
    ranged_resource(server, "a://fits", read, size_bytes=size, whole_bytes=len(SONG))
    ranged_resource(server, "a://long", read, size_bytes=size, whole_bytes=len(SONG) - 1)
    async with Client(server) as connected:
        assert await data(connected, {"uri": "a://fits"}) == SONG
        with pytest.raises(
            MCPError, match=f"more than {len(SONG) - 1} bytes, and no range was given"
        ) as caught:
            await data(connected, {"uri": "a://long"})
    assert caught.value.code == -32602


@pytest.mark.parametrize("says_it_at_the_end", [True, False])
async def test_a_source_that_ends_before_its_size_is_never_returned_as_the_whole(
    says_it_at_the_end: bool,
) -> None:
    async def read(start: int, end: int) -> ResourceBytes:
        page = SONG[start : min(end, 1500)]
        return ResourceBytes(data=page, total_bytes=2000 if page or says_it_at_the_end else None)

    server = Server("bare")
    ranged_resource(server, URI, read)
    async with Client(server) as connected:
        with pytest.raises(MCPError, match="it has 2000 bytes and ended after 1500") as caught:
            await data(connected, {"uri": URI})
    assert caught.value.code == types.INTERNAL_ERROR


async def test_a_read_of_the_whole_never_joins_two_versions() -> None:
    versions = iter("ab")

    async def read(start: int, end: int) -> ResourceBytes:
        version = next(versions)
        return ResourceBytes(data=version.encode() * min(end - start, 100), total_bytes=200, etag=version)

    server = Server("bare")
    ranged_resource(server, URI, read)
    async with Client(server) as connected:
        with pytest.raises(MCPError, match="it changed while it was read"):
            await data(connected, {"uri": URI})


@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({"uri": URI + "?start=5"}, "end is missing"),
        ({"uri": URI, "arguments": {"end": 5}}, "start is missing"),
        ({"uri": URI, "arguments": {"start": "0", "end": 5}}, "start is '0'"),
        ({"uri": URI, "arguments": {"start": 5, "end": 5}}, "not before"),
        ({"uri": URI + "?start=-1&end=5"}, "start is '-1'"),
        ({"uri": URI + "?start=0&end=99999999999999999"}, "end is"),
        (in_meta(3, 2), "not before"),
    ],
)
async def test_an_invalid_range_is_invalid_params_and_says_what_was_expected(
    params: dict[str, Any], word: str
) -> None:
    server = Server("bare")
    ranged_resource(server, URI, SONG)
    async with Client(server) as connected:
        with pytest.raises(MCPError, match=word) as caught:
            await data(connected, params)
    assert caught.value.code == -32602


@pytest.mark.parametrize(("mode", "code"), [("legacy", -32002), ("auto", -32602)])
async def test_another_uri_is_an_unknown_resource_that_names_the_known_ones(
    mode: Literal["legacy", "auto"], code: int
) -> None:
    server = Server("bare")
    ranged_resource(server, URI, SONG)
    ranged_resource(server, "a://b", SONG)
    async with Client(server, mode=mode) as connected:
        with pytest.raises(MCPError, match=r"song\.mp3\{\?start,end\}, a://b") as caught:
            await data(connected, {"uri": "a://c"})
    assert caught.value.code == code


async def test_a_file_that_is_replaced_has_another_version_and_its_page_is_of_one_version(
    tmp_path: Path,
) -> None:
    path = tmp_path / "song.mp3"
    path.write_bytes(b"a" * 1000)
    server = Server("bare")
    ranged_resource(server, URI, path)
    async with Client(server) as connected:
        before = await read_blob(connected, in_uri(0, 10))
        (tmp_path / "new").write_bytes(b"b" * 2000)
        (tmp_path / "new").replace(path)
        after = await read_blob(connected, in_uri(0, 10))
        path.unlink()
        with pytest.raises(MCPError, match="reading failed: No such file"):
            await read_blob(connected, in_uri(0, 10))
    assert before.meta is not None
    assert after.meta is not None
    assert before.meta[ETAG_META] != after.meta[ETAG_META]
    assert (before.meta[SIZE_META], after.meta[SIZE_META]) == (1000, 2000)


async def test_a_link_has_the_type_and_the_size_for_a_tool_s_result() -> None:
    async def read(start: int, end: int, *, id: str) -> ResourceBytes:
        name = "seven.flac" if id == "7" else None
        return ResourceBytes(data=b"x"[start:end], total_bytes=int(id), mime_type="audio/flac", name=name)

    family = ranged_resource(Server("bare"), "a://{id}", read, name="numbers")
    link = await family.link(id="7")
    assert (link.uri, link.name, link.mime_type, link.size) == ("a://7", "seven.flac", "audio/flac", 7)
    assert (await family.link(id="8")).name == "numbers"


async def test_a_file_is_announced_with_its_digest_in_both_spellings(tmp_path: Path) -> None:
    path = tmp_path / "song.mp3"
    path.write_bytes(SONG)
    digest = hashlib.sha256(SONG)
    value = base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=")
    expected = {"algorithm": "sha-256", "value": value, "sha-256": digest.hexdigest()}

    async def read(start: int, end: int) -> bytes:
        return SONG[start:end]

    server = Server("bare")
    for number, added in enumerate(
        (
            ranged_resource(server, "a://0", path),
            ranged_resource(server, "a://1", SONG),
            ranged_resource(server, "a://2", read, size_bytes=len(SONG), sha256=digest.hexdigest()),
        )
    ):
        file = await added.file()
        assert (file["uri"], file["size"], file["digest"]) == (f"a://{number}", len(SONG), expected)
    assert "digest" not in await ranged_resource(server, "a://3", read).file()


async def takes_nothing(start: int, end: int) -> bytes:
    return b""


@pytest.mark.parametrize(
    ("uri", "source", "options", "word"),
    [
        ("song.mp3", b"", {}, "a URI with a scheme"),
        ("a://b#c", b"", {}, "without a fragment"),
        ("a://{b", b"", {}, "expected a URI or a URI template"),
        ("a://b", Path("/no/such/file"), {}, "is not a file"),
        ("a://b", "song.mp3", {}, "expected a Path, bytes or a callable"),
        ("a://{id}", b"", {}, "has variables; expected a callable"),
        ("a://{id}", takes_nothing, {}, "with the parameters id"),
        ("a://b", takes_nothing, {"sha256": "ff"}, "64 hexadecimal digits"),
    ],
)
def test_what_cannot_be_served_is_a_usage_error(uri: str, source: Any, options: Any, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        ranged_resource(Server("bare"), uri, source, **options)


def test_another_object_is_not_a_server() -> None:
    with pytest.raises(UsageError, match="expected a Server or MCPServer of the SDK or a FastMCP, got dict"):
        ranged_resource({}, URI, SONG)


@pytest.mark.parametrize("mode", ERAS)
async def test_in_process_there_is_no_http_side_so_the_file_form_is_not_offered(
    mode: Literal["legacy", "auto"],
) -> None:
    class AuthorizeParams(types.RequestParams):
        uri: str

    class Authorize(types.Request[AuthorizeParams, Literal["files/authorizeDownload"]]):
        method: Literal["files/authorizeDownload"] = "files/authorizeDownload"
        params: AuthorizeParams

    server = Server("bare")
    ranged_resource(server, URI, SONG, files=FileDownloads())
    async with Client(server, mode=mode) as connected:
        request = Authorize(params=AuthorizeParams(uri=URI))
        with pytest.raises(MCPError, match="expected a connection over HTTP") as caught:
            await connected.session.send_request(request, types.EmptyResult)
    assert caught.value.code == types.METHOD_NOT_FOUND


def test_importing_it_loads_neither_the_client_nor_trio() -> None:
    code = (
        "import sys, playhead.servers.file_downloads\n"
        "own = sorted(name for name in sys.modules if name.startswith('playhead.'))\n"
        "print(*own, 'trio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "playhead.cache",
        "playhead.errors",
        "playhead.lazy_names",
        "playhead.limits",
        "playhead.servers",
        "playhead.servers.byte_sources",
        "playhead.servers.file_downloads",
        "playhead.servers.growing_source",
        "playhead.servers.late_blob",
        "playhead.servers.ranged_resource",
        "False",
    ]
