"""A canary in every kind of configuration is in no error, report, log line or `--json` of any command."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.command import playhead

CANARY = "Can4ry-0f-the-Min3-7XqZ"
ECHO = """
import json, os, sys
told = " ".join([*sys.argv[1:], os.environ.get("KEY", "")])
print(told, file=sys.stderr, flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        error = {"code": -32000, "message": "not with " + told}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
"""
COMMANDS = (
    ("tools", "it"),
    ("tools", "--all"),
    ("call", "it", "x"),
    ("play", "it", "x://y", "--sink", "null"),
    ("read", "it", "x://y", "-o", "out"),
    ("explain", "it", "x"),
    ("check", "it", "--report", "r.json", "--report", "r.md", "--report", "r.html", "--report", "r.xml"),
    ("chat", "--provider", "openai", "--model", "m", "--base-url", "http://127.0.0.1:9/v1", "hello"),
)


class Refusing(http.server.BaseHTTPRequestHandler):
    """A server that quotes everything it was sent in its refusal."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        said = f"no access for {self.path} {self.headers.get('authorization')} {self.headers.get('x-key')}"
        self.send_response(403, "refused")
        self.end_headers()
        self.wfile.write(json.dumps({"error": said}).encode())

    do_GET = do_DELETE = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def refusing() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


ENTRIES = {
    "argument": {"command": sys.executable, "args": ["echo.py", "${CANARY}"]},
    "environment": {"command": sys.executable, "args": ["echo.py"], "env": {"KEY": "${CANARY}"}},
    "literal environment": {"command": sys.executable, "args": ["echo.py"], "env": {"KEY": CANARY}},
    "program": {"command": "/nowhere/${CANARY}"},
    "directory": {"command": sys.executable, "cwd": "/nowhere/${CANARY}"},
    "header": {"url": "http://127.0.0.1:PORT/mcp", "headers": {"X-Key": CANARY}},
    "bearer": {"url": "http://127.0.0.1:PORT/mcp", "auth": {"type": "bearer", "token": "${CANARY}"}},
    "query": {"url": f"http://127.0.0.1:PORT/mcp?key={CANARY}"},
    "password": {"url": f"http://me:{CANARY}@127.0.0.1:PORT/mcp"},
    "path": {"url": f"http://127.0.0.1:PORT/{CANARY}/mcp"},
    "websocket": {"url": f"ws://me:{CANARY}@127.0.0.1:PORT/{CANARY}?k={CANARY}"},
    "wrong url": {"url": "http://me:${CANARY}@host:port/?k=${CANARY}"},
    "wrong type": {"url": "http://host/", "headers": {"X": [CANARY]}, "auth": {"token": CANARY}},
    "wrong value": {"url": "http://host/", "auth": {"type": "oauth", "issuer": CANARY}},
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_no_secret_of_a_server_is_shown(
    tmp_path: Path, refusing: int, entry: object, command: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "echo.py").write_text(ECHO)
    text = json.dumps({"mcpServers": {"it": entry}}).replace("PORT", str(refusing))
    (tmp_path / "mcp.json").write_text(text)
    with caplog.at_level("INFO"):
        plain = playhead(*command, "--trust", cwd=tmp_path, CANARY=CANARY)
        done = playhead(*command, "--trust", "--json", cwd=tmp_path, CANARY=CANARY)
    seen = plain.stdout + done.stdout
    for path in tmp_path.glob("r.*"):
        seen += path.read_bytes()
    # A terminal folds lines: the canary may be cut in two.
    assert CANARY[:12] not in "".join((seen.decode() + plain.stderr + done.stderr + caplog.text).split())
