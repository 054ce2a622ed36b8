"""Hostile stdio servers: `python -I hostile_servers.py NAME`. Standard library only, one function a row.

Each shakes hands like an honest server of 2025-11-25, then misbehaves when `hostile://it` is read. Any other
resource is answered honestly. The process ids of the server and its children are appended to the file in
`HOSTILE_PIDS`.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

MIB = 1 << 20
OUT = sys.stdout.buffer
Behaviour = Callable[[int], None]
STREAMS: dict[str, Callable[[int, int, int], None]] = {}
"""Rows that are read as a stream: called with the id and the range of each read."""
CALLS: dict[str, Behaviour] = {}
"""Rows that are a tool."""
BEHAVIOURS: dict[str, Behaviour] = {}
AT_START: dict[str, Callable[[], None]] = {}
CONTROLS = "\x1b[31mred\x1b]0;title\x07 \x08\x08 \r over \x9b2J \u202eesrever\u2066"


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS[function.__name__] = function
    return function


def at_start(function: Callable[[], None]) -> Callable[[], None]:
    AT_START[function.__name__] = function
    return function


def stream(function: Callable[[int, int, int], None]) -> Callable[[int, int, int], None]:
    STREAMS[function.__name__] = function
    return function


def call(function: Behaviour) -> Behaviour:
    CALLS[function.__name__] = function
    return function


def write(data: bytes) -> None:
    OUT.write(data)
    OUT.flush()


def send(message: object) -> None:
    write(json.dumps(message).encode() + b"\n")


def honest(number: int, blob: str = "b2s=") -> None:
    send({"jsonrpc": "2.0", "id": number, "result": {"contents": [{"uri": "hostile://it", "blob": blob}]}})


def head(number: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"result":{"contents":[{"uri":"hostile://it","blob":"' % number


def hang() -> None:
    while True:
        time.sleep(3600)


def note_pid(pid: int) -> None:
    with open(os.environ["HOSTILE_PIDS"], "a", encoding="ascii") as file:  # noqa: PTH123 (a script for -I)
        file.write(f"{pid}\n")


# --- sizes -------------------------------------------------------------------------------------------


@behaviour
def endless_line_that_is_no_message(number: int) -> None:
    while True:
        write(b"x" * MIB)


@behaviour
def endless_answer(number: int) -> None:
    write(head(number))
    while True:
        write(b"A" * MIB)


@behaviour
def endless_log_lines(number: int) -> None:
    lines = b"INFO still working on it\n" * 40_000
    while True:
        write(lines)


@behaviour
def notifications_100_mb(number: int) -> None:
    data = {"level": "info", "data": "n" * 9_900}
    line = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": data}).encode() + b"\n"
    for _ in range(100 * MIB // len(line)):
        OUT.write(line)
    honest(number)


@behaviour
def foreign_notifications_100_mb_in_one_line(number: int) -> None:
    write(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"')
    for _ in range(100):
        write(b"n" * MIB)
    write(b'"}}\n')
    honest(number)


@behaviour
def answer_of_200_mb(number: int) -> None:
    write(head(number))
    for _ in range(200):
        write(b"A" * MIB)
    write(b'"}]}}\n')


@behaviour
def answer_of_200_mb_with_its_id_last(number: int) -> None:
    write(b'{"result":{"contents":[{"uri":"hostile://it","blob":"')
    for _ in range(200):
        write(b"A" * MIB)
    write(b'"}]},"jsonrpc":"2.0","id":%d}\n' % number)


@behaviour
def answer_at_the_limit(number: int) -> None:
    begin, end = head(number), b'"}]}}\n'
    write(begin)
    for _ in range(63):
        write(b"A" * MIB)
    write(end)


# --- structure ---------------------------------------------------------------------------------------


@behaviour
def nesting_of_100k(number: int) -> None:
    write(b'{"jsonrpc":"2.0","id":%d,"result":%s}\n' % (number, b"[" * 100_000 + b"]" * 100_000))


@behaviour
def nesting_of_60m_unclosed(number: int) -> None:
    write(b'{"jsonrpc":"2.0","id":%d,"result":' % number + b"[" * (60 * MIB) + b"\n")


@behaviour
def twenty_million_values(number: int) -> None:
    write(b'{"jsonrpc":"2.0","id":%d,"result":{"contents":[' % number)
    for _ in range(20):
        write(b"[]," * MIB)
    write(b"1]}}\n")


@behaviour
def sixty_mib_of_escapes(number: int) -> None:
    write(b'{"jsonrpc":"2.0","id":%d,"result":{"a":"' % number)
    for _ in range(30):
        write(rb"\"" * MIB)
    write(b'","b":[' + b"[" * 200 + b"]" * 200 + b"]}}\n")


@behaviour
def invalid_utf8_lines_before_the_answer(number: int) -> None:
    write(b"\xff\xfe\xfd\n" * 1000)
    honest(number)


@behaviour
def garbage_and_logs_before_the_answer(number: int) -> None:
    write(os.urandom(MIB).replace(b"\n", b"") + b"\n")
    write(b'DEBUG answering\n[]\n42\n{}\n{"level":"info","id":%d,"msg":"a log line"}\n\r\n\n' % number)
    honest(number)


@behaviour
def foreign_ids_100_mb(number: int) -> None:
    for foreign in range(10_000, 10_010):
        honest(foreign, "A" * (10 * MIB))
    honest(number)


@behaviour
def answers_after_cancellation(number: int) -> None:
    pass  # the cancellation, when it comes, is answered with 50 MB in the loop below


@behaviour
def requests_that_leave_no_room(number: int) -> None:
    for own in range(1_000_000):
        send({"jsonrpc": "2.0", "id": f"s{own}", "method": "ping"})


@behaviour
def contents_of_unknown_type(number: int) -> None:
    contents = [{"uri": "hostile://it", "blob": "b2s="}, {"uri": "hostile://it", "hologram": [1]}]
    send({"jsonrpc": "2.0", "id": number, "result": {"contents": contents}})


@call
def blocks_of_unknown_type(number: int) -> None:
    known = {"type": "text", "text": "known"}
    blocks = [known, {"type": "hologram"}, {"type": ["text"]}, 7, {"type": "audio", "data": None}, known]
    send({"jsonrpc": "2.0", "id": number, "result": {"content": blocks}})


# --- endless and lying streams -----------------------------------------------------------------------


def true_bytes(start: int, end: int) -> bytes:
    """The bytes that an honest server would give for a range: numbers, so that no two places look alike."""
    first = start // 8
    counted = b"".join(number.to_bytes(8, "big") for number in range(first, (end + 7) // 8))
    return counted[start - 8 * first : end - 8 * first]


def page(number: int, data: bytes) -> None:
    honest(number, base64.b64encode(data).decode())


@stream
def stream_that_never_ends(number: int, start: int, end: int) -> None:
    page(number, true_bytes(start, end))


@stream
def stream_of_the_same_page_for_ever(number: int, start: int, end: int) -> None:
    page(number, true_bytes(0, 102_400))


@stream
def stream_of_pages_longer_than_asked_for_ever(number: int, start: int, end: int) -> None:
    page(number, true_bytes(start, start + 2 * MIB))


@stream
def stream_of_noise_for_ever(number: int, start: int, end: int) -> None:
    page(number, os.urandom(102_400))


@stream
def stream_of_text(number: int, start: int, end: int) -> None:
    send({"jsonrpc": "2.0", "id": number, "result": {"contents": [{"uri": "hostile://it", "text": "la"}]}})


@stream
def stream_of_broken_base64(number: int, start: int, end: int) -> None:
    honest(number, "AAA*" * 1024)


# --- the process -------------------------------------------------------------------------------------


@behaviour
def partial_line_then_death(number: int) -> None:
    print("fatal: " + CONTROLS, file=sys.stderr, flush=True)
    write(head(number) + b"AAAA")
    os._exit(7)


@behaviour
def killed_by_a_signal(number: int) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@behaviour
def stdout_closed_but_alive(number: int) -> None:
    OUT.flush()
    os.close(1)
    hang()


@behaviour
def stderr_flood_of_200_mb(number: int) -> None:
    for _ in range(200):
        os.write(2, b"\x1b[2Jnoise\n" * (MIB // 10))
    honest(number)


@behaviour
def never_answers(number: int) -> None:
    hang()


@behaviour
def slow_drip(number: int) -> None:
    for byte in head(number):
        write(bytes([byte]))
        time.sleep(0.2)
    hang()


@behaviour
def ignores_sigterm(number: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    honest(number)
    hang()


@behaviour
def leaves_grandchildren(number: int) -> None:
    code = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); "
    child = subprocess.Popen([sys.executable, "-I", "-c", code + "time.sleep(3600)"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    note_pid(child.pid)
    honest(number)


@behaviour
def dies_and_a_grandchild_holds_its_pipes(number: int) -> None:
    child = subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(3600)"])
    note_pid(child.pid)
    os._exit(3)


@behaviour
def error_with_control_characters(number: int) -> None:
    send({"jsonrpc": "2.0", "id": number, "error": {"code": -32000, "message": CONTROLS}})


@at_start
def never_answers_initialize() -> None:
    hang()


@at_start
def rubbish_for_initialize() -> None:
    for line in sys.stdin.buffer:
        number = json.loads(line).get("id")
        send({"jsonrpc": "2.0", "id": number, "result": {"protocolVersion": CONTROLS, "capabilities": []}})


@at_start
def dies_at_start() -> None:
    print("cannot open the device " + CONTROLS, file=sys.stderr, flush=True)
    os._exit(4)


@at_start
def never_reads() -> None:
    hang()


# --- the honest part ---------------------------------------------------------------------------------


def initialize(number: int) -> None:
    result = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"resources": {}},
        "serverInfo": {"name": "hostile " + CONTROLS, "version": "1"},
    }
    send({"jsonrpc": "2.0", "id": number, "result": result})


def serve(name: str) -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if method == "initialize":
            initialize(number)
        elif method == "notifications/cancelled":
            if name == "answers_after_cancellation":
                honest(message["params"]["requestId"], "A" * (50 * MIB))
        elif method == "tools/call":
            CALLS[name](number)
        elif method == "resources/read":
            if message["params"]["uri"] == "hostile://it" and name in STREAMS:
                asked = message["params"]["arguments"]
                STREAMS[name](number, asked["start"], asked["end"])
            elif message["params"]["uri"] == "hostile://it":
                BEHAVIOURS[name](number)
            else:
                honest(number)
        elif number is not None and method is not None:
            send({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no such method"}})
    if name == "ignores_sigterm":
        hang()


def names() -> list[str]:
    """Every row."""
    return [*BEHAVIOURS, *STREAMS, *CALLS, *AT_START]


if __name__ == "__main__":
    note_pid(os.getpid())
    if sys.argv[1] in AT_START:
        AT_START[sys.argv[1]]()
    serve(sys.argv[1])
