"""Slow links: the arithmetic of the bucket, and real bytes through the proxy and the stdio wrapper."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from playhead.testing.links import Link, TokenBucket, carry, slow_command, slow_tcp
from tests.servers.loopback import tcp_server

RATE = 1_250_000.0
"""10 Mbit/s."""


def test_bytes_leave_at_the_rate_one_reservation_behind_the_other() -> None:
    bucket = TokenBucket(rate_bytes_per_second=1000.0, credit_seconds=0.0)
    assert bucket.reserve(500, 10.0) == pytest.approx(10.5)
    assert bucket.reserve(500, 10.0) == pytest.approx(11.0)
    assert bucket.reserve(1000, 10.9) == pytest.approx(12.0)


def test_a_sender_that_wakes_late_catches_up_and_one_that_was_idle_does_not() -> None:
    bucket = TokenBucket(rate_bytes_per_second=1000.0, credit_seconds=0.005)
    bucket.reserve(1000, 0.0)
    assert bucket.reserve(100, 0.999) == pytest.approx(1.095)
    assert bucket.reserve(100, 5.0) == pytest.approx(5.095)


def test_an_unlimited_link_never_waits() -> None:
    assert TokenBucket().reserve(1 << 30, 3.0) == 3.0


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_that_carries_nothing_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        TokenBucket(rate_bytes_per_second=rate)


def test_a_turn_is_two_milliseconds_of_the_rate() -> None:
    assert Link(rate_bytes_per_second=RATE).quantum_bytes == 2500
    assert Link().quantum_bytes == 64 * 1024


async def test_a_stream_takes_size_over_rate_plus_the_latency(autojump_clock: MockClock) -> None:
    link = Link(rate_bytes_per_second=RATE, latency_seconds=0.1)
    server, into_link = memory_stream_pair()
    out_of_link, client = memory_stream_pair()
    data = bytes(range(256)) * 1000
    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(carry, link, link.down, into_link, out_of_link.send_stream)
        await server.send_all(data)
        await server.send_eof()
        got = bytearray()
        while chunk := await client.receive_some():
            got += chunk
    assert got == data
    spent = trio.current_time() - started
    assert spent == pytest.approx(len(data) / RATE + 0.1, abs=0.006)


async def test_two_connections_share_the_rate_fairly(autojump_clock: MockClock) -> None:
    link = Link(rate_bytes_per_second=RATE)
    ends: list[float] = []

    async def download(n_bytes: int) -> None:
        server, into_link = memory_stream_pair()
        out_of_link, client = memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(carry, link, link.down, into_link, out_of_link.send_stream)
            await server.send_all(bytes(n_bytes))
            await server.send_eof()
            while await client.receive_some():
                pass
        ends.append(trio.current_time())

    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(download, 125_000)
        nursery.start_soon(download, 250_000)
    small, big = (end - started for end in ends)
    assert small == pytest.approx(0.2, abs=0.01)
    assert big == pytest.approx(0.3, abs=0.01)


async def test_a_tcp_proxy_carries_both_ways_and_passes_the_end_on() -> None:
    async def echo(stream: trio.SocketStream) -> None:
        async for chunk in stream:
            await stream.send_all(chunk)

    async with (
        tcp_server(echo) as port,
        slow_tcp(Link(), host="127.0.0.1", port=port) as proxy_port,
        await trio.open_tcp_stream("127.0.0.1", proxy_port) as stream,
    ):
        await stream.send_all(b"played back")
        await stream.send_eof()
        got = bytearray()
        with trio.fail_after(10):
            async for chunk in stream:
                got += chunk
    assert got == b"played back"


async def test_a_connection_that_its_client_resets_is_closed_on_the_servers_side_too() -> None:
    over = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        await stream.send_all(b"hello")
        with suppress(trio.BrokenResourceError):
            await stream.receive_some()
        over.set()

    async with (
        tcp_server(serve) as port,
        slow_tcp(Link(), host="127.0.0.1", port=port) as proxy_port,
    ):
        client = await trio.open_tcp_stream("127.0.0.1", proxy_port)
        assert await client.receive_some(1) == b"h"
        await client.aclose()  # with bytes unread, which the kernel makes a reset
        with trio.fail_after(5):
            await over.wait()


async def test_a_command_behind_a_link_reads_and_writes_as_before_and_gives_its_status() -> None:
    program = "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.exit(5)"
    command = slow_command(Link(latency_seconds=0.001), [sys.executable, "-c", program])
    with trio.fail_after(20):
        done = await trio.run_process(command, stdin=b"hello", capture_stdout=True, check=False)
    assert done.stdout == b"HELLO"
    assert done.returncode == 5


def test_a_proxy_of_its_own_says_where_it_is_and_ends_with_whoever_started_it() -> None:
    command = [sys.executable, "-m", "playhead.testing.links", "--tcp", "127.0.0.1:9"]
    done = subprocess.run(command, input=b"", capture_output=True, check=True, timeout=20)
    assert done.stdout.startswith(b"127.0.0.1:")


def test_the_wrapper_says_what_it_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "playhead.testing.links"], capture_output=True, check=False, timeout=20
    )
    assert done.returncode == 2
    assert b"command" in done.stderr
