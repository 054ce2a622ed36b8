"""The hit path of the page caches: a page of 100 KiB, from cached blocks to the stream.

`pytest -s benches/test_cache.py`. The bounds are 0.15 ms in a directory and 0.4 ms in a Valkey on loopback;
a smoke run shows them and does not hold them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from playhead.cache import BLOCK_BYTES, PageCache, open_cache
from playhead.client.session.cached_reads import CachedReads
from playhead.client.session.shared_reads import SessionReads
from playhead.stream.answer import Page
from playhead.stream.options import ReadCounts
from playhead.testing.caches import block_of
from tests.servers.valkey_server import valkey_server

PAGE_BYTES = 100 * 1024
BLOCKS = 160
LIMITS_MS = {"directory": 0.15, "valkey": 0.4}


@pytest.fixture
def places() -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(valkey_server(directory))
        (directory / "cache").mkdir(mode=0o700)
        yield {"directory": str(directory / "cache"), "valkey": server.url}


async def measure(cache: PageCache) -> float:
    """Return the milliseconds per page, the median of the pages of ten megabytes."""

    async def never(start: int, end: int) -> Page:
        raise AssertionError(f"[{start}, {end}) is not in the cache")

    session = SessionReads(cache=cache, server="x", credentials="")
    (place, *_) = session.places(server=None, resource="x", validator="v", scope=None)
    for block in range(BLOCKS):
        await cache.put(place.key, block, block_of("x", block))
    async with trio.open_nursery() as nursery:
        reads = CachedReads(
            never,
            session=session,
            server=None,
            resource="x",
            validator="v",
            size_bytes=BLOCKS * BLOCK_BYTES,
            mime_type=None,
            counts=ReadCounts(),
            start_soon=nursery.start_soon,
            server_name="x",
        )
        durations = []
        for number in range(BLOCKS * BLOCK_BYTES // PAGE_BYTES):
            began = time.perf_counter()
            await reads(number * PAGE_BYTES, (number + 1) * PAGE_BYTES)
            durations.append(time.perf_counter() - began)
    return 1000 * statistics.median(durations)


@pytest.mark.parametrize("name", LIMITS_MS)
def test_the_hit_path(name: str, places: dict[str, str], smoke: bool) -> None:
    milliseconds = min(trio.run(measure, open_cache(places[name])) for _ in range(5))
    print(f"{name}: {milliseconds:.3f} ms per page of 100 KiB (at most {LIMITS_MS[name]})")
    assert smoke or milliseconds <= LIMITS_MS[name]
