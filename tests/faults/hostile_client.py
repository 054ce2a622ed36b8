"""One client against one hostile server: `python -m tests.faults.hostile_client NAME`.

Reads `hostile://it` and, beside and after it, an honest resource. Prints one line for each, escaped, then
its own peak memory. Exit codes as the CLI's: 0 done, 1 failed, 3 could not connect.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import trio
from mcp import ClientSession
from mcp.shared.exceptions import MCPError

from playhead.cli.terminal import escape_line
from playhead.client.transports.messages import own_error
from playhead.client.transports.stdio import StdioTransport, stdio_transport
from playhead.errors import ConnectError, DeadlineError, PlayheadError
from playhead.limits import Limits

SERVERS = Path(__file__).with_name("hostile_servers.py")
LIMITS = Limits(handshake_seconds=3.0)
SHORT_SECONDS = 2.0
ENDED_BY_DEADLINE = frozenset({"endless_log_lines", "never_answers", "slow_drip", "ignores_sigterm"})
"""Rows that nothing but a deadline can end: they get `SHORT_SECONDS`, the others the default."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves(part)
    else:
        yield error


def said(error: BaseException) -> str:
    if isinstance(error, MCPError):
        own = own_error(error)
        if own is not None:
            return said(own)
    return f"{type(error).__name__}: {error}"


async def read(session: ClientSession, uri: str, seconds: float) -> str:
    try:
        with trio.fail_after(seconds):
            result = await session.read_resource(uri)
    except trio.TooSlowError:
        return said(DeadlineError(f"no answer within {seconds} s (limit page_seconds)"))
    except (MCPError, PlayheadError) as error:
        return said(error)
    return f"ok, {len(result.contents)} contents"


async def converse(session: ClientSession, name: str) -> bool:
    outcome: dict[str, str] = {}
    seconds = SHORT_SECONDS if name in ENDED_BY_DEADLINE else LIMITS.page_seconds

    async def run(label: str, uri: str, seconds: float) -> None:
        outcome[label] = await read(session, uri, seconds)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            run, "it", "hostile://it", 0.5 if name == "answers_after_cancellation" else seconds
        )
        nursery.start_soon(run, "beside", "hostile://beside", seconds)
    await run("after", "hostile://after", seconds)
    for label, text in outcome.items():
        print(f"{label}: {escape_line(text)}", flush=True)
    return outcome["it"].startswith("ok")


async def connect_and_converse(transport: StdioTransport, name: str) -> bool:
    async with transport as (read_stream, write_stream), ClientSession(read_stream, write_stream) as session:
        with trio.move_on_after(LIMITS.handshake_seconds) as handshake:
            try:
                await session.initialize()
            except (MCPError, ValueError) as error:
                raise ConnectError(f"the handshake failed: {transport.failure or said(error)}") from error
        if handshake.cancelled_caught:
            seconds = LIMITS.handshake_seconds
            raise ConnectError(
                f"no handshake in {seconds} s (limit handshake_seconds); {transport.diagnosis()}"
            )
        return await converse(session, name)


async def main(name: str, pids: Path) -> int:
    transport = stdio_transport(
        [sys.executable, "-I", str(SERVERS), name], env={"HOSTILE_PIDS": str(pids)}, limits=LIMITS
    )
    code = 3
    try:
        code = 0 if await connect_and_converse(transport, name) else 1
    except* PlayheadError as group:
        for error in leaves(group):
            print(f"connect: {escape_line(said(error))}", flush=True)
    except* KeyboardInterrupt:
        code = 130
    return code


def peak_bytes() -> int:
    """The most memory this process has had (VmHWM: unlike ru_maxrss it does not begin with its parent's)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


if __name__ == "__main__":
    exit_code = trio.run(main, sys.argv[1], Path(sys.argv[2]))
    if exit_code != 130:
        print(f"peak: {peak_bytes()}", flush=True)
    sys.exit(exit_code)
