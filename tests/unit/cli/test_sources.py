"""The words of `playhead play`: media or a server, and the media of files, directories and playlists."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest
import trio

from playhead.cli.sources import Sources, are_media
from playhead.cli.terminal import Terminal
from playhead.errors import (
    BlockedAddressError,
    ConnectionLostError,
    ContentError,
    LimitError,
    PlayheadError,
    UsageError,
)
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.stream.source import Playable
from tests.servers.raw_origin import RawOrigin, answer, raw_origin

NAMES = frozenset({"radio", "music"})


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a song, a list, and a directory that is also a server's name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "song.mp3").touch()
    (tmp_path / "music").mkdir()
    (tmp_path / "server.py").touch(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "are"),
    [
        (["song.mp3"], True),
        (["https://a.example/x", "-", "song.mp3", "./music"], True),
        (["https://a.example/x"], True),
        (["ws://a.example/x"], False),
        (["radio"], False),
        (["radio", "song.mp3"], False),
        (["https://a.example/mcp", "resource://x"], False),
        (["playhead serve audio"], False),
        (["./server.py", "tool", "x=1"], False),
        (["sh"], False),
        (["sh server.sh song.mp3", "tool"], False),
        (["'./server.py' song.m3u", "tool"], False),
    ],
)
def test_words_are_media_if_each_is_a_url_a_path_or_stdin(words: list[str], are: bool) -> None:
    assert are_media(words, NAMES) is are


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["music"], r"'music' is a server in your servers file and a directory here; write \./music"),
        (["music", "song.mp3"], r"write \./music for the directory"),
        (["song.mp3", "sang.mp3"], "'sang.mp3': no such file"),
        (["sang.mp3"], "'sang.mp3': no such file"),
        (["My Song.mp3"], "'My Song.mp3': no such file"),
        (["sang.mp3", "song.mp3"], "'sang.mp3': no such file"),
        (["ftp://a.example/sang.mp3"], "expected an http:// or https:// URL, got ftp://"),
        (["nobody", "tool", "x=1"], "'nobody': no such file, and no server or program has this name"),
    ],
)
def test_words_that_can_be_neither_are_a_usage_error(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        are_media(words, NAMES)


async def found(*words: str | Path, limits: Limits = DEFAULT_LIMITS) -> list[Playable]:
    async with aclosing(Sources([*map(str, words)], Terminal(json_output=True), limits)) as sources:
        return await sources.find()


async def failure(media: Playable) -> PlayheadError:
    with pytest.raises(PlayheadError) as caught:
        async with media.open() as reader:
            await trio.to_thread.run_sync(reader.readinto, bytearray(9))
    return caught.value


async def test_a_directory_is_its_audio_in_natural_order(here: Path) -> None:
    album = here / "album"
    (album / "CD 2").mkdir(parents=True)
    (album / "CD 10").mkdir()
    (album / ".hidden").mkdir()
    names = ["10 ten.mp3", "2 two.FLAC", "cover.jpg", "list.m3u", ".x.mp3", "What? #1.ogg", "film.mp4"]
    for name in [*names, "CD 10/a.mp3", "CD 2/b.wav", ".hidden/c.mp3"]:
        (album / name).touch()
    assert [it.title for it in await found(album)] == ["2 two", "10 ten", "What? #1", "b", "a"]
    with pytest.raises(UsageError, match="expected a directory with audio files, got none"):
        await found(here / "music")


async def test_a_local_playlist_names_files_beside_it_and_urls_with_its_titles(here: Path) -> None:
    (lists := here / "lists").mkdir()
    inner = "[playlist]\nFile1=../song.mp3\nTitle1=Inner\n"
    (lists / "inner.pls").write_text(inner)
    (lists / "all.m3u").write_text(
        f"#EXTM3U\n#EXTINF:3,One\n../song.mp3\n{(here / 'song.mp3').as_uri()}\ninner.pls\n"
        "#EXTINF:9,Far\nhttps://a.example/b.mp3\n"
    )
    media = await found(lists / "all.m3u")
    assert [it.title for it in media] == ["One", "song", "Inner", "Far"]
    assert media[3].uri == "https://a.example/b.mp3"


async def test_what_is_wrong_with_one_of_several_words_fails_in_its_turn(here: Path) -> None:
    (here / "empty.m3u").write_text("#EXTM3U\n")
    with pytest.raises(ContentError, match="got no entries"):
        await found("empty.m3u")
    song, empty = await found("song.mp3", "empty.m3u")
    assert song.title == "song"
    assert "got no entries" in str(await failure(empty))


async def test_an_entry_that_cannot_be_opened_does_not_stop_the_others(here: Path) -> None:
    (here / "list.m3u").write_text("gone.m3u\nhttp://[::1/x.mp3\nftp://a.example/b.mp3\nsong.mp3\n")
    *failed, song = await found("list.m3u")
    assert song.title == "song"
    messages = [str(await failure(each)) for each in failed]
    assert "expected a readable playlist, got gone.m3u (No such file or directory)" in messages[0]
    assert "http://[::1/x.mp3" in messages[1]
    assert "expected a URL of the web or a file in a playlist, got 'ftp://a.example/b.mp3'" in messages[2]


async def test_a_playlist_of_segments_is_hls(here: Path) -> None:
    (here / "hls.m3u8").write_text("#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXTINF:6,\na.ts\n")
    (failed,) = await found("hls.m3u8")
    assert "expected an HLS playlist at a URL" in str(await failure(failed))


async def test_playlists_nest_three_deep_and_end_at_a_number_of_entries(here: Path) -> None:
    for number in range(5):
        (here / f"{number}.m3u").write_text(f"{number + 1}.m3u\n" if number < 4 else "song.mp3\n")
    assert [it.title for it in await found("2.m3u")] == ["song"]
    (deep,) = await found("1.m3u")
    assert "Limits.playlist_depth" in str(await failure(deep))
    (here / "many.m3u").write_text("2.m3u\n" * 3)
    with pytest.raises(LimitError, match=r"Limits\.playlist_entries"):
        await found("many.m3u", limits=Limits(playlist_entries=2))
    (here / "itself.m3u").write_text("itself.m3u\n" * 30)
    with pytest.raises(LimitError, match=r"Limits\.playlist_entries"):
        await found("itself.m3u", limits=Limits(playlist_entries=20))


PRIVATE = (
    *("http://127.0.0.1:{port}/x.mp3", "http://localhost:{port}/x.m3u", "http://[::1]:{port}/x"),
    *(
        "http://2130706433:{port}/x.mp3",
        "http://0x7f.1:{port}/x.pls",
        "http://[::ffff:127.0.0.1]:{port}/x.mp3",
    ),
    *("http://a@127.0.0.1:{port}/x.mp3", "gopher://127.0.0.1:{port}/x", "http://127.1:{port}/x.m3u8"),
)


@pytest.mark.parametrize("kind", ["a local playlist", "a playlist from the web"])
async def test_a_playlist_leads_to_no_address_that_the_user_did_not_type(kind: str, here: Path) -> None:
    async def canary(_origin: RawOrigin, stream: trio.SocketStream, _head: bytes) -> None:
        await answer(stream, "200 OK", b"ok", "content-type: audio/mpeg")

    async with raw_origin(canary) as private:
        entries = [each.format(port=private.port) for each in PRIVATE]
        if kind == "a local playlist":
            (here / "list.m3u").write_text("\n".join(entries))
            media = await found("list.m3u")
        else:
            entries += ["file:///etc/passwd", (here / "song.mp3").as_uri(), "data:audio/wav;base64,AAAA"]
            body = "\n".join(["#EXTM3U", *entries]).encode()

            async def playlist(_origin: RawOrigin, stream: trio.SocketStream, _head: bytes) -> None:
                await answer(stream, "200 OK", body, "content-type: audio/x-mpegurl")

            async with raw_origin(playlist) as origin:
                media = await found(f"{origin.url}/radio", "song.mp3")
                assert len(origin.heads) == 1
            media = media[:-1]
        assert len(media) == len(entries)
        for each in media:
            assert isinstance(await failure(each), BlockedAddressError), each.uri
        assert private.heads == []


async def test_a_playlist_from_the_web_may_name_its_own_origin(here: Path) -> None:
    async def serve(_origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
        if head.startswith(b"GET /list"):
            await answer(stream, "200 OK", b"#EXTM3U\nsong one.mp3\n", "content-type: audio/x-mpegurl")
        else:
            assert head.startswith(b"GET /song%20one.mp3 ")
            await answer(stream, "200 OK", b"ID3", "content-type: audio/mpeg")

    async with raw_origin(serve) as origin:
        words = [f"{origin.url}/list.m3u"]
        async with aclosing(Sources(words, Terminal(json_output=True), DEFAULT_LIMITS)) as sources:
            (song,) = await sources.find()
            async with song.open() as reader:
                assert await trio.to_thread.run_sync(reader.readinto, bytearray(9)) == 3


@pytest.mark.parametrize("others", [["/b"], []])
async def test_an_outage_of_an_origin_that_answers_another_word_is_waited_for(others: list[str]) -> None:
    lost = set[bytes]()

    async def serve(_origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
        if head.startswith(b"GET /a") and head not in lost:
            lost.add(head)
            raise trio.BrokenResourceError
        await answer(stream, "200 OK", b"ID3", "content-type: audio/mpeg")

    async with raw_origin(serve) as origin, raw_origin(serve) as other:
        words = [f"{origin.url}/a", *(origin.url + path for path in others), f"{other.url}/b"]
        async with aclosing(Sources(words, Terminal(json_output=True), DEFAULT_LIMITS)) as sources:
            song, *_others = await sources.find()
            if not others:
                assert isinstance(await failure(song), ConnectionLostError)
                return
            async with song.open() as reader:
                assert await trio.to_thread.run_sync(reader.readinto, bytearray(9)) == 3


async def test_stdin_is_taken_once() -> None:
    with pytest.raises(UsageError, match="expected stdin once, got it twice"):
        await found("-", "-")
