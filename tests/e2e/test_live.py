"""Radio and HLS with the command: titles on stderr, requests and reconnects in `--json`."""

from __future__ import annotations

import http.server
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.command import playhead
from tests.live_kit import hls_files
from tests.servers.threaded_http import threaded_http

MP3 = (Path(__file__).parents[1] / "data" / "bare.mp3").read_bytes()


@contextmanager
def station(routes: dict[str, list[tuple[int, dict[str, str], bytes]]]) -> Iterator[str]:
    """A web server that gives each path's answers in turn, the last again and again, and then closes."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            answers = routes.get(self.path, [(404, {}, b"")])
            status, headers, body = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    with threaded_http(Handler) as url:
        yield url


def test_a_radio_shows_its_titles_and_counts_its_connections() -> None:
    title = b"StreamTitle='On \x1b[31m air';".ljust(32, b"\0")
    body = MP3[:2000] + b"\2" + title + MP3[2000:4000] + b"\0" + MP3[4000:6000]
    headers = {"icy-metaint": "2000", "icy-name": "Test", "content-type": "audio/mpeg"}
    answers = [(200, headers, body), (200, headers, body), (404, {}, b"")]
    with station({"/radio": list(answers)}) as url:
        done = playhead("play", f"{url}/radio", "--sink", "null", "--json")
    report = json.loads(done.stdout)
    assert done.code == 1
    assert "refuses another connection" in report["error"]["message"]
    assert (report["strategy"], report["requests"], report["reconnects"]) == ("radio", 3, 2)
    assert report["stream_title"] == "On \x1b[31m air"
    assert report["position_seconds"] > 1  # both connections were heard
    with station({"/radio": list(answers)}) as url:
        done = playhead("play", f"{url}/radio", "--sink", "null")
    assert "now On \\x1b[31m air" in done.stderr


def test_hls_plays_from_its_url_and_from_a_list_that_names_it(run_directory: Path) -> None:
    piece = hls_files("ts", run_directory)
    files = {f"/a/{name}": [(200, dict[str, str](), data)] for name, data in piece.files.items()}
    lists = {"/a/list.m3u8": piece.playlist(), "/radio.m3u": b"#EXTM3U\n#EXTINF:-1,On air\na/list.m3u8\n"}
    with station(files | {path: [(200, {}, data)] for path, data in lists.items()}) as url:
        for path in lists:
            done = playhead("play", f"{url}{path}", "--sink", "null", "--json")
            report = json.loads(done.stdout)
            assert done.code == 0, done.stderr
            assert (report["strategy"], report["ended_by"], report["live"]) == ("hls", "done", False)
            assert report["requests"] == 1 + len(piece.segments)
            assert abs(report["position_seconds"] - 4) < 0.2
