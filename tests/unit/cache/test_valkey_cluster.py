"""The cache in a real cluster: redirections while a slot moves, and nodes that are lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from valkey.crc import key_slot

from playhead.cache import valkey as module
from playhead.cache.valkey import ValkeyCache
from playhead.testing.caches import CACHE_LAWS, CLAIM_LAWS, block_of, new_key
from playhead.testing.sinks import law_name
from tests.servers.valkey_cluster import Cluster, Node, valkey_cluster

pytestmark = pytest.mark.xdist_group("valkey cluster")
PARTIAL = ("--cluster-require-full-coverage", "no")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with valkey_cluster() as running:
        yield running


@pytest.fixture(scope="module", params=CACHE_LAWS + CLAIM_LAWS, ids=law_name)
def law(request: pytest.FixtureRequest) -> Any:
    return request.param


async def test_a_cluster(law: Any, cluster: Cluster) -> None:
    await law(lambda: ValkeyCache(cluster.url))


def key_on(cluster: Cluster, node: Node) -> str:
    """Return a new key whose blocks are on `node`."""
    while cluster.master_of(key_slot(module._name(key := new_key(), 0).encode())) is not node:
        pass
    return key


async def test_all_of_a_resource_is_in_one_slot(cluster: Cluster) -> None:
    cache, key = ValkeyCache(cluster.url), new_key()
    for node in cluster.nodes:
        node.client.flushall()
    await cache.claim(key, 4, 2, "a")
    for block, n_bytes in ((0, 1000), (1, 1 << 16), (2, 5)):
        await cache.put(key, block, block_of(key, block, n_bytes))
    names = [name for node in cluster.nodes for name in node.client.scan_iter("*")]
    assert len(names) == 3 + 1 + 2
    assert len({key_slot(name) for name in names}) == 1


async def test_a_slot_that_moves_loses_no_block_and_is_no_trouble(cluster: Cluster) -> None:
    cache, key = ValkeyCache(cluster.url), new_key()
    for block in range(4):
        await cache.put(key, block, block_of(key, block))
    slot = int(key_slot(module._name(key, 0).encode()))
    source = cluster.master_of(slot)
    target = next(node for node in cluster.masters if node is not source)

    async def use(first: int) -> None:
        assert await cache.claim(key, first, 3, "a") == 3
        assert await ValkeyCache(cluster.url).claim(key, first, 1, "b") == 0
        await cache.put(key, first, block_of(key, first))
        await cache.release(key, [first + 1, first + 2], "a")
        stored = [0, 1, 2, 3, first]
        found = await cache.get_run(key, 0, first + 2)
        assert found == [block_of(key, n) if n in stored else None for n in range(first + 2)]
        await cache.wait(key, first, seconds=60.0)

    target.client.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source.id)
    source.client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", target.id)
    moved = source.client.execute_command("CLUSTER GETKEYSINSLOT", slot, 2)
    source.client.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *moved)
    await use(10)
    cluster.move(slot, target)
    stored = await cache.get_run(key, 0, 11)
    assert [number for number, block in enumerate(stored) if block is not None] == [0, 1, 2, 3, 10]
    assert await cache.claim(key, 20, 2, "a") == 2
    assert cache.trouble is None


async def test_the_next_server_of_the_url_is_asked_if_the_first_is_lost(cluster: Cluster) -> None:
    lines: list[str] = []
    cache, key = (
        ValkeyCache(cluster.url.replace("://", "://127.0.0.1:1,"), on_trouble=lines.append),
        new_key(),
    )
    await cache.put(key, 0, block_of(key, 0))
    assert await cache.get(key, 0) == block_of(key, 0)
    assert lines == []


@pytest.mark.parametrize("loss", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_a_lost_node_is_reported_once_and_the_others_are_used(loss: signal.Signals) -> None:
    lines: list[str] = []
    with valkey_cluster(options=PARTIAL) as cluster:
        cache = ValkeyCache(cluster.url, on_trouble=lines.append)
        keys = [key_on(cluster, node) for node in cluster.masters]
        for key in keys:
            await cache.put(key, 0, block_of(key, 0))
        cluster.masters[0].process.send_signal(loss)
        with trio.fail_after(10):
            for _ in range(20):
                assert await cache.get(keys[0], 0) is None
                assert await cache.claim(keys[0], 0, 3, "a") == 3, "everyone reads for themselves"
                await cache.wait(keys[0], 0, seconds=60.0)
        for key in keys[1:]:
            assert await cache.get(key, 0) == block_of(key, 0)
            assert await cache.claim(key, 1, 3, "a") == 3
            assert await cache.claim(key, 1, 3, "b") == 0
    (line,) = lines
    assert "reading from the server" in line


async def test_a_replica_takes_over_with_what_was_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.05)
    with valkey_cluster(replicas=True) as cluster:
        cache, key = ValkeyCache(cluster.url), key_on(cluster, cluster.masters[0])
        for block in range(3):
            await cache.put(key, block, block_of(key, block))
        assert cluster.masters[0].client.wait(1, 5000) == 1
        cluster.masters[0].kill()
        with trio.fail_after(60):
            while (found := await cache.get(key, 0)) is None:
                # Not a busy loop: the nodes need the processors for their election.
                await trio.to_thread.run_sync(time.sleep, module.RETRY_SECONDS)
        assert found == block_of(key, 0)
        await cache.put(key, 3, block_of(key, 3))
        assert await cache.get_run(key, 1, 3) == [block_of(key, number) for number in (1, 2, 3)]
