"""One client against one hostile server: `python -m tests.faults.hostile_client NAME PIDS_FILE`.

Connects as any program does, reads `hostile://it` and, beside and after it, an honest resource. Prints one
line for each, escaped as the command line does, then its own peak memory. Exit codes as the CLI's: 0 done,
1 failed, 3 could not connect, 130 interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

import playhead
from playhead.cli.terminal import escape_line
from playhead.errors import ConnectError, DeadlineError, PlayheadError

SERVERS = Path(__file__).with_name("hostile_servers.py")
LIMITS = playhead.Limits(handshake_seconds=3.0)
SHORT_SECONDS = 2.0
ENDED_BY_DEADLINE = frozenset({"endless_log_lines", "never_answers", "slow_drip", "ignores_sigterm"})
"""Rows that nothing but a deadline can end: they get `SHORT_SECONDS`, the others the default."""


async def read(session: playhead.Session, uri: str, seconds: float) -> str:
    # `Session` counts from the last byte, as it should; a row must end whatever drips, hence the total.
    try:
        with trio.fail_after(2 * seconds):
            page = await session.read_resource(uri, timeout=seconds)
    except trio.TooSlowError:
        return said(DeadlineError(f"still dripping after {2 * seconds} s"))
    except PlayheadError as error:
        return said(error)
    return f"ok, {sum(map(len, page.blobs))} characters"


async def cancelled_read(session: playhead.Session) -> str:
    with trio.move_on_after(0.5):
        return await read(session, "hostile://it", LIMITS.page_seconds)
    return "ok, cancelled"


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


async def converse(session: playhead.Session, name: str) -> bool:
    outcome: dict[str, str] = {}
    seconds = SHORT_SECONDS if name in ENDED_BY_DEADLINE else LIMITS.page_seconds

    async def run(label: str, uri: str) -> None:
        if label == "it" and name == "answers_after_cancellation":
            outcome[label] = await cancelled_read(session)
        else:
            outcome[label] = await read(session, uri, seconds)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, "it", "hostile://it")
        nursery.start_soon(run, "beside", "hostile://beside")
    await run("after", "hostile://after")
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
        async with playhead.connect(server, limits=LIMITS) as session:
            return 0 if await converse(session, name) else 1
    except ConnectError as error:
        print(f"connect: {escape_line(said(error))}", flush=True)
        return 3


def peak_bytes() -> int:
    """The most memory this process has had (VmHWM: unlike ru_maxrss it does not begin with its parent's)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


if __name__ == "__main__":
    try:
        exit_code = trio.run(main, sys.argv[1], Path(sys.argv[2]))
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"peak: {peak_bytes()}", flush=True)
    sys.exit(exit_code)
