"""`playhead play` without a server: URLs, playlists, directories, files and stdin, in any mixture."""

from __future__ import annotations

import base64
import http.server
import json
import os
import re
import subprocess
import sys
import wave
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import miniaudio
import pytest
import trio

from tests.e2e.command import AUDIO_SERVER, PLAYHEAD, environment, playhead
from tests.servers.audio_tools import AUDIO_TOOLS
from tests.servers.raw_http import Exchange, raw_http
from tests.servers.shared import SharedServers
from tests.servers.threaded_http import threaded_http

DATA = Path(__file__).parents[1] / "data"
QUIET = ("--sink", "null")
HTML = b"<!doctype html><title>Music</title>"


@dataclass
class Origin:
    """A web server with the files of `DATA`, a page and a playlist. `requests` has each method and path."""

    url: str = ""
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    origin = Origin()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.answer()

        def answer(self) -> None:
            origin.requests.append(f"{self.command} {self.path}")
            status, kind, body = 200, "application/octet-stream", b""
            if self.path == "/page":
                kind, body = "text/html; charset=utf-8", HTML
            elif self.path == "/radio":
                kind, body = "audio/x-mpegurl", b"#EXTM3U\n#EXTINF:-1,On air\nchord.wav\n"
            elif (path := DATA / self.path[1:]).is_file():
                body = path.read_bytes()
            else:
                status = 404
            headers = {"Content-Type": kind, "Connection": "close"}
            found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if found and status == 200:
                start, end = int(found[1]), min(int(found[2]) + 1, len(body))
                headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
                status, body = 206, body[start:end]
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    with threaded_http(Handler) as origin.url:
        yield origin


def decoded(name: str) -> bytes:
    samples: bytes = miniaudio.decode_file(
        str(DATA / name), nchannels=2, sample_rate=44_100
    ).samples.tobytes()
    return samples


def played(path: Path) -> tuple[int, int, bytes]:
    with wave.open(str(path), "rb") as file:
        return file.getframerate(), file.getnchannels(), file.readframes(file.getnframes())


def test_urls_playlists_and_files_play_in_order_each_sample_once(origin: Origin, tmp_path: Path) -> None:
    (tmp_path / "a.m3u").write_text(
        f"#EXTM3U\n#EXTINF:2,Listed\n{DATA}/tagged.mp3\n{origin.url}/gapless.mp3\n"
    )
    (tmp_path / "b.pls").write_text(f"[playlist]\nFile1={DATA}/chord.flac\nTitle1=In a PLS\n")
    words = (f"{origin.url}/gapless.mp3", f"{origin.url}/radio", "a.m3u", "b.pls", DATA / "tagged.mp3")
    before = len(origin.requests)
    done = playhead("play", *words, "--sink", "wave:x.wav", "--json", cwd=tmp_path)
    assert done.code == 0, done.stderr
    titles = [item["title"] for item in done.json["items"]]
    assert titles == ["gapless.mp3", "On air", "Listed", "gapless.mp3", "In a PLS", "tagged"]
    heard = [played(tmp_path / name) for name in done.json["files"]]
    names = ("gapless.mp3", "chord.wav", "tagged.mp3", "gapless.mp3", "chord.flac", "tagged.mp3")
    for (rate, channels, pcm), name in zip(heard, names, strict=True):
        local = miniaudio.get_file_info(str(DATA / name))
        assert (rate, channels) == (local.sample_rate, local.nchannels)
        whole = miniaudio.decode_file(str(DATA / name), nchannels=channels, sample_rate=rate)
        assert pcm == whole.samples.tobytes(), name
    frames = sum(len(pcm) / 2 / channels / rate for rate, channels, pcm in heard)
    assert done.json["position_seconds"] == pytest.approx(frames, abs=0.01)
    asked = origin.requests[before:]
    assert all(each.startswith("GET ") for each in asked)
    assert asked.count("GET /radio") == asked.count("GET /chord.wav") == 1


def test_items_of_one_format_follow_without_a_gap(origin: Origin, tmp_path: Path) -> None:
    with (tmp_path / "out.pcm").open("wb") as out:
        words = [f"{origin.url}/gapless.mp3", str(DATA / "tagged.mp3"), f"{origin.url}/gapless.mp3"]
        command = [*PLAYHEAD, "play", *words, "--sink", "pcm:-", "--rate", "44100", "--channels", "2"]
        subprocess.run(command, stdout=out, check=True, env=environment(), stderr=subprocess.DEVNULL)
    expected = decoded("gapless.mp3") + decoded("tagged.mp3") + decoded("gapless.mp3")
    assert (tmp_path / "out.pcm").read_bytes() == expected


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("/page", 1, "expected audio or a playlist, got a page of HTML (text/html)"),
        ("/conversation.jsonl", 1, "expected audio or a playlist, got text (application/octet-stream)"),
        ("/none.mp3", 1, "expected audio or a playlist, got HTTP 404"),
        (
            "/none",
            3,
            "/none: expected audio, a playlist or an MCP server, got HTTP 404 to a GET; check the URL",
        ),
    ],
)
def test_a_url_without_audio_is_an_error_that_says_what_was_tried(
    path: str, code: int, message: str, origin: Origin
) -> None:
    done = playhead("play", origin.url + path, *QUIET)
    assert (done.code, message in " ".join(done.stderr.split())) == (code, True), done.stderr


def test_an_item_that_fails_does_not_stop_the_others(origin: Origin, tmp_path: Path) -> None:
    (tmp_path / "a.m3u").write_text(f"gone.mp3\n{DATA}/chord.wav\n")
    missing = f"{origin.url}/none.mp3"
    done = playhead("play", f"{origin.url}/page", missing, tmp_path / "a.m3u", *QUIET, "--json")
    assert done.code == 1
    assert [it["error"] and it["error"]["type"] for it in done.json["items"]] == [
        "UnsupportedFormatError",
        "HttpRefusedError",
        "UsageError",
        None,
    ]
    assert done.json["items"][1]["error"]["message"].startswith(f"{missing} answered HTTP 404 ")
    assert done.json["items"][3]["position_seconds"] == 2.0
    assert "got a page of HTML" in done.json["error"]["message"]
    done = playhead("play", tmp_path / "a.m3u", *QUIET)
    assert done.code == 1, "the command itself is right"
    assert done.stderr.count("gone.mp3") == 1


def test_a_web_server_that_is_down_is_named_with_what_to_check() -> None:
    done = playhead("play", "http://127.0.0.1:9/x", *QUIET)
    assert done.code == 3
    expected = (
        "could not connect to http://127.0.0.1:9/x: connection refused; check that the server is running"
    )
    assert expected in " ".join(done.stderr.split())


def test_each_item_that_fails_is_named_once() -> None:
    program = sys.executable
    done = playhead("play", program, DATA / "chord.wav", *QUIET)
    assert (done.code, done.stderr.count("expected a known audio format")) == (1, 1), done.stderr
    assert "has the type" not in done.stderr


def test_the_url_of_a_server_shows_what_it_has_to_play(shared: SharedServers) -> None:
    done = playhead("play", shared.audio)
    assert done.code == 0
    assert "musicPlayer(query)" in done.stdout.decode()
    assert f"playhead play {shared.audio} TOOL [KEY=VALUE]..." in done.stderr
    report = playhead("play", shared.audio, "--json").json
    assert [tool["name"] for tool in report["tools"]] == AUDIO_TOOLS
    assert report["resources"] == []


async def test_all_audio_of_a_result_plays_in_order_and_read_says_which_it_takes(
    origin: Origin, tmp_path: Path
) -> None:
    sound = base64.b64encode((DATA / "chord.wav").read_bytes()).decode()
    block = {"type": "audio", "data": sound, "mimeType": "audio/wav"}
    links = [
        {"type": "resource_link", "uri": f"{origin.url}/{name}", "name": name}
        for name in ("tagged.mp3", "gapless.mp3")
    ]

    async def handle(exchange: Exchange) -> None:
        if exchange.method == "tools/call":
            await exchange.result({"content": [links[0], block, links[1]]})
        else:
            await exchange.error(-32601, "Method not found")

    async with raw_http(handle) as server:
        command = (server.url, "x", "--allow-origin", origin.url)
        play = partial(playhead, "play", *command, "--sink", "wave:x.wav", "--json", cwd=tmp_path)
        done = await trio.to_thread.run_sync(play)
        read = await trio.to_thread.run_sync(partial(playhead, "read", *command, "-o", tmp_path / "file"))
    assert done.code == 0, done.stderr
    assert [item["title"] for item in done.json["items"]] == ["tagged.mp3", "audio", "gapless.mp3"]
    assert [item["error"] for item in done.json["items"]] == [None] * 3
    heard = [played(tmp_path / name) for name in done.json["files"]]
    seconds = [len(pcm) / 2 / channels / rate for rate, channels, pcm in heard]
    assert done.json["position_seconds"] == pytest.approx(sum(seconds), abs=0.01)
    assert read.code == 0, read.stderr
    assert "reading the first of 3 items: tagged.mp3" in read.stderr
    assert (tmp_path / "file").read_bytes() == (DATA / "tagged.mp3").read_bytes()


def test_ls_lists_tools_resources_templates_and_prompts(shared: SharedServers) -> None:
    done = playhead("ls", shared.audio)
    assert done.code == 0
    text = done.stdout.decode()
    speaks = len(AUDIO_TOOLS) - 2
    templates = "2 templates" if speaks else "1 template"
    shown = ("musicPlayer(query)", templates, "resource://read_from_http", "1 prompt")
    for part in (f"{len(AUDIO_TOOLS)} tools", *shown):
        assert part in text
    report = playhead("ls", shared.audio, "--json").json
    counts = [len(report[name]) for name in ("tools", "resources", "templates", "prompts")]
    assert counts == [len(AUDIO_TOOLS), 0, 1 + speaks, 1]


@pytest.mark.parametrize(
    ("source", "items"),
    [
        ((DATA / "chord.wav").read_bytes, ["stdin"]),
        ((DATA / "gapless.mp3").read_bytes, ["stdin"]),
        (lambda: f"{DATA}/chord.wav\n{DATA}/gapless.mp3\n".encode(), ["chord", "gapless"]),
        (lambda: b"na\xefve.wav\ncaf\xc3\xa9.wav\n", ["na\udcefve", "caf\u00e9"]),
    ],
)
def test_stdin_is_audio_or_a_playlist(source: object, items: list[str], tmp_path: Path) -> None:
    assert callable(source)
    for name in (b"na\xefve.wav", b"caf\xc3\xa9.wav"):
        (tmp_path / os.fsdecode(name)).write_bytes((DATA / "chord.wav").read_bytes())
    command = [*PLAYHEAD, "play", "-", *QUIET, "--json"]
    done = subprocess.run(
        command, input=source(), capture_output=True, env=environment(), check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert [it["title"] for it in json.loads(done.stdout)["items"]] == items


def test_stdin_that_is_a_file_can_be_sought() -> None:
    with (DATA / "chord.wav").open("rb") as file:
        command = [*PLAYHEAD, "play", "-", *QUIET, "--start", "1.5", "--json"]
        done = subprocess.run(command, stdin=file, capture_output=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["position_seconds"] == 2.0


def test_a_stop_does_not_wait_for_a_pipe_that_stays_open() -> None:
    command = [*PLAYHEAD, "play", "-", *QUIET, "--deadline", "1"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert process.stdin is not None
    process.stdin.write((DATA / "chord.wav").read_bytes()[:30_000])
    process.stdin.flush()
    try:
        assert process.wait(30) == 1
    finally:
        process.kill()
        process.communicate()


def test_options_repeat_shuffle_and_mute(tmp_path: Path) -> None:
    words = ("chord.wav", "chord.flac", "gapless.mp3", "tagged.mp3")
    files = [DATA / word for word in words]
    orders = set()
    for _ in range(12):
        report = playhead("play", *files, *QUIET, "--shuffle", "--json").json
        orders.add(tuple(it["title"] for it in report["items"]))
    assert len(orders) > 1
    assert {tuple(sorted(order)) for order in orders} == {("chord", "chord", "gapless", "tagged")}
    silent = tmp_path / "x.pcm"
    assert playhead("play", DATA / "chord.wav", "--sink", f"pcm:{silent}", "--mute").code == 0
    assert set(silent.read_bytes()) == {0}
    done = playhead("play", DATA / "chord.wav", *QUIET, "--repeat", "--deadline", "2", "--json")
    assert done.code == 1
    assert "within 2 s" in done.json["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "x", "--sink", "null"], "expected --device or --sink null, got both"),
        (["--strategy", "whole", "--sink", "null"], "--strategy is for what a server has"),
        (["--cache", "/tmp/x", "--sink", "null"], "--cache is for what a server has"),
    ],
)
def test_options_that_do_not_go_together_are_a_usage_error(arguments: list[str], message: str) -> None:
    done = playhead("play", DATA / "chord.wav", *arguments)
    assert (done.code, message in done.stderr) == (2, True), done.stderr


def test_a_name_of_a_server_and_of_a_file_asks_for_the_path(tmp_path: Path) -> None:
    (tmp_path / "music").mkdir()
    (tmp_path / "music" / "chord.wav").symlink_to(DATA / "chord.wav")
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"music": {"command": "false"}}}))
    done = playhead("play", "music", *QUIET, cwd=tmp_path)
    assert (done.code, "write ./music for the directory" in done.stderr) == (2, True)
    assert playhead("play", "./music", *QUIET, cwd=tmp_path).code == 0


def test_playing_files_imports_neither_the_client_nor_rich() -> None:
    program = (
        "import sys; from playhead.cli.app import run;"
        f"code = run(['play', {str(DATA / 'chord.wav')!r}, '--sink', 'null', '--json']);"
        "found = {'playhead.client', 'rich', 'httpcore2', 'mcp_types'} & sys.modules.keys();"
        "sys.exit(code or (str(found) if found else 0))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr


def test_a_server_as_a_command_line_plays_as_before() -> None:
    done = playhead("play", AUDIO_SERVER, "musicPlayer", "query=lift", *QUIET, "--json")
    assert done.code == 0, done.stderr
    assert done.json["items"][0]["title"]
    assert done.json["strategy"] == done.json["items"][0]["strategy"]
