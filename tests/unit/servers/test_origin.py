"""The library's own HTTP origin, asked over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from playhead.servers.audio.library import Library, Track
from playhead.servers.audio.media_links import MediaLinks
from playhead.servers.audio.origin import serve_origin
from tests.servers.loopback import started

BODY = bytes(range(256)) * 1000


@asynccontextmanager
async def origin(folder: Path) -> AsyncIterator[tuple[httpx2.AsyncClient, Track, str]]:
    """A client, the only track, and its link."""
    (folder / "song.mp3").write_bytes(BODY)
    (folder / "secret.txt").write_text("secret")
    library = Library.scan(folder)
    (track,) = library.tracks
    links = MediaLinks(library, key=bytes(32))
    async with started(serve_origin, links) as url, httpx2.AsyncClient() as http:
        yield http, track, url + links.sign(track)[0]


async def test_a_track_is_served_whole_with_its_type_and_length(tmp_path: Path) -> None:
    async with origin(tmp_path) as (http, _, url):
        answer = await http.get(url)
    assert (answer.status_code, answer.content) == (200, BODY)
    assert answer.headers["content-type"] == "audio/mpeg"
    assert answer.headers["accept-ranges"] == "bytes"


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        ("bytes=0-0", slice(0, 1)),
        ("bytes=100-70099", slice(100, 70_100)),
        ("bytes=255990-300000", slice(255_990, None)),
        ("bytes=255000-", slice(255_000, None)),
        ("bytes=-10", slice(-10, None)),
    ],
)
async def test_a_range_is_answered_with_exactly_its_bytes(tmp_path: Path, asked: str, got: slice) -> None:
    async with origin(tmp_path) as (http, _, url):
        answer = await http.get(url, headers={"range": asked})
    assert (answer.status_code, answer.content) == (206, BODY[got])
    first = got.indices(len(BODY))[0]
    last = first + len(answer.content) - 1
    assert answer.headers["content-range"] == f"bytes {first}-{last}/{len(BODY)}"


async def test_a_range_past_the_end_is_416_with_the_size(tmp_path: Path) -> None:
    async with origin(tmp_path) as (http, _, url):
        answer = await http.get(url, headers={"range": f"bytes={len(BODY)}-"})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{len(BODY)}"


async def test_head_tells_the_length_without_a_body(tmp_path: Path) -> None:
    async with origin(tmp_path) as (http, _, url):
        answer = await http.head(url)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(BODY))


async def test_if_range_with_an_old_entity_tag_gives_the_whole(tmp_path: Path) -> None:
    async with origin(tmp_path) as (http, _, url):
        etag = (await http.head(url)).headers["etag"]
        same = await http.get(url, headers={"range": "bytes=0-9", "if-range": etag})
        old = await http.get(url, headers={"range": "bytes=0-9", "if-range": '"old"'})
    assert (same.status_code, old.status_code) == (206, 200)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/media/",
        "/media/secret.txt",
        "/media/song.mp3",
        "/media/{id}",
        "/media/{version}/{id}",
        "/media/AAAAAAAAAAAAAAAAAAAAAA/{version}/{id}",
        "/media/{signature}/{version}/..%2fsecret.txt",
        "/media/{signature}/{version}/../{id}",
        "/media/{signature}/0-0-0/{id}",
        "/media/%00",
    ],
)
async def test_nothing_but_signed_links_is_served(tmp_path: Path, path: str) -> None:
    async with origin(tmp_path) as (http, _, url):
        base, media, signature, version, track_id = url.rsplit("/", 4)
        assert media == "media"
        wrong = base + path.format(signature=signature, version=version, id=track_id)
        assert (await http.get(wrong)).status_code in (400, 404)


async def test_a_track_whose_file_is_gone_is_not_found(tmp_path: Path) -> None:
    async with origin(tmp_path) as (http, track, url):
        track.path.unlink()
        assert (await http.get(url)).status_code == 404


async def test_a_link_to_a_file_that_has_changed_is_gone(tmp_path: Path) -> None:
    async with origin(tmp_path) as (http, track, url):
        track.path.write_bytes(BODY[::-1])
        answer = await http.get(url, headers={"range": "bytes=0-9"})
    assert answer.status_code == 410
    assert "changed" in answer.text


async def test_a_foreign_host_header_is_refused(tmp_path: Path) -> None:
    async with origin(tmp_path) as (http, _, url):
        answer = await http.get(url, headers={"host": "evil.example"})
    assert answer.status_code == 400
