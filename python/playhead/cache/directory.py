"""A page cache in a directory, for all processes of one user.

Each resource has two files, named by a hash. `NAME.data` is sparse, with block n at n * 64 KiB. `NAME.index`
has a header with the size, and one record of 32 bytes per block. A record is written after the bytes of its
block were synced, and has their checksum, which is seeded with the key and the number of the block. So a
block that a crash or another process left incomplete is never mistaken for a valid one. Nothing needs repair,
and reads take no lock.

The file `claims` has one record of 64 bytes for each block that a process is about to read from the server:
the resource, the block, the owner and the expiry. A process locks it for as long as it takes to change it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import struct
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

import trio

from playhead.cache import BLOCK_BYTES, CLAIM_SECONDS
from playhead.errors import UsageError
from playhead.limits import GIB

MAX_BYTES: Final = GIB
"""The default limit of the directory: seven hours of MP3 at 320 kbit/s."""
_FILES_OPEN: Final = 32
"""Limits the resources whose files stay open. Fewer are usually played at once."""
_USED_SECONDS: Final = 60.0
"""The shortest time between two updates of a resource's last use. A write per hit would wear out an SD
card."""
_KEPT_SHARE: Final = 0.9
"""The share of the limit that remains after an eviction, so that not every block causes one."""
LOCK_SECONDS: Final = 0.25
"""Limits the wait for the lock of the claims. It is held for less than a millisecond, unless its process was
stopped; then everyone reads for themselves."""
_LOCK_PAUSE_SECONDS: Final = 0.001
LOOK_SECONDS: Final = 0.05
"""The pause before a waiter looks at the directory again, which reports nothing. A look takes 20 µs."""
_SCAN_SHARE: Final = 64
"""The share of the limit, as a divisor, that may be written before the directory is measured again."""

_HEADER: Final = struct.Struct("<8sqI12x")
_RECORD: Final = struct.Struct("<4sIIdI8x")
_CLAIM: Final = struct.Struct("<32sQ16sd")
_MAGIC, _BLOCK_MAGIC = b"playpgs1", b"blk1"

_Claims = dict[tuple[bytes, int], tuple[bytes, float]]
"""Owner and expiry, by resource and block."""


@dataclass(slots=True)
class _Resource:
    """The open files of one resource."""

    data: int
    index: int
    users: int = 0
    noted_at: float = 0.0

    def close(self) -> None:
        os.close(self.data)
        os.close(self.index)


class DirectoryCache:
    """A page cache in a directory, at most `max_bytes` on disk; the least recently used resources go first.

    The cache is safe for any number of processes at once, and after a crash at any moment. The bytes are on
    disk in the clear, readable by this user only. On a file system that is read-only or has no locks, the
    cache only reads, and everyone may read from the server.
    """

    claim_seconds = CLAIM_SECONDS

    def __init__(
        self,
        directory: str | PathLike[str],
        *,
        max_bytes: int = MAX_BYTES,
        on_trouble: Callable[[str], None] | None = None,
    ) -> None:
        """Open the directory, which is created with mode 0700 if it is missing. `on_trouble` is called with a
        message if nothing can be stored in it.

        Raises `UsageError` if it belongs to another user, is open to others, or cannot be made.
        """
        self._directory = directory = Path(directory)
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Resource] = OrderedDict()
        self._written_bytes = max_bytes  # the first block measures the directory
        self._reads_at_once = True
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = directory.lstat()
        except OSError as error:
            raise UsageError(
                f"cache: {directory} cannot be used as a directory ({error.strerror})"
            ) from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise UsageError(
                f"cache: expected a directory of yours, closed to others, got {directory} with the mode"
                f" {stat.filemode(found.st_mode)}; chmod 700 it, or name one that does not exist yet"
            )
        self._access = os.O_RDWR
        try:
            with self._locked("lock"):
                pass
        except BlockingIOError:  # another process has the lock, so locks work
            pass
        except OSError as error:
            self._access = os.O_RDONLY
            if on_trouble is not None:
                on_trouble(f"the cache {directory} is only read, nothing is stored in it: {error.strerror}")

    # --- the protocol ----------------------------------------------------------------------------------

    async def get(self, key: str, block: int) -> bytes | None:
        """See `PageCache.get`. Bytes in the system's page cache are read at once, others in a thread."""
        await trio.lowlevel.checkpoint()
        if self._reads_at_once:
            try:
                return self._get(key, block, flags=os.RWF_NOWAIT)
            except BlockingIOError:
                pass  # on disk
            except OSError:
                self._reads_at_once = False  # the file system does not support RWF_NOWAIT
        return await trio.to_thread.run_sync(self._get_or_nothing, key, block)

    async def put(self, key: str, block: int, data: bytes, *, ttl_seconds: float | None = None) -> None:
        """See `PageCache.put`. Cancelled: the thread finishes the block."""
        if self._access == os.O_RDONLY:
            return
        until = 0.0 if ttl_seconds is None else time.time() + ttl_seconds
        await trio.to_thread.run_sync(self._put, key, block, data, until, abandon_on_cancel=True)

    async def size(self, key: str) -> int | None:
        """See `PageCache.size`."""
        size = await trio.to_thread.run_sync(self._size, key)
        if size is None or await self.get(key, size // BLOCK_BYTES) is None:
            return None
        return size

    async def get_run(self, key: str, first: int, count: int) -> list[bytes | None]:
        """See `ClaimingCache.get_run`."""
        return [await self.get(key, block) for block in range(first, first + count)]

    async def claim(self, key: str, first: int, count: int, owner: str) -> int:
        """See `ClaimingCache.claim`. Cancelled: the thread finishes, and the claims expire."""
        return await trio.to_thread.run_sync(self._claim, key, first, count, owner, abandon_on_cancel=True)

    async def wait(self, key: str, block: int, *, seconds: float) -> None:
        """See `ClaimingCache.wait`."""
        if await self.get(key, block) is None and (_digest(key), block) in self._claims():
            await trio.sleep(min(seconds, LOOK_SECONDS))

    async def release(self, key: str, blocks: list[int], owner: str) -> None:
        """See `ClaimingCache.release`."""
        await trio.to_thread.run_sync(self._release, key, blocks, owner, abandon_on_cancel=True)

    def close(self) -> None:
        """Close the files. The cache can be used again."""
        with self._lock:
            idle = [name for name, resource in self._open.items() if not resource.users]
            for name in idle:
                self._open.pop(name).close()

    # --- blocks ----------------------------------------------------------------------------------------

    def _get_or_nothing(self, key: str, block: int) -> bytes | None:
        try:
            return self._get(key, block)
        except OSError:
            return None

    def _get(self, key: str, block: int, *, flags: int = 0) -> bytes | None:
        with self._files(key) as resource:
            if resource is None:
                return None
            record = bytearray(_RECORD.size)
            at = _HEADER.size + block * _RECORD.size
            if os.preadv(resource.index, [record], at, flags) != _RECORD.size:
                return None
            magic, n_bytes, checksum, until, own = _RECORD.unpack(record)
            is_whole = magic == _BLOCK_MAGIC and own == zlib.crc32(record[:20]) and n_bytes <= BLOCK_BYTES
            if not is_whole or (until and until <= time.time()):
                return None
            data = bytearray(n_bytes)
            if n_bytes and os.preadv(resource.data, [data], block * BLOCK_BYTES, flags) != n_bytes:
                if flags:
                    raise BlockingIOError  # a part of it is on disk
                return None
            if zlib.crc32(data, _seed(key, block)) != checksum:
                return None
            self._note_use(resource)
            return bytes(data)

    def _put(self, key: str, block: int, data: bytes, until: float) -> None:
        with suppress(OSError):  # such as a full disk: the block is not stored
            self._make_room(len(data))
            with self._files(key, create=True) as resource:
                assert resource is not None
                view = memoryview(data)
                while view:
                    view = view[os.pwrite(resource.data, view, block * BLOCK_BYTES + len(data) - len(view)) :]
                os.fdatasync(resource.data)
                record = _RECORD.pack(_BLOCK_MAGIC, len(data), zlib.crc32(data, _seed(key, block)), until, 0)
                record = record[:20] + struct.pack("<I", zlib.crc32(record[:20])) + record[24:]
                os.pwrite(resource.index, record, _HEADER.size + block * _RECORD.size)
                if len(data) < BLOCK_BYTES:
                    size = block * BLOCK_BYTES + len(data)
                    os.pwrite(resource.index, _HEADER.pack(_MAGIC, size, _size_checksum(key, size)), 0)

    def _size(self, key: str) -> int | None:
        with suppress(OSError, struct.error), self._files(key) as resource:
            if resource is not None:
                magic, size, checksum = _HEADER.unpack(os.pread(resource.index, _HEADER.size, 0))
                if magic == _MAGIC and size >= 0 and checksum == _size_checksum(key, size):
                    return int(size)
        return None

    # --- claims ----------------------------------------------------------------------------------------

    def _claim(self, key: str, first: int, count: int, owner: str) -> int:
        resource, until = _digest(key), time.time() + CLAIM_SECONDS
        with suppress(OSError), self._changed_claims() as claims:
            for block in range(first, first + count):
                if (resource, block) in claims:
                    return block - first
                claims[resource, block] = _digest(owner)[:16], until
        return count

    def _release(self, key: str, blocks: list[int], owner: str) -> None:
        resource = _digest(key)
        with suppress(OSError), self._changed_claims() as claims:
            for block in blocks:
                if claims.get((resource, block), (b"",))[0] == _digest(owner)[:16]:
                    del claims[resource, block]

    @contextmanager
    def _changed_claims(self) -> Iterator[_Claims]:
        """Yield the valid claims, and store them after the block. Raises `OSError` if that is impossible."""
        if self._access == os.O_RDONLY:
            raise OSError(errno.EROFS, "the cache is only read")
        with self._locked("claims", seconds=LOCK_SECONDS) as file:
            claims = self._claims()
            yield claims
            records = (_CLAIM.pack(*place, *claim) for place, claim in claims.items())
            os.ftruncate(file, os.pwrite(file, b"".join(records), 0))

    def _claims(self) -> _Claims:
        """Return the valid claims. A change meanwhile may leave out some of them."""
        try:
            data = Path(self._directory, "claims").read_bytes()
        except OSError:
            return {}
        now = time.time()
        return {
            (resource, block): (owner, until)
            for resource, block, owner, until in _CLAIM.iter_unpack(
                data[: len(data) // _CLAIM.size * _CLAIM.size]
            )
            if now < until <= now + CLAIM_SECONDS  # a later one is from a clock that was set back
        }

    # --- files -----------------------------------------------------------------------------------------

    @contextmanager
    def _files(self, key: str, *, create: bool = False) -> Iterator[_Resource | None]:
        name = _digest(key).hex()
        with self._lock:
            resource = self._opened(name, create=create)
            if resource is not None:
                resource.users += 1
        try:
            yield resource
        finally:
            if resource is not None:
                with self._lock:
                    resource.users -= 1
                    if not resource.users and self._open.get(name) is not resource:
                        resource.close()

    def _opened(self, name: str, *, create: bool) -> _Resource | None:
        resource = self._open.get(name)
        if resource is not None and (not create or os.fstat(resource.index).st_nlink):
            self._open.move_to_end(name)
            return resource
        if resource is not None:  # evicted, perhaps by another process
            self._forget(name)
        flags = self._access | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        try:
            data = os.open(self._path(name, "data"), flags, 0o600)
        except FileNotFoundError:
            return None
        try:
            index = os.open(self._path(name, "index"), flags, 0o600)
        except OSError as error:
            os.close(data)
            if isinstance(error, FileNotFoundError):
                return None
            raise
        resource = self._open[name] = _Resource(data, index)
        while len(self._open) > _FILES_OPEN:
            self._forget(next(iter(self._open)))
        return resource

    def _forget(self, name: str) -> None:
        resource = self._open.pop(name)
        if not resource.users:  # else the last user closes it
            resource.close()

    def _path(self, name: str, suffix: str) -> str:
        return f"{self._directory}/{name}.{suffix}"

    def _note_use(self, resource: _Resource) -> None:
        now = time.monotonic()
        if now - resource.noted_at > _USED_SECONDS or not resource.noted_at:
            resource.noted_at = now
            if self._access == os.O_RDWR:
                os.utime(resource.index)

    # --- the limit -------------------------------------------------------------------------------------

    def _make_room(self, n_bytes: int) -> None:
        with self._lock:
            self._written_bytes += n_bytes
            if self._written_bytes < max(self._max_bytes // _SCAN_SHARE, BLOCK_BYTES):
                return
            self._written_bytes = 0
        with suppress(BlockingIOError), self._locked("lock"):  # without the lock, another process evicts
            self._evict()

    @contextmanager
    def _locked(self, name: str, *, seconds: float = 0.0) -> Iterator[int]:
        """Open and lock a file. Raises `BlockingIOError` if another process has the lock for `seconds`."""
        file = os.open(f"{self._directory}/{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + seconds
        try:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= until:
                        raise
                time.sleep(_LOCK_PAUSE_SECONDS)
            yield file
        finally:
            os.close(file)

    def _evict(self) -> None:
        found: list[tuple[float, str, int]] = []
        for entry in os.scandir(self._directory):
            name, dot, suffix = entry.name.rpartition(".")
            if dot and suffix == "index":
                with suppress(FileNotFoundError):
                    used = entry.stat().st_mtime
                    n_bytes = 512 * entry.stat().st_blocks
                    n_bytes += 512 * os.stat(self._path(name, "data")).st_blocks  # noqa: PTH116
                    found.append((used, name, n_bytes))
        total = sum(n_bytes for _, _, n_bytes in found)
        if total <= self._max_bytes:
            return
        for _, name, n_bytes in sorted(found):
            # In either order, one file without the other has no valid blocks.
            for suffix in ("index", "data"):
                with suppress(FileNotFoundError):
                    os.unlink(self._path(name, suffix))  # noqa: PTH108
            total -= n_bytes
            if total <= _KEPT_SHARE * self._max_bytes:
                return


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _seed(key: str, block: int) -> int:
    return zlib.crc32(f"{key}:{block}".encode())


def _size_checksum(key: str, size: int) -> int:
    return zlib.crc32(f"{key}:size:{size}".encode())
