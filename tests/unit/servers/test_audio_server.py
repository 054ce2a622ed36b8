"""The audio server through a real SDK client: its tools, and each way of asking for a range."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx2
import mcp_types as types
import pytest
import trio
import trio.testing
from mcp import Client, MCPError, StdioServerParameters
from mcp.shared.uri_template import UriTemplate

from playhead.client import ResourceMedia, connect
from playhead.errors import ServerError, UsageError
from playhead.servers.audio import DEFAULT_META_KEY, AudioServerOptions
from playhead.servers.audio.audio_server import open_audio_server, serve
from playhead.servers.audio.audio_tools import TEMPLATE, URI
from playhead.servers.ranged_resource import SERVED_PAGE_BYTES
from tests.servers.audio_tools import AUDIO_TOOLS
from tests.servers.loopback import started
from tests.servers.messages import initialize
from tests.servers.ranged_read import read_blob
from tests.servers.raw_origin import RawOrigin, answer, bounds, ignores_ranges, raw_origin, says_nothing
from tests.servers.raw_websocket import as_transport

MUSIC = Path(__file__).parents[3] / "python/playhead/servers/audio/music"
SONG = MUSIC / "first-light.mp3"
PAGE = 102_400
ERAS: list[Literal["legacy", "auto"]] = ["legacy", "auto"]


@asynccontextmanager
async def client(mode: Literal["legacy", "auto"] = "auto", **options: Any) -> AsyncIterator[Client]:
    """A client of a server in this process."""
    given = AudioServerOptions(mixer="memory", **options)
    async with open_audio_server(given) as server, Client(server, mode=mode) as connected:
        yield connected


async def call(connected: Client, tool: str, **arguments: object) -> types.CallToolResult:
    result = await connected.call_tool(tool, dict(arguments))
    assert isinstance(result, types.CallToolResult)
    return result


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def song_url(connected: Client) -> str:
    (link,) = (await call(connected, "musicPlayer", query="first light")).content
    assert isinstance(link, types.ResourceLink)
    assert link.description is not None
    return link.description


async def read_params(connected: Client, params: dict[str, Any]) -> bytes:
    return base64.b64decode((await read_blob(connected, params)).blob, validate=True)


async def by_arguments(connected: Client, url: str, start: int, end: int) -> bytes:
    return await read_params(connected, {"uri": URI, "arguments": {"url": url, "start": start, "end": end}})


async def by_template(connected: Client, url: str, start: int, end: int) -> bytes:
    coded = base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
    uri = UriTemplate.parse(TEMPLATE).expand({"url": coded, "start": str(start), "end": str(end)})
    return await read_params(connected, {"uri": uri})


async def by_meta(connected: Client, url: str, start: int, end: int) -> bytes:
    meta = {DEFAULT_META_KEY: {"url": url, "start": start, "end": end}}
    return await read_params(connected, {"uri": URI, "_meta": meta})


async def test_music_player_links_to_the_piece_with_its_type_size_and_media_url() -> None:
    async with client() as connected:
        (link,) = (await call(connected, "musicPlayer", query="FIRST light")).content
    assert isinstance(link, types.ResourceLink)
    assert (link.uri, link.name, link.mime_type) == (URI, "First Light", "audio/mpeg")
    assert link.size == SONG.stat().st_size
    assert link.description is not None
    assert link.description.startswith("http://127.0.0.1:")


async def test_a_query_that_nothing_answers_is_a_tool_error_that_lists_the_titles() -> None:
    async with client() as connected:
        result = await call(connected, "musicPlayer", query="zzzz qqqq")
    assert result.is_error
    assert "- First Light: the verse" in text_of(result)


@pytest.mark.parametrize("arguments", [{}, {"query": 7}, {"query": None}])
async def test_a_query_that_is_no_text_is_a_tool_error(arguments: dict[str, object]) -> None:
    async with client() as connected:
        result = await call(connected, "musicPlayer", **arguments)
    assert result.is_error
    assert "query: expected a string" in text_of(result)


async def test_set_volume_says_what_it_did() -> None:
    async with client() as connected:
        result = await call(connected, "set_volume", volume=40)
    assert not result.is_error
    assert "40" in text_of(result)


@pytest.mark.parametrize("volume", [0, 101, -5, 50.5, "50", True, None])
async def test_a_volume_out_of_range_is_a_tool_error_with_the_allowed_range(volume: object) -> None:
    async with client() as connected:
        result = await call(connected, "set_volume", volume=volume)
    assert result.is_error
    assert "from 1 to 100" in text_of(result)


async def test_an_unknown_tool_is_an_error_that_names_the_known_ones() -> None:
    async with client() as connected:
        with pytest.raises(MCPError, match=", ".join(AUDIO_TOOLS)) as caught:
            await call(connected, "rm")
    assert caught.value.code == -32602


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("read", [by_arguments, by_template, by_meta])
async def test_each_way_of_asking_gives_the_file_byte_for_byte_and_done_after_its_end(
    mode: Literal["legacy", "auto"], read: Any
) -> None:
    got = b""
    async with client(mode) as connected:
        url = await song_url(connected)
        for _ in range(0, SONG.stat().st_size, PAGE):
            got += await read(connected, url, len(got), len(got) + PAGE)
        assert await read(connected, url, len(got), len(got) + PAGE) == b"[DONE]"
    assert hashlib.sha256(got).digest() == hashlib.sha256(SONG.read_bytes()).digest()


async def test_a_range_in_meta_goes_with_a_url_in_the_arguments() -> None:
    async with client() as connected:
        arguments = {"url": await song_url(connected)}
        meta = {DEFAULT_META_KEY: {"start": 5, "end": 25}}
        got = await read_params(connected, {"uri": URI, "arguments": arguments, "_meta": meta})
    assert got == SONG.read_bytes()[5:25]


async def test_the_template_form_also_takes_the_url_plain() -> None:
    async with client() as connected:
        url = await song_url(connected)
        uri = UriTemplate.parse(TEMPLATE).expand({"url": url, "start": "5", "end": "25"})
        assert await read_params(connected, {"uri": uri}) == SONG.read_bytes()[5:25]


async def test_the_template_is_listed() -> None:
    async with client() as connected:
        template, *_speech = (await connected.list_resource_templates()).resource_templates
    assert template.uri_template == TEMPLATE


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (None, "start is missing"),
        ({"url": "http://x/", "start": 0}, "end is missing"),
        ({"start": 0, "end": 5}, "url is missing"),
        ({"url": "http://x/", "start": -1, "end": 5}, "start is -1"),
        ({"url": "http://x/", "start": 5, "end": 5}, "not before"),
        ({"url": "http://x/", "start": 6, "end": 5}, "not before"),
        ({"url": "http://x/", "start": "0", "end": 5}, "start is '0'"),
        ({"url": "http://x/", "start": 0.5, "end": 5}, r"start is 0\.5"),
        ({"url": "http://x/", "start": True, "end": 5}, "start is True"),
        ({"url": "http://x/", "start": 0, "end": 10**30}, "end is 1000"),
        ({"url": 7, "start": 0, "end": 5}, "url is 7"),
        ({"url": "!!!", "start": 0, "end": 5}, "neither a URL"),
        ({"url": "file:///etc/passwd", "start": 0, "end": 5}, "expected http or https"),
        ({"url": "http://127.0.0.1:1/", "start": 0, "end": 5}, "--allow-origin"),
        ({"url": "http://169.254.169.254/latest", "start": 0, "end": 5}, "--allow-origin"),
        ({"url": "http://x/\r\nHost: y", "start": 0, "end": 5}, "control"),
    ],
)
@pytest.mark.parametrize("mode", ERAS)
async def test_a_wrong_range_or_url_is_invalid_params_and_says_what_was_expected(
    mode: Literal["legacy", "auto"], arguments: dict[str, object] | None, word: str
) -> None:
    async with client(mode) as connected:
        with pytest.raises(MCPError, match=word) as caught:
            await read_params(connected, {"uri": URI, "arguments": arguments})
    assert caught.value.code == -32602


@pytest.mark.parametrize(("mode", "code"), [("legacy", -32002), ("auto", -32602)])
async def test_another_uri_is_an_unknown_resource(mode: Literal["legacy", "auto"], code: int) -> None:
    async with client(mode) as connected:
        with pytest.raises(MCPError, match="read_from_http") as caught:
            await read_params(connected, {"uri": "resource://read_from_httpx?start=0&end=5"})
    assert caught.value.code == code


async def test_a_huge_range_is_answered_with_its_first_bytes() -> None:
    body = bytes(SERVED_PAGE_BYTES + 1000)
    async with raw_origin(ignores_ranges(body)) as origin, client(allow_origins=(origin.url,)) as connected:
        assert len(await by_arguments(connected, origin.url, 0, 10**12)) == SERVED_PAGE_BYTES


async def test_an_origin_that_ignores_ranges_is_sliced_and_never_repeated() -> None:
    body = bytes(range(256)) * 1000
    got = b""
    async with raw_origin(ignores_ranges(body)) as origin, client(allow_origins=(origin.url,)) as connected:
        for _ in range(0, len(body), PAGE):
            got += await by_arguments(connected, origin.url, len(got), len(got) + PAGE)
        assert await by_arguments(connected, origin.url, len(got), len(got) + PAGE) == b"[DONE]"
    assert got == body


async def test_pages_are_read_over_one_kept_connection() -> None:
    async def ranged(origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
        start, end = bounds(head)
        await answer(
            stream, "206 Partial Content", bytes(end - start), f"content-range: bytes {start}-{end - 1}/*"
        )

    async with raw_origin(ranged) as origin, client(allow_origins=(origin.url,)) as connected:
        for start in range(0, 1000, 100):
            assert await by_arguments(connected, origin.url, start, start + 100) == bytes(100)
        assert len(origin.heads) == 10
        assert origin.connections == 1


async def test_an_origin_s_refusal_is_an_error_of_that_read_alone() -> None:
    async def missing(origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
        await answer(stream, "404 Not Found", b"gone")

    async with raw_origin(missing) as origin, client(allow_origins=(origin.url,)) as connected:
        with pytest.raises(MCPError, match="404") as caught:
            await by_arguments(connected, origin.url, 0, 5)
        assert caught.value.code == -32603
        assert await by_arguments(connected, await song_url(connected), 0, 3) == b"ID3"


async def test_a_silent_origin_is_asked_once_more_after_a_second(mock_clock: trio.testing.MockClock) -> None:
    async def read(connected: Client) -> None:
        with pytest.raises(MCPError, match="in time"):
            await by_arguments(connected, origin.url, 0, 5)

    async with raw_origin(says_nothing) as origin, client(allow_origins=(origin.url,)) as connected:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, connected)
            await origin.wait_requests(1)
            mock_clock.jump(10.1)
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(0.9)
            await trio.testing.wait_all_tasks_blocked()
            assert len(origin.heads) == 1
            mock_clock.jump(0.2)
            await origin.wait_requests(2)
            mock_clock.jump(10.1)
        assert len(origin.heads) == 2


@pytest.mark.parametrize("mode", ERAS)
async def test_cancelling_a_read_closes_the_request_to_the_origin(mode: Literal["legacy", "auto"]) -> None:
    async with raw_origin(says_nothing) as origin, client(mode, allow_origins=(origin.url,)) as connected:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(by_arguments, connected, origin.url, 0, 5)
            await origin.asked.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            await origin.closed.wait()


async def test_over_stdio_the_song_is_read_and_the_child_ends_with_its_stdin() -> None:
    arguments = ["-m", "playhead", "serve", "audio", "--mixer", "memory"]
    with trio.fail_after(30):
        async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as connected:
            url = await song_url(connected)
            starts = range(0, SONG.stat().st_size + PAGE, PAGE)
            got = [await by_template(connected, url, start, start + PAGE) for start in starts]
    assert b"".join(got).removesuffix(b"[DONE]") == SONG.read_bytes()


async def read_over_http(url: str, media: str) -> None:
    async with Client(url) as connected:
        await by_arguments(connected, media, 0, 5)


@asynccontextmanager
async def http_server() -> AsyncIterator[tuple[str, trio.Process]]:
    words = "-m playhead serve audio --transport http --port 0 --mixer memory"
    argv = [sys.executable, *words.split()]
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            process = await nursery.start(
                partial(trio.run_process, argv, stderr=-1, stdout=-1, check=False)  # -1 is subprocess.PIPE
            )
            assert process.stderr is not None
            line = b""
            while not line.endswith(b"\n"):
                line += await process.stderr.receive_some()
            yield line.decode().split()[-1], process
            process.terminate()


async def test_over_http_the_song_is_read_and_one_line_tells_the_url() -> None:
    async with http_server() as (url, _), Client(url) as connected:
        media = await song_url(connected)
        assert await by_arguments(connected, media, 100, 50_000) == SONG.read_bytes()[100:50_000]


@pytest.mark.requirement("MCP-11")
@pytest.mark.parametrize(
    ("header", "value", "status"),
    [("host", "evil.example", 421), ("origin", "http://evil.example", 403)],
)
async def test_a_foreign_host_or_origin_is_refused_over_http(header: str, value: str, status: int) -> None:
    async with (
        started(serve, AudioServerOptions(transport="http", port=0)) as url,
        httpx2.AsyncClient() as http,
    ):
        answered = await http.post(url, json={}, headers={header: value})
        assert answered.status_code == status
        too_long = await http.post(
            url, content=b" " * (1024 * 1024 + 1), headers={"content-type": "application/json"}
        )
        assert too_long.status_code == 413


async def test_sessions_that_are_never_used_again_are_bounded() -> None:
    headers = {"accept": "application/json, text/event-stream"}
    options = AudioServerOptions(transport="http", port=0, mixer="memory", sessions=2)
    async with started(serve, options) as url:
        async with httpx2.AsyncClient(headers=headers) as http:
            opened = [await http.post(url, json=initialize()) for _ in range(3)]
            assert [answered.status_code for answered in opened] == [200, 200, 200]
            oldest = {"mcp-session-id": opened[0].headers["mcp-session-id"]}
            assert (await http.delete(url, headers=oldest)).status_code == 404
        async with Client(url) as connected:  # the newer protocol has no sessions, and goes on
            assert await song_url(connected)


# --- links that outlive their process -------------------------------------------------------------------


async def test_a_link_works_after_a_restart_and_in_another_process_of_the_user(tmp_path: Path) -> None:
    async with client(state_directory=tmp_path / "state") as first:
        url = await song_url(first)
        async with client(state_directory=tmp_path / "state") as second:
            assert await by_template(second, url, 5, 25) == SONG.read_bytes()[5:25]
            assert (await song_url(second)).partition("/media/")[2] == url.partition("/media/")[2]
    async with client(state_directory=tmp_path / "state") as third:
        assert await by_arguments(third, url, 0, PAGE) == SONG.read_bytes()[:PAGE]


@pytest.mark.parametrize("state", [None, "other"])
async def test_a_link_of_another_key_is_refused_with_the_remedy(tmp_path: Path, state: str | None) -> None:
    async with client(state_directory=tmp_path / "state") as first:
        url = await song_url(first)
    async with client(state_directory=None if state is None else tmp_path / state) as second:
        with pytest.raises(MCPError, match="call musicPlayer for a new one") as caught:
            await by_arguments(second, url, 0, 5)
    assert caught.value.code == -32602


@pytest.mark.parametrize(
    "wrong",
    [
        "https://127.0.0.1:{port}{path}",
        "http://127.0.0.2:{port}{path}",
        "http://169.254.169.254:{port}{path}",
        "http://127.0.0.1:{port}@169.254.169.254{path}",
        "http://127.0.0.1:{port}/",
        "http://127.0.0.1:{port}{path}/../../../etc/passwd",
        "http://127.0.0.1:{port}{path}?a=b",
        "http://127.0.0.1:{port}/x{path}",
    ],
)
async def test_only_a_whole_link_is_read_and_the_rest_of_loopback_stays_closed(wrong: str) -> None:
    async with client() as connected:
        port, slash, path = (await song_url(connected)).removeprefix("http://127.0.0.1:").partition("/")
        with pytest.raises(MCPError, match="--allow-origin") as caught:
            await by_arguments(connected, wrong.format(port=port, path=slash + path), 0, 5)
    assert caught.value.code == -32602


async def test_a_link_to_a_file_that_has_changed_since_is_refused(tmp_path: Path) -> None:
    song = tmp_path / "song.mp3"
    song.write_bytes(bytes(1000))
    async with client(library=tmp_path) as connected:
        (link,) = (await call(connected, "musicPlayer", query="")).content
        assert isinstance(link, types.ResourceLink)
        url = link.description
        assert url is not None
        assert await by_arguments(connected, url, 0, 5) == bytes(5)
        song.write_bytes(bytes(range(200)))
        with pytest.raises(MCPError, match="has changed since this link was made") as caught:
            await by_arguments(connected, url, 5, 10)
        assert caught.value.data == {"kind": "ResourceChangedError"}
        (fresh,) = (await call(connected, "musicPlayer", query="")).content
        assert isinstance(fresh, types.ResourceLink)
        assert fresh.size == 200
        assert fresh.description is not None
        assert await by_arguments(connected, fresh.description, 5, 10) == bytes(range(5, 10))
        song.unlink()
        assert "cannot be read any more" in text_of(await call(connected, "musicPlayer", query=""))


async def test_the_link_names_the_version_that_its_pages_name() -> None:
    async with client() as connected:
        (link,) = (await call(connected, "musicPlayer", query="first light")).content
        assert isinstance(link, types.ResourceLink)
        arguments = {"url": link.description, "start": 0, "end": 5}
        blob = await read_blob(connected, {"uri": URI, "arguments": arguments})
    assert (blob.meta or {})["playhead/etag"] == (link.meta or {})["playhead/etag"]


async def test_without_a_place_for_its_key_the_server_says_so_in_one_line_and_plays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    async with client(state_directory=tmp_path / "file") as connected:
        assert await by_arguments(connected, await song_url(connected), 0, 3) == b"ID3"
    (line,) = capsys.readouterr().err.splitlines()
    assert "links end with this process" in line
    assert "Not a directory" in line


async def test_the_origin_of_the_library_answers_to_its_own_name_only() -> None:
    async with client() as connected:
        url = await song_url(connected)
        async with httpx2.AsyncClient() as http:
            assert (await http.head(url)).status_code == 200
            assert (await http.head(url, headers={"host": "evil.example"})).status_code == 400


async def test_a_cancelled_http_server_ends_though_a_read_hangs() -> None:
    async with raw_origin(says_nothing) as origin:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                options = AudioServerOptions(transport="http", port=0, allow_origins=(origin.url,))
                url = await nursery.start(serve, options)
                nursery.start_soon(read_over_http, url, origin.url)
                await origin.asked.wait()
                nursery.cancel_scope.cancel()
            await origin.closed.wait()


async def test_over_websocket_it_plays_the_same_music() -> None:
    async with started(serve, AudioServerOptions(transport="ws", port=0, mixer="memory")) as url:
        assert (url[:15], url[-4:]) == ("ws://127.0.0.1:", "/mcp")
        async with Client(as_transport(int(url[15:-4]))) as connected:
            assert await song_url(connected)


async def test_a_taken_port_is_a_usage_error_that_names_the_remedy() -> None:
    async with raw_origin(says_nothing) as origin:
        port = int(origin.url.rsplit(":", 1)[1])
        with pytest.raises(UsageError, match="--port"):
            await serve(AudioServerOptions(transport="http", port=port))


# --- the prompt ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (None, "Play some music. Use musicPlayer"),
        ({"wish": " something slow "}, "Play this: something slow. Use musicPlayer"),
    ],
)
async def test_the_prompt_asks_for_music(arguments: dict[str, str] | None, asked: str) -> None:
    async with client() as connected:
        (prompt,) = (await connected.list_prompts()).prompts
        found = await connected.get_prompt(prompt.name, arguments)
        (message,) = found.messages
        assert isinstance(message.content, types.TextContent)
        assert message.content.text.startswith(asked)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [("sing", {}, "this server has play_music"), ("play_music", {"wish": "x" * 501}, "500 are allowed")],
)
async def test_a_prompt_that_is_none_is_refused(name: str, arguments: dict[str, str], said: str) -> None:
    async with client() as connected:
        with pytest.raises(MCPError, match=said) as caught:
            await connected.get_prompt(name, arguments)
        assert caught.value.code == -32602


# --- speech -------------------------------------------------------------------------------------------------

needs_espeak = pytest.mark.skipif("speak" not in AUDIO_TOOLS, reason="needs espeak-ng")


@needs_espeak
@pytest.mark.parametrize("waits", [False, True])
async def test_speech_is_what_the_program_writes(waits: bool) -> None:
    text = "One, two, three. Four, five, six."
    program = ["espeak-ng", "--stdin", "--stdout"]
    done = await trio.run_process(program, stdin=text.encode(), capture_stdout=True)
    async with open_audio_server(AudioServerOptions(mixer="memory")) as server, connect(server) as session:
        result = await session.call_tool("speak", {"text": text, "wait": waits})
        (media,) = result.links
        async with media.open() as stream:
            assert await stream.read_all() == done.stdout
    assert media.title == text
    assert media.is_live is not waits


@pytest.fixture
def slow_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in place of espeak-ng, which writes the second half once a file appears."""
    program = tmp_path / "espeak-ng"
    program.write_text(
        f"#!{sys.executable} -IS\n"
        "import os, sys, time\n"
        f"open({str(tmp_path / 'argv')!r}, 'w').write(repr(sys.argv[1:]))\n"
        "text = sys.stdin.buffer.read()\n"
        "os.write(1, text[:5])\n"
        f"while not os.path.exists({str(tmp_path / 'go on')!r}): time.sleep(0.005)\n"
        "os.write(1, text[5:])\n"
        f"sys.exit(os.path.exists({str(tmp_path / 'fail')!r}))\n"
    )
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


async def test_a_link_is_returned_while_the_program_still_speaks(slow_engine: Path) -> None:
    async with open_audio_server(AudioServerOptions(mixer="memory")) as server, connect(server) as session:
        result = await session.call_tool("speak", {"text": "secret words"})
        async with session.open(result.links[0]) as stream:
            assert await stream.receive_some(5) == b"secre"
            assert (slow_engine / "argv").read_text() == "['--stdin', '--stdout']"
            (slow_engine / "go on").touch()
            assert await stream.read_all() == b"t words"


async def test_a_program_that_fails_is_an_error_after_its_last_byte(slow_engine: Path) -> None:
    for name in ("go on", "fail"):
        (slow_engine / name).touch()
    async with open_audio_server(AudioServerOptions(mixer="memory")) as server, connect(server) as session:
        with pytest.raises(ServerError, match="its source failed after 12 bytes"):
            await session.call_tool("speak", {"text": "secret words", "wait": True})
        result = await session.call_tool("speak", {"text": "secret words"})
        async with session.open(result.links[0]) as stream:
            assert await stream.receive_some(12) == b"secret words"
            with pytest.raises(ServerError, match="its source failed"):
                await stream.read_all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "text: expected a string of 1 to 100000 characters, got None"),
        ({"text": " "}, "got 1 characters"),
        ({"text": "a" * 100_001}, "got 100001 characters"),
        ({"text": "a", "wait": 1}, "wait: expected true or false, got 1"),
    ],
)
async def test_what_cannot_be_spoken_is_an_error_of_the_tool(
    slow_engine: Path, arguments: dict[str, Any], message: str
) -> None:
    async with client() as connected:
        result = await connected.call_tool("speak", arguments)
    assert isinstance(result, types.CallToolResult)
    assert result.is_error
    assert message in text_of(result)


async def test_a_link_to_speech_that_was_never_asked_for_is_unknown(slow_engine: Path) -> None:
    async with client() as connected:
        with pytest.raises(MCPError, match="unknown speech 'x'"):
            await read_blob(connected, {"uri": "speech://x.wav", "arguments": {"start": 0, "end": 9}})


async def test_a_report_of_progress_names_the_link_while_the_call_goes_on(slow_engine: Path) -> None:
    named: list[ResourceMedia] = []

    async def on_media(media: ResourceMedia) -> None:
        named.append(media)

    over = trio.Event()
    async with open_audio_server(AudioServerOptions(mixer="memory")) as server, connect(server) as session:

        async def speak() -> None:
            arguments = {"text": "secret words", "wait": True}
            result = await session.call_tool("speak", arguments, on_media=on_media)
            (media,) = result.media
            assert (media.uri, media.size_bytes) == (named[0].uri, 12)
            assert result.late_media == ()
            over.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(speak)
            while not named:
                await trio.testing.wait_all_tasks_blocked(0.001)
            async with named[0].open() as stream:
                assert await stream.receive_some(5) == b"secre"
                assert not over.is_set()
                (slow_engine / "go on").touch()
                assert await stream.read_all() == b"t words"
    assert len(named) == 1
