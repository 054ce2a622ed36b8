"""Scripted stdio peers: servers that do exactly what a test says, each in its own process.

A script is a list of steps. `command(steps)` is the argv of a peer that runs them; it needs nothing but an
interpreter. The peer answers a request only if a step says so.

    command([Handshake(), Expect(method="resources/read"), Send(line='{"jsonrpc":"2.0","id":%ID%,…'), Exit()])
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """Answer `initialize` as a server of 2025-11-25, and refuse earlier requests (`server/discover`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """Read messages until a request of this method; its id replaces `%ID%` in later sends."""

    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Write a line. It is Latin-1, so that every byte can be written; `%ID%` is the last request's id."""

    line: str
    newline: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """Answer the last request with a result, as JSON."""

    result: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """Write a line to stderr."""

    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseStdout:
    """Close stdout and keep running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreTerm:
    """Ignore SIGTERM from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitEnd:
    """Read, and ignore, until stdin ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """Do nothing forever, not even at the end of stdin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """Exit at once with this status."""

    status: int = 0


Step = Handshake | Expect | Send | SendResult | Say | CloseStdout | IgnoreTerm | AwaitEnd | Hang | Exit

_PLAYER = r"""
import json, os, signal, sys, time
ID = None
def read():
    line = sys.stdin.buffer.readline()
    if not line: os._exit(0)
    return json.loads(line)
def put(data):
    data = data.replace(b"%ID%", json.dumps(ID).encode())
    while data: data = data[os.write(1, data):]
def put_json(message): put(json.dumps(message).encode() + b"\n")
def handshake():
    while True:
        m = read()
        if m.get("method") == "initialize":
            info = {"name": "scripted", "version": "1"}
            caps = {"resources": {}, "tools": {}}
            return put_json({"jsonrpc": "2.0", "id": m["id"], "result":
                {"protocolVersion": "2025-11-25", "capabilities": caps, "serverInfo": info}})
        if "id" in m and "method" in m:
            put_json({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "unknown"}})
for kind, s in json.loads(sys.argv[1]):
    if kind == "Handshake": handshake()
    elif kind == "Expect":
        while (m := read()).get("method") != s["method"]: pass
        ID = m.get("id")
    elif kind == "Send": put(s["line"].encode("latin-1") + b"\n" * s["newline"])
    elif kind == "SendResult": put_json({"jsonrpc": "2.0", "id": ID, "result": s["result"]})
    elif kind == "Say": os.write(2, s["line"].encode() + b"\n")
    elif kind == "CloseStdout": os.close(1)
    elif kind == "IgnoreTerm": signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif kind == "AwaitEnd":
        while sys.stdin.buffer.readline(): pass
    elif kind == "Hang":
        while True: time.sleep(3600)
    elif kind == "Exit": os._exit(s["status"])
"""


def command(steps: Sequence[Step]) -> list[str]:
    """Return the argv of a peer that runs `steps` and then exits with status 0."""
    script = json.dumps([(type(step).__name__, asdict(step)) for step in steps])
    return [sys.executable, "-I", "-S", "-c", _PLAYER, script]


_RELAY = r"""
import os, socket, sys, threading
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def outward():
    while data := os.read(0, 1 << 20): link.sendall(data)
    link.shutdown(socket.SHUT_WR)
threading.Thread(target=outward, daemon=True).start()
while data := link.recv(1 << 20):
    while data: data = data[os.write(1, data):]
"""


def relay_command(port: int) -> list[str]:
    """Return the argv of a peer that copies its stdin to a local TCP port, and the replies to stdout.

    It makes a server object of the test's own process reachable over real pipes.
    """
    return [sys.executable, "-I", "-S", "-c", _RELAY, str(port)]
