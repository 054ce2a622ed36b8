"""Playlists: every entry in order, with its address joined to the list's."""

from __future__ import annotations

import pytest

from playhead.content.playlists import PlaylistEntry, is_playlist, playlist_entries
from playhead.errors import ContentError, LimitError
from playhead.limits import Limits

WEB = "https://radio.example/lists/top.m3u"


def addresses(data: bytes, base: str = WEB) -> list[str]:
    return [each.address for each in playlist_entries(data, base)]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_an_m3u_gives_titles(line_end: bytes) -> None:
    lines = (b"#EXTM3U", b"#EXTINF:123.5,A, B", b"one.mp3", b"", b"# a note", b"two.mp3", b"#EXTINF:-1,")
    assert playlist_entries(line_end.join(lines), WEB) == (
        PlaylistEntry("https://radio.example/lists/one.mp3", "A, B"),
        PlaylistEntry("https://radio.example/lists/two.mp3", ""),
    )


def test_attributes_before_the_title_of_an_m3u_are_no_part_of_it() -> None:
    data = b'#EXTINF:-1 tvg-id="x" group-title="News, Talk",Channel 1\nhttps://a.example/live'
    assert playlist_entries(data, WEB) == (PlaylistEntry("https://a.example/live", "Channel 1"),)


def test_a_pls_is_ordered_by_its_numbers() -> None:
    data = (
        b"[playlist]\nNumberOfEntries=2\nfile2=/b.mp3\nTitle2=Two\nLength2=7\nFile1 = a.mp3\nTitle3=no file\n"
    )
    assert playlist_entries(data, WEB) == (
        PlaylistEntry("https://radio.example/lists/a.mp3", ""),
        PlaylistEntry("https://radio.example/b.mp3", "Two"),
    )


def test_entries_are_joined_to_a_path() -> None:
    assert addresses(b"a.mp3\n../b.mp3\n/c.mp3\nhttp://x.example/d\n", "/music/list.m3u") == [
        "/music/a.mp3",
        "/music/../b.mp3",
        "/c.mp3",
        "http://x.example/d",
    ]


def test_other_schemes_stay_visible_to_the_caller() -> None:
    assert addresses(b"file:///etc/passwd\ngopher://x/\ndata:audio/wav;base64,AAAA\n") == [
        "file:///etc/passwd",
        "gopher://x/",
        "data:audio/wav;base64,AAAA",
    ]


@pytest.mark.parametrize(
    "data", ["#EXTINF:1,Café\na.mp3".encode("cp1252"), "\ufeff#EXTINF:1,Café\na.mp3".encode()]
)
def test_titles_are_read_in_both_encodings(data: bytes) -> None:
    assert [each.title for each in playlist_entries(data, WEB)] == ["Café"]


@pytest.mark.parametrize("data", [b"<!DOCTYPE html><p>\na.mp3", b"\x00\x01a.mp3"])
def test_a_page_or_a_binary_file_is_not_a_playlist(data: bytes) -> None:
    with pytest.raises(ContentError, match=r"expected a playlist \(M3U or PLS\)"):
        playlist_entries(data, WEB)


def test_limits_are_named() -> None:
    with pytest.raises(LimitError, match=r"Limits\.playlist_entries"):
        playlist_entries(b"a\nb\nc\n", WEB, limits=Limits(playlist_entries=2))
    with pytest.raises(LimitError, match=r"Limits\.playlist_bytes"):
        playlist_entries(b"a\nb\nc\n", WEB, limits=Limits(playlist_bytes=5))


@pytest.mark.parametrize(
    ("mime_type", "address", "expected"),
    [
        (None, "/music/a.M3U", True),
        (None, "https://x.example/a.pls?token=1", True),
        ("audio/x-scpls; charset=utf-8", "https://x.example/listen", True),
        ("application/vnd.apple.mpegurl", "https://x.example/listen", True),
        ("audio/mpeg", "https://x.example/listen", False),
        (None, "https://x.example/a?list=b.m3u", False),
    ],
)
def test_a_type_or_a_suffix_names_a_playlist(mime_type: str | None, address: str, expected: bool) -> None:
    assert is_playlist(mime_type, address) is expected


@pytest.mark.parametrize(
    ("data", "got"),
    [
        (b"#EXTM3U\n# nothing\n", "no entries"),
        (b"", "an empty one"),
    ],
)
def test_a_list_without_entries_is_an_error_that_names_its_address(data: bytes, got: str) -> None:
    with pytest.raises(ContentError, match=rf"^{WEB}: expected a playlist .* of audio, got {got}"):
        playlist_entries(data, WEB)


def test_a_list_of_segments_is_its_own_only_entry() -> None:
    (entry,) = playlist_entries(b"#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\nseg.aac\n", WEB)
    assert (entry.address, entry.is_hls) == (WEB, True)
