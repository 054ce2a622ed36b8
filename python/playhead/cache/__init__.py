"""The page cache: listeners of the same resource share what one of them has read.

This file has the protocol of a cache, and the cache in memory.

    async with connect(server, cache=DirectoryCache(Path("~/.cache/playhead").expanduser())) as session: ...

A cache stores a resource as blocks of 64 KiB under one key (`resource_key`), a hash of the server, the
resource, its version and the users who may read it. A new version has a new key, so the bytes of a block
never change.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

from playhead.limits import KIB, MIB

__all__ = ["BLOCK_BYTES", "ClaimingCache", "MemoryCache", "PageCache", "open_cache", "resource_key"]

BLOCK_BYTES: Final = 64 * KIB
"""The size of a block. Two players rarely read the same pages, because pages grow; fixed blocks they
share."""
ETAG_META: Final = "playhead/etag"
"""The key in the `_meta` of links and pages for the version of a resource, which changes with any byte."""
OFFSET_META: Final = "playhead/offset"
SIZE_META: Final = "playhead/size"
"""The keys in the `_meta` of a page for the offset of its first byte and the current size of the resource."""
LIVE_META: Final = "playhead/live"
"""The key in the `_meta` of links and pages whose value is true while the resource still grows. In the `data`
of an error, false means that the resource will never have the requested bytes."""
LINK_META: Final = "playhead/link"
"""The key in the `_meta` of a progress report for a link that the call's result will contain, too."""
EARLIEST_META: Final = "playhead/earliest"
"""The key in the `data` of an error for the first offset that the server still has."""
MEMORY_BYTES: Final = 32 * MIB
CLAIM_SECONDS: Final = 8.0
"""The lifetime of a claim. Listeners wait this long for a process that has died. If a read takes longer,
another process reads the block too; with 64 players that started at once on two cores, reads took up to 5
s."""


@runtime_checkable
class PageCache(Protocol):
    """Blocks of resources, by key and number. `playhead.testing.caches` tests that a cache behaves like this.

    No method raises. A cache that fails returns None, and the stream reads from the server. Any number of
    tasks may call the methods at once. A cancelled `put` stores its block whole or not at all.
    """

    async def get(self, key: str, block: int) -> bytes | None:
        """Return the bytes from `block * BLOCK_BYTES` on, exactly as they were put; None if they are
        missing."""

    async def put(self, key: str, block: int, data: bytes, *, ttl_seconds: float | None = None) -> None:
        """Store a block, for at most `ttl_seconds` if given.

        A block shorter than `BLOCK_BYTES` (even an empty one) is the last: the resource ends with it.
        """

    async def size(self, key: str) -> int | None:
        """Return the size of the resource in bytes; None while its last block is not known."""


@runtime_checkable
class ClaimingCache(PageCache, Protocol):
    """A cache that several processes share. By claims, they agree on who reads a block from the server."""

    claim_seconds: float
    """The lifetime of a claim."""

    async def get_run(self, key: str, first: int, count: int) -> list[bytes | None]:
        """Return `count` neighbouring blocks, in one round trip."""

    async def claim(self, key: str, first: int, count: int, owner: str) -> int:
        """Claim blocks from `first` on for `owner`. Return the number that it may read, at most `count`.

        0 means that another owner reads the first block: call `wait`, then `get_run` again. A claim expires
        after `claim_seconds`, so that a process that died delays the others no longer than that.
        """

    async def wait(self, key: str, block: int, *, seconds: float) -> None:
        """Wait until a block that another owner has claimed is stored or released, for at most `seconds`.

        It may return earlier, so call `get_run` again. The expiry of a claim does not end the wait.
        """

    async def release(self, key: str, blocks: list[int], owner: str) -> None:
        """Release claims of `owner`. A block that was stored needs no release."""


class MemoryCache:
    """A page cache of at most `max_bytes` in this process. It drops the least recently used block first."""

    def __init__(self, *, max_bytes: int = MEMORY_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds; it measures `ttl_seconds`."""
        self._max_bytes = max_bytes
        self._clock = clock
        self._blocks: OrderedDict[tuple[str, int], tuple[bytes, float | None]] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._held_bytes = 0

    async def get(self, key: str, block: int) -> bytes | None:
        entry = self._blocks.get((key, block))
        if entry is None:
            return None
        data, expires_at = entry
        if expires_at is not None and expires_at <= self._clock():
            self._drop((key, block))
            return None
        self._blocks.move_to_end((key, block))
        return data

    async def put(self, key: str, block: int, data: bytes, *, ttl_seconds: float | None = None) -> None:
        if (key, block) in self._blocks:
            self._drop((key, block))
        expires_at = None if ttl_seconds is None else self._clock() + ttl_seconds
        self._blocks[key, block] = data, expires_at
        self._held_bytes += len(data)
        if len(data) < BLOCK_BYTES:
            self._sizes[key] = block * BLOCK_BYTES + len(data)
        while self._held_bytes > self._max_bytes:
            self._drop(next(iter(self._blocks)))

    async def size(self, key: str) -> int | None:
        size = self._sizes.get(key)
        if size is not None and await self.get(key, size // BLOCK_BYTES) is None:
            return None
        return size

    def _drop(self, key_and_block: tuple[str, int]) -> None:
        data, _ = self._blocks.pop(key_and_block)
        self._held_bytes -= len(data)
        if len(data) < BLOCK_BYTES:
            self._sizes.pop(key_and_block[0], None)


def resource_key(resource: object, *, validator: str, access: str) -> str:
    """Return the key of one version of a resource: a hash of 64 hexadecimal digits.

    `resource` identifies the server and the resource, in JSON's types; `access` identifies the users who may
    read it.
    """
    # The 2 is the version of this list: a change of its parts must change all keys.
    parts = json.dumps([2, resource, validator, access], sort_keys=True, default=str)
    return hashlib.sha256(parts.encode()).hexdigest()


_DATED: Final = "modified "
"""The beginning of a validator that is made of a date and a size only."""


def dated_validator(modified: str, size_bytes: int) -> str:
    """Return the validator of a resource that has neither an entity tag nor a digest."""
    return f"{_DATED}{modified} size {size_bytes}"


def is_dated(validator: str) -> bool:
    """Return True for a validator that different files of two machines may share by chance."""
    return validator.startswith(_DATED)


def strong_etag(value: object) -> str | None:
    """Return `value` if it is a strong entity tag, which changes with any byte (RFC 9110, 8.8.1); else
    None."""
    return value if isinstance(value, str) and value and not value.startswith("W/") else None


def open_cache(where: str, *, on_trouble: Callable[[str], None] | None = None) -> PageCache:
    """Return the cache at `where`: a `valkey://`, `valkeys://` or `unix://` URL, or a directory.

    The cache calls `on_trouble` with one message when its Valkey becomes unusable, or its directory can only
    be read. Raises `UsageError` if the directory is not private to this user, or if the extra `valkey` is
    missing.
    """
    if "://" in where:
        from playhead.cache.valkey import ValkeyCache

        return ValkeyCache(where, on_trouble=on_trouble)
    from pathlib import Path

    from playhead.cache.directory import DirectoryCache

    return DirectoryCache(Path(where).expanduser(), on_trouble=on_trouble)
