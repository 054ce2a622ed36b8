"""One client against one hostile server: `python -m tests.faults.hostile_client NAME PIDS_FILE`.

Connects as any program does, reads `hostile://it` and, beside and after it, an honest resource. Prints one
line for each, escaped as the command line does. Exit codes as the CLI's: 0 done, 1 failed, 3 could not
connect, 130 interrupted.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio

import playhead
from playhead.cli.terminal import escape_line
from playhead.content import UnknownBlock
from playhead.errors import ConnectError, PlayheadError
from playhead.stream.options import StreamOptions
from tests.faults.hostile_servers import CALLS, STREAMS, true_bytes

IT = "hostile://it"
SERVERS = Path(__file__).with_name("hostile_servers.py")
SHORT_SECONDS = 1.0
STREAM_BYTES = 4 << 20
ENDED_BY_DEADLINE = frozenset({"endless_log_lines", "never_answers", "slow_drip", "ignores_sigterm"})
"""Rows that nothing but a deadline can end: they get `SHORT_SECONDS`, the others the default."""
NEVER_CONNECTED = frozenset({"never_answers_initialize", "never_reads"})
"""Rows that end at the handshake's deadline."""


def limits_for(name: str) -> playhead.Limits:
    handshake_seconds = SHORT_SECONDS if name in NEVER_CONNECTED else 10.0
    if name in ENDED_BY_DEADLINE:
        return playhead.Limits(
            handshake_seconds=handshake_seconds,
            page_seconds=SHORT_SECONDS,
            page_total_seconds=2 * SHORT_SECONDS,  # a row must end, however long it drips
        )
    return playhead.Limits(handshake_seconds=handshake_seconds)


async def read(session: playhead.Session, uri: str) -> str:
    page = await session.read_resource(uri)
    return f"ok, {sum(map(len, page.blobs))} characters"


async def cancelled_read(session: playhead.Session) -> str:
    with trio.move_on_after(0.5):
        return await read(session, IT)
    return "ok, cancelled"


async def stream(session: playhead.Session) -> str:
    """Read a stream to its end, and hold what came against the truth."""
    came = bytearray()
    options = StreamOptions(strategy="arguments", max_bytes=STREAM_BYTES)
    try:
        async with session.open(IT, options=options) as opened:
            async for chunk in opened:
                came += chunk
    except PlayheadError as error:
        return f"{said(error)} ({truth_of(came)})"
    return f"ok, {truth_of(came)}"


def truth_of(came: bytes | bytearray) -> str:
    true = came == true_bytes(0, len(came))
    return f"{len(came)} bytes, {'all true' if true else 'not all true'}"


async def call(session: playhead.Session) -> str:
    result = await session.call_tool("it")
    unknown = sum(isinstance(block.content, UnknownBlock) for block in result.blocks)
    return f"ok, {' '.join(result.text.split())!r} and {unknown} unknown"


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


async def converse(session: playhead.Session, name: str) -> bool:
    outcome: dict[str, str] = {}

    async def run(label: str, what: Callable[[], Awaitable[str]]) -> None:
        try:
            outcome[label] = await what()
        except PlayheadError as error:
            outcome[label] = said(error)

    async def it() -> str:
        if name in STREAMS:
            return await stream(session)
        if name in CALLS:
            return await call(session)
        return await (cancelled_read(session) if name == "answers_after_cancellation" else read(session, IT))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, "it", it)
        nursery.start_soon(run, "beside", partial(read, session, "hostile://beside"))
    await run("after", partial(read, session, "hostile://after"))
    for label, text in outcome.items():
        print(f"{label}: {escape_line(text)}", flush=True)
    return outcome["it"].startswith("ok")


async def main(name: str, pids: Path) -> int:
    server = playhead.ServerConfig(
        name=name,
        command=(sys.executable, "-I", str(SERVERS), name),
        env={"HOSTILE_PIDS": str(pids)},
        restart="never",  # a second server would hide what became of the first
    )
    try:
        async with playhead.connect(server, limits=limits_for(name)) as session:
            return 0 if await converse(session, name) else 1
    except ConnectError as error:
        print(f"connect: {escape_line(said(error))}", flush=True)
        return 3


def peak_bytes() -> int:
    """The most memory this process has had (VmHWM: unlike ru_maxrss it does not begin with its parent's)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


async def until_interrupted(name: str, pids: Path) -> int:
    """`main`, cancelled by Ctrl-C as the command line is: a `KeyboardInterrupt` may strike anywhere, in a
    destructor too, where it is lost."""
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            exit_code = await main(name, pids)
            nursery.cancel_scope.cancel()
            return exit_code
    return 130


if __name__ == "__main__":
    sys.exit(trio.run(until_interrupted, sys.argv[1], Path(sys.argv[2])))
