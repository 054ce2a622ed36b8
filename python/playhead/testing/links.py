"""Slow links: a rate and a latency between a client and a real server, for TCP and for stdio pipes.

The connections of a `Link` share one `TokenBucket`, which lets bytes leave at `rate`, and a fixed latency in
each direction. They take turns of a quantum each, so they get fair shares, as flows do behind one bottleneck.
The rate limits the direction from server to client, in which pages travel; requests only have the latency.

    python -m playhead.testing.links --rate 1250000 --latency 0.02 -- python server.py
    python -m playhead.testing.links --rate 1250000 --latency 0.02 --tcp 127.0.0.1:3001

The second command prints the address of its proxy on stdout, and serves while its stdin is open.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf

import trio

QUANTUM_SECONDS = 0.002
"""The duration of a slice at the bottleneck. It is short compared with any latency worth measuring, and long
compared with a wake-up."""

QUANTUM_MIN_BYTES = 1024
QUANTUM_MAX_BYTES = 64 * 1024
CREDIT_SECONDS = 0.005
"""Limits the lateness that a sender may make up for. Without it, each late wake-up would lose rate; with much
more, a burst at the start would be free."""

QUEUED_QUANTA = 512
"""Limits the slices in transit in one direction of a connection: enough for 1 s of latency at 2 ms each."""


@dataclass(slots=True, kw_only=True)
class TokenBucket:
    """Computes when bytes leave a sender of `rate_bytes_per_second`. Pure: time is an argument."""

    rate_bytes_per_second: float = inf
    credit_seconds: float = CREDIT_SECONDS
    _free_at: float = -inf

    def __post_init__(self) -> None:
        if not self.rate_bytes_per_second > 0:
            raise ValueError(f"rate: expected more than 0 bytes/s, got {self.rate_bytes_per_second}")

    def reserve(self, n_bytes: int, now: float) -> float:
        """Queue `n_bytes` after all earlier ones; returns the time when the last of them leaves.

        A sender that was idle for longer than `credit_seconds` is treated as idle for that long.
        """
        self._free_at = max(self._free_at, now - self.credit_seconds) + n_bytes / self.rate_bytes_per_second
        return max(self._free_at, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A bottleneck and its delay; share one object between the connections that share the bottleneck.

    `rate_bytes_per_second`: downwards, default unlimited. `latency_seconds`: in each direction, so that a
    round trip costs twice as much.
    """

    rate_bytes_per_second: float = inf
    latency_seconds: float = 0.0
    down: TokenBucket = field(init=False)
    up: TokenBucket = field(init=False)

    def __post_init__(self) -> None:
        if self.latency_seconds < 0:
            raise ValueError(f"latency: expected 0 s or more, got {self.latency_seconds}")
        object.__setattr__(self, "down", TokenBucket(rate_bytes_per_second=self.rate_bytes_per_second))
        object.__setattr__(self, "up", TokenBucket())

    @property
    def quantum_bytes(self) -> int:
        turn = self.rate_bytes_per_second * QUANTUM_SECONDS
        return int(min(max(turn, QUANTUM_MIN_BYTES), QUANTUM_MAX_BYTES))


async def carry(
    link: Link,
    bucket: TokenBucket,
    source: trio.abc.ReceiveStream,
    sink: trio.abc.SendStream,
) -> bool:
    """Carry bytes from `source` to `sink` until `source` ends. The end is passed on after the last byte.

    Returns False if a peer broke one end. That stops the transfer, as an outage of the link would.
    """
    send, receive = trio.open_memory_channel[tuple[float, bytes | bytearray]](QUEUED_QUANTA)

    async def deliver() -> None:
        async with receive:
            async for due, chunk in receive:
                await trio.sleep_until(due)
                await sink.send_all(chunk)
        if isinstance(sink, trio.SocketStream):
            await sink.send_eof()
        else:
            await sink.aclose()

    async def depart() -> None:
        async with send:
            while chunk := await source.receive_some(link.quantum_bytes):
                departure = bucket.reserve(len(chunk), trio.current_time())
                await trio.sleep_until(departure)
                await send.send((departure + link.latency_seconds, chunk))

    whole = False
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deliver)
            await depart()
        whole = True
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # one end is gone, and bytes in transit are lost
    return whole


@asynccontextmanager
async def slow_tcp(link: Link, *, host: str, port: int) -> AsyncIterator[int]:
    """Run a proxy on 127.0.0.1 in front of `host:port`; yields its port. Leaving closes every connection."""

    async def serve(client: trio.SocketStream) -> None:
        try:
            server = await trio.open_tcp_stream(host, port)
        except OSError:
            return  # the client sees its connection close, as with a dead server

        async def carry_up() -> None:
            if not await carry(link, link.up, client, server):
                pumps.cancel_scope.cancel()  # a reset connection ends both ways, or the server would wait

        async with server, trio.open_nursery() as pumps:
            pumps.start_soon(carry_up)
            await carry(link, link.down, server, client)
            pumps.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        bound: int = listeners[0].socket.getsockname()[1]
        try:
            yield bound
        finally:
            nursery.cancel_scope.cancel()


def slow_command(link: Link, command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` behind the link: its stdout is throttled as one FIFO."""
    rate, latency = str(link.rate_bytes_per_second), str(link.latency_seconds)
    return [
        sys.executable,
        "-m",
        "playhead.testing.links",
        "--rate",
        rate,
        "--latency",
        latency,
        "--",
        *command,
    ]


async def run_command(link: Link, command: Sequence[str]) -> int:
    """Run `command` between this process's stdin and stdout; returns its exit status.

    The child's stdin closes when ours does, and the child is killed if this task is cancelled.
    """
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(carry, link, link.up, trio.lowlevel.FdStream(0), process.stdin)
            await carry(link, link.down, process.stdout, trio.lowlevel.FdStream(1))
            nursery.cancel_scope.cancel()
        return await process.wait()
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()


async def run_proxy(link: Link, *, host: str, port: int) -> int:
    """Serve `slow_tcp`, print `127.0.0.1:PORT`, and end when stdin does, as it does with the parent."""
    async with slow_tcp(link, host=host, port=port) as bound:
        sys.stdout.write(f"127.0.0.1:{bound}\n")
        sys.stdout.flush()
        async for _ in trio.lowlevel.FdStream(0):
            pass
    return 0


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m playhead.testing.links", description=__doc__)
    arguments.add_argument("--rate", type=float, default=inf, help="bytes per second, from server to client")
    arguments.add_argument("--latency", type=float, default=0.0, help="seconds, in each direction")
    arguments.add_argument(
        "--tcp", metavar="HOST:PORT", help="proxy this address instead of running a command"
    )
    arguments.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    options = arguments.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    link = Link(rate_bytes_per_second=options.rate, latency_seconds=options.latency)
    if options.tcp is not None:
        host, _, port = options.tcp.rpartition(":")
        raise SystemExit(trio.run(partial(run_proxy, link, host=host, port=int(port))))
    if not command:
        arguments.error("give the command to run after --, or an address with --tcp")
    raise SystemExit(trio.run(run_command, link, command))


if __name__ == "__main__":
    main()
