"""The laws of page caches: a suite for a cache of your own.

    @pytest.mark.parametrize("law", CACHE_LAWS, ids=law_name)
    async def test_my_cache(law):
        await law(MyCache)

A law takes a function that makes a cache, runs under trio, and raises `AssertionError`. The caches may share
their content, because every law uses keys of its own. `CLAIM_LAWS` are for a `ClaimingCache`; the caches that
one of them makes stand for those of several processes, and must share their content.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Awaitable, Callable

import trio

from playhead.cache import BLOCK_BYTES, ClaimingCache, PageCache

MakeCache = Callable[[], PageCache]
CacheLaw = Callable[[MakeCache], Awaitable[None]]
MakeClaimingCache = Callable[[], ClaimingCache]
ClaimLaw = Callable[[MakeClaimingCache], Awaitable[None]]


def block_of(key: str, block: int, n_bytes: int = BLOCK_BYTES) -> bytes:
    """Return the bytes of a block, which differ for each key and block."""
    return random.Random(f"{key}:{block}").randbytes(n_bytes)


def new_key() -> str:
    """Return a new key."""
    return secrets.token_hex(32)


async def gives_back_what_was_put(make_cache: MakeCache) -> None:
    cache, key = make_cache(), new_key()
    for block in (0, 1, 7):
        await cache.put(key, block, block_of(key, block))
    for block in (7, 0, 1):
        assert await cache.get(key, block) == block_of(key, block)


async def has_nothing_that_was_not_put(make_cache: MakeCache) -> None:
    cache, key = make_cache(), new_key()
    assert await cache.get(key, 0) is None
    await cache.put(key, 5, block_of(key, 5))
    assert [await cache.get(key, block) for block in (0, 4, 6)] == [None] * 3
    assert await cache.get(new_key(), 5) is None


async def keeps_keys_apart(make_cache: MakeCache) -> None:
    cache, keys = make_cache(), [new_key() for _ in range(20)]
    for key in keys:
        await cache.put(key, 3, block_of(key, 3))
    for key in keys:
        assert await cache.get(key, 3) == block_of(key, 3)


async def takes_any_string_as_a_key(make_cache: MakeCache) -> None:
    cache = make_cache()
    for key in ("../../" + new_key(), f"/{new_key()}", new_key() + "\0\n é", new_key() * 20):
        await cache.put(key, 0, block_of(key, 0))
        assert await cache.get(key, 0) == block_of(key, 0)


async def knows_the_size_once_it_has_the_last_block(make_cache: MakeCache) -> None:
    cache = make_cache()
    for n_bytes in (0, 1, BLOCK_BYTES - 1):
        key = new_key()
        await cache.put(key, 0, block_of(key, 0))
        assert await cache.size(key) is None, "a whole block says nothing of the end"
        await cache.put(key, 2, block_of(key, 2, n_bytes))
        assert await cache.size(key) == 2 * BLOCK_BYTES + n_bytes
        assert await cache.get(key, 2) == block_of(key, 2, n_bytes)
    assert await cache.size(new_key()) is None


async def forgets_a_block_after_its_time(make_cache: MakeCache) -> None:
    cache, key = make_cache(), new_key()
    await cache.put(key, 0, block_of(key, 0), ttl_seconds=0.0)
    await cache.put(key, 1, block_of(key, 1), ttl_seconds=3600.0)
    await cache.put(key, 2, b"", ttl_seconds=0.0)
    assert await cache.get(key, 0) is None
    assert await cache.get(key, 1) == block_of(key, 1)
    assert await cache.size(key) is None, "the size is known as long as the last block"


async def takes_a_block_twice(make_cache: MakeCache) -> None:
    cache, key = make_cache(), new_key()
    for _ in range(2):
        await cache.put(key, 0, block_of(key, 0))
        assert await cache.get(key, 0) == block_of(key, 0)


async def serves_many_tasks_at_once(make_cache: MakeCache) -> None:
    cache, keys = make_cache(), [new_key() for _ in range(4)]
    answers: list[bool] = []

    async def use(key: str, block: int) -> None:
        before = await cache.get(key, block)
        await cache.put(key, block, block_of(key, block))
        after = await cache.get(key, block)
        answers.append(before in (None, after) and after == block_of(key, block))

    async with trio.open_nursery() as nursery:
        for key in keys:
            for block in (0, 1, 2, 0, 1, 2):
                nursery.start_soon(use, key, block)
    assert answers == [True] * 24


async def stores_a_block_whole_or_not_at_all(make_cache: MakeCache) -> None:
    cache, key = make_cache(), new_key()
    for block in range(8):
        with trio.CancelScope() as scope:
            scope.cancel()
            await cache.put(key, block, block_of(key, block))
        with trio.CancelScope() as scope:
            scope.cancel()
            await cache.get(key, block)
    for block in range(8):
        assert await cache.get(key, block) in (None, block_of(key, block))


CACHE_LAWS: tuple[CacheLaw, ...] = (
    gives_back_what_was_put,
    has_nothing_that_was_not_put,
    keeps_keys_apart,
    takes_any_string_as_a_key,
    knows_the_size_once_it_has_the_last_block,
    forgets_a_block_after_its_time,
    takes_a_block_twice,
    serves_many_tasks_at_once,
    stores_a_block_whole_or_not_at_all,
)


# --- claims -------------------------------------------------------------------------------------------------

WAIT_SECONDS = 60.0
"""The time of a wait, longer than any law takes. A cache that never wakes a waiter fails, after
`MOST_SECONDS`."""
MOST_SECONDS = 10.0


async def a_block_is_claimed_by_one(make_cache: MakeClaimingCache) -> None:
    ours, theirs, key = make_cache(), make_cache(), new_key()
    assert await ours.claim(key, 0, 3, "a") == 3
    assert await theirs.claim(key, 2, 3, "b") == 0
    assert await theirs.claim(key, 3, 3, "b") == 3
    assert await ours.claim(key, 1, 1, "a") == 0, "a claim is not renewed"


async def a_claim_ends_before_the_block_of_another(make_cache: MakeClaimingCache) -> None:
    ours, theirs, key = make_cache(), make_cache(), new_key()
    assert await ours.claim(key, 2, 1, "a") == 1
    assert await theirs.claim(key, 0, 5, "b") == 2
    assert await ours.claim(key, 3, 2, "c") == 2, "blocks past it are left to others"


async def a_claim_is_released_by_its_owner_alone(make_cache: MakeClaimingCache) -> None:
    ours, theirs, key = make_cache(), make_cache(), new_key()
    await ours.claim(key, 0, 2, "a")
    await theirs.release(key, [0], "b")
    assert await theirs.claim(key, 0, 1, "b") == 0
    await ours.release(key, [0, 1], "a")
    assert await theirs.claim(key, 0, 2, "b") == 2


async def a_run_has_the_blocks_that_were_put(make_cache: MakeClaimingCache) -> None:
    ours, theirs, key = make_cache(), make_cache(), new_key()
    for block in (3, 4, 6):
        await ours.put(key, block, block_of(key, block))
    assert await theirs.get_run(key, 3, 4) == [block_of(key, 3), block_of(key, 4), None, block_of(key, 6)]


async def a_waiter_is_woken_when_the_block_is_stored(make_cache: MakeClaimingCache) -> None:
    ours, theirs, key = make_cache(), make_cache(), new_key()
    await ours.claim(key, 0, 4, "a")
    with trio.fail_after(MOST_SECONDS):
        async with trio.open_nursery() as nursery:

            async def wait(block: int) -> None:
                while await theirs.get(key, block) is None:
                    await theirs.wait(key, block, seconds=WAIT_SECONDS)

            for block in (0, 1, 0, 1):
                nursery.start_soon(wait, block)
            for block in (1, 0):
                await ours.put(key, block, block_of(key, block))
                await theirs.get(key, 9)
        # The cache listens by now, so no news is missed between `get` and `wait`.
        for block in (2, 3):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait, block)
                await ours.put(key, block, block_of(key, block))


async def a_waiter_is_woken_when_the_claim_is_released(make_cache: MakeClaimingCache) -> None:
    ours, theirs, key = make_cache(), make_cache(), new_key()
    await ours.claim(key, 0, 1, "a")
    with trio.fail_after(MOST_SECONDS):
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                while not await theirs.claim(key, 0, 1, "b"):
                    await theirs.wait(key, 0, seconds=WAIT_SECONDS)

            nursery.start_soon(wait)
            await theirs.get(key, 9)
            await ours.release(key, [0], "a")


async def a_wait_for_nobody_is_none(make_cache: MakeClaimingCache) -> None:
    cache, key = make_cache(), new_key()
    await cache.put(key, 0, block_of(key, 0))
    with trio.fail_after(MOST_SECONDS):
        await cache.wait(key, 0, seconds=WAIT_SECONDS)
        await cache.wait(key, 1, seconds=WAIT_SECONDS)


async def a_wait_ends_after_its_time(make_cache: MakeClaimingCache) -> None:
    cache, key = make_cache(), new_key()
    await cache.claim(key, 0, 1, "a")
    with trio.fail_after(MOST_SECONDS):
        await cache.wait(key, 0, seconds=0.01)
        with trio.CancelScope() as scope:
            scope.cancel()
            await cache.wait(key, 0, seconds=WAIT_SECONDS)


CLAIM_LAWS: tuple[ClaimLaw, ...] = (
    a_block_is_claimed_by_one,
    a_claim_ends_before_the_block_of_another,
    a_claim_is_released_by_its_owner_alone,
    a_run_has_the_blocks_that_were_put,
    a_waiter_is_woken_when_the_block_is_stored,
    a_waiter_is_woken_when_the_claim_is_released,
    a_wait_for_nobody_is_none,
    a_wait_ends_after_its_time,
)
