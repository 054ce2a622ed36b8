"""Every page cache keeps the laws of the public suite."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from playhead.cache import MemoryCache, PageCache
from playhead.cache.directory import DirectoryCache
from playhead.testing.caches import CACHE_LAWS, CLAIM_LAWS, CacheLaw, ClaimLaw, block_of
from playhead.testing.sinks import law_name
from tests.servers.valkey_server import ValkeyServer, valkey_server


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with tempfile.TemporaryDirectory() as directory, valkey_server(Path(directory)) as running:
        yield running


@pytest.mark.parametrize("law", CACHE_LAWS, ids=law_name)
async def test_memory(law: CacheLaw) -> None:
    await law(MemoryCache)


@pytest.mark.parametrize("law", CACHE_LAWS, ids=law_name)
async def test_a_directory(law: CacheLaw, tmp_path: Path) -> None:
    await law(lambda: DirectoryCache(str(tmp_path / "cache")))


@pytest.mark.parametrize("law", CACHE_LAWS, ids=law_name)
async def test_valkey(law: CacheLaw, server: ValkeyServer) -> None:
    await law(server.cache)


@pytest.mark.parametrize("law", CLAIM_LAWS, ids=law_name)
async def test_claims_in_valkey(law: ClaimLaw, server: ValkeyServer) -> None:
    await law(server.cache)


@pytest.mark.parametrize("law", CLAIM_LAWS, ids=law_name)
async def test_claims_in_a_directory(law: ClaimLaw, tmp_path: Path) -> None:
    await law(lambda: DirectoryCache(tmp_path / "cache"))


@pytest.mark.parametrize("law", CLAIM_LAWS, ids=law_name)
async def test_claims_of_tasks_of_one_process(law: ClaimLaw, server: ValkeyServer) -> None:
    cache = server.cache()
    await law(lambda: cache)


class Mixed(MemoryCache):
    """A cache that does not look at its keys."""

    async def get(self, key: str, block: int) -> bytes | None:
        return await super().get("", block)

    async def put(self, key: str, block: int, data: bytes, *, ttl_seconds: float | None = None) -> None:
        await super().put("", block, data, ttl_seconds=ttl_seconds)


class Late(MemoryCache):
    """A cache that forgets nothing."""

    async def put(self, key: str, block: int, data: bytes, *, ttl_seconds: float | None = None) -> None:
        await super().put(key, block, data)


class Torn(MemoryCache):
    """A cache that stores the first half of a block."""

    async def put(self, key: str, block: int, data: bytes, *, ttl_seconds: float | None = None) -> None:
        await super().put(key, block, data[:1000], ttl_seconds=ttl_seconds)


@pytest.mark.parametrize("defect", [Mixed, Late, Torn])
async def test_the_suite_finds(defect: type[PageCache]) -> None:
    broken = 0
    for law in CACHE_LAWS:
        try:
            await law(defect)
        except* AssertionError:
            broken += 1
    assert broken > 0


def test_the_blocks_of_the_suite_differ() -> None:
    assert len({block_of(key, block) for key in "abc" for block in range(3)}) == 9
