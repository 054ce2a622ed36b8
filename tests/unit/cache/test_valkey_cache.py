"""The cache in a real Valkey: claims, damage, and a server that is slow, stopped, gone, or empty again."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from playhead.cache import CLAIM_SECONDS
from playhead.cache import valkey as module
from playhead.cache.valkey import ValkeyCache
from playhead.errors import UsageError
from playhead.testing.caches import block_of, new_key
from tests.servers.valkey_server import ValkeyServer, valkey_server


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with tempfile.TemporaryDirectory() as directory, valkey_server(Path(directory)) as running:
        yield running


async def test_neighbouring_blocks_are_read_in_one_round_trip(server: ValkeyServer) -> None:
    cache, key = server.cache(), new_key()
    for block in (3, 4, 6):
        await cache.put(key, block, block_of(key, block))
    client = server.client()
    client.ping()  # its first request announces the client
    before = client.info("stats")["total_reads_processed"]
    found = await cache.get_run(key, 3, 4)
    assert found == [block_of(key, 3), block_of(key, 4), None, block_of(key, 6)]
    assert client.info("stats")["total_reads_processed"] == before + 2, "one of them asks for this figure"


async def test_a_claim_runs_out(server: ValkeyServer) -> None:
    cache, key = server.cache(), new_key()
    await cache.claim(key, 0, 1, "a")
    client = server.client()
    (name,) = client.scan_iter("playhead:1:*:claim")
    assert 0 < client.pttl(name) <= 1000 * CLAIM_SECONDS


async def listeners(client: Any) -> int:
    with trio.fail_after(10):
        while not (count := client.pubsub_numsub("playhead:1:news")[0][1]):
            await trio.lowlevel.checkpoint()
    return int(count)


async def test_a_process_listens_once_and_only_while_somebody_waits(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINGER_SECONDS", 0.02)
    cache, key = server.cache(), new_key()
    client = server.client()
    await cache.claim(key, 0, 1, "a")
    for _ in range(2):  # the second time after the first connection was closed
        assert client.pubsub_numsub("playhead:1:news")[0][1] == 0
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(partial(cache.wait, key, 0, seconds=60.0))
            assert await listeners(client) == 1
            nursery.cancel_scope.cancel()
        with trio.fail_after(10):
            while client.pubsub_numsub("playhead:1:news")[0][1]:
                await trio.lowlevel.checkpoint()


async def test_waiters_listen_again_after_their_connection_was_closed(server: ValkeyServer) -> None:
    cache, key = server.cache(), new_key()
    client = server.client()
    await cache.claim(key, 0, 1, "a")
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                while await cache.get(key, 0) is None:
                    await cache.wait(key, 0, seconds=0.1)

            nursery.start_soon(wait)
            assert await listeners(client) == 1
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            assert await listeners(client) == 1
            await cache.put(key, 0, block_of(key, 0))


async def test_a_user_without_the_channel_stores_and_waits_all_the_same(server: ValkeyServer) -> None:
    client = server.client()
    client.execute_command(
        "ACL", "SETUSER", "limited", "on", ">secret", "~playhead:*", "+@all", "resetchannels"
    )
    cache, key = server.cache(url=server.url.replace("unix://", "unix://limited:secret@")), new_key()
    await cache.claim(key, 0, 2, "a")
    await cache.wait(key, 0, seconds=0.01)
    await cache.put(key, 0, block_of(key, 0))
    assert await cache.get(key, 0) == block_of(key, 0)
    await cache.release(key, [1], "a")
    assert await cache.claim(key, 1, 1, "b") == 1
    assert cache.trouble is None


async def test_a_stopped_server_holds_up_no_waiter(server: ValkeyServer) -> None:
    cache, key = server.cache(), new_key()
    client = server.client()
    await cache.claim(key, 0, 1, "a")
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(cache.wait, key, 0, seconds=0.5))
            await listeners(client)
            server.stop()
        await cache.wait(key, 0, seconds=60.0)
        assert await cache.claim(key, 0, 1, "b") == 1, "everyone reads for themselves"


async def test_blocks_have_a_time_to_live(server: ValkeyServer) -> None:
    cache, key = server.cache(ttl_seconds=100.0), new_key()
    await cache.put(key, 0, b"x")
    await cache.put(key, 1, b"x", ttl_seconds=50.0)
    await cache.put(key, 2, b"x", ttl_seconds=500.0)
    client = server.client()
    lives = sorted(client.pttl(name) for name in client.scan_iter("playhead:1:*:[0-9]"))
    assert [round(ms / 1000) for ms in lives] == [50, 100, 100]


@pytest.mark.parametrize("damage", ["cut", "flipped", "another block", "text", "a list"])
async def test_what_was_not_put_is_no_block(server: ValkeyServer, damage: str) -> None:
    cache, key = server.cache(), new_key()
    await cache.put(key, 0, block_of(key, 0))
    client = server.client()
    (name,) = client.scan_iter("playhead:1:*:0")
    value = client.get(name)
    assert isinstance(value, bytes)
    match damage:
        case "cut":
            client.set(name, value[:-1])
        case "flipped":
            client.set(name, value[:500] + bytes([value[500] ^ 1]) + value[501:])
        case "another block":
            await cache.put(key, 1, block_of(key, 1))
            (other,) = client.scan_iter("playhead:1:*:1")
            client.set(name, client.get(other))
        case "text":
            client.set(name, "hello")
        case _:
            client.delete(name)
            client.rpush(name, "a", "b")
    assert await cache.get(key, 0) is None
    assert cache.trouble is None


async def test_a_stopped_server_costs_one_wait_and_one_message(server: ValkeyServer) -> None:
    said: list[str] = []
    cache, key = server.cache(on_trouble=said.append), new_key()
    await cache.put(key, 0, block_of(key, 0))
    server.stop()
    began = time.monotonic()
    assert await cache.get(key, 0) is None
    waited = time.monotonic() - began
    assert waited >= module.TIMEOUT_SECONDS * 0.9, "it was not the stopped server that answered"
    for _ in range(50):
        assert await cache.get(key, 0) is None
        await cache.put(key, 1, block_of(key, 1))
        assert await cache.claim(key, 0, 3, "a") == 3, "everyone reads for themselves"
        assert await cache.size(key) is None
    assert len(said) == 1
    assert "reading from the server" in said[0]
    assert cache.trouble is not None


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_server_that_answers_again_is_used_again_with_what_it_has(
    restarts: bool, server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.05)
    cache, key = server.cache(), new_key()
    await cache.put(key, 0, block_of(key, 0))
    (server.kill if restarts else server.stop)()
    assert await cache.get(key, 0) is None
    (server.start if restarts else server.resume)()
    with trio.fail_after(10):
        while await cache.get(key, 1) is None:
            await cache.put(key, 1, block_of(key, 1))
    assert await cache.get(key, 0) == (None if restarts else block_of(key, 0))


async def test_many_requests_at_a_stopped_server_all_return(server: ValkeyServer) -> None:
    said: list[str] = []
    cache, key = server.cache(on_trouble=said.append), new_key()
    await cache.get(key, 0)
    server.stop()
    found: list[bytes | None] = []

    async def get(block: int) -> None:
        found.append(await cache.get(key, block))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for block in range(200):
                nursery.start_soon(get, block)
    assert found == [None] * 200
    assert len(said) == 1


async def test_nothing_at_the_address_is_trouble_and_no_error() -> None:
    said: list[str] = []
    cache = ValkeyCache("valkey://:a-secret@127.0.0.1:1/0", on_trouble=said.append)
    assert await cache.get("k", 0) is None
    assert len(said) == 1
    assert "a-secret" not in said[0]


@pytest.mark.parametrize(
    "url", ["valkey://", "http://127.0.0.1", "valkey://127.0.0.1:x", "valkey://127.0.0.1:1,127.0.0.1:x"]
)
def test_a_url_of_something_else_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="cache: "):
        ValkeyCache(url)
