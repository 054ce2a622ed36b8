"""A page cache in a directory, for all processes of one user.

Each resource has two files, named by a hash. `NAME.data` is sparse, with block n at n * 64 KiB. `NAME.index`
has a header with the size, and one record of 32 bytes per block. The cache syncs the bytes of a block before
it writes the record, and the record has their checksum, seeded with the key and the number of the block. So
a reader never accepts a block that a crash or another process left incomplete. Nothing needs repair, and
reads take no lock.

The file `claims` has one record of 64 bytes for each block that a process is about to read from the server:
the resource, the block, the owner and the expiry. A process locks this file only while it changes it.
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
_MAX_OPEN_RESOURCES: Final = 32
"""Limits the resources whose files stay open. Players usually read fewer at once."""
_TOUCH_SECONDS: Final = 60.0
"""The shortest time between two updates of a resource's last use. A write per hit would wear out an SD
card."""
_REMAINING_SHARE: Final = 0.9
"""The share of the limit that remains after an eviction, so that not every block causes one."""
LOCK_SECONDS: Final = 0.25
"""Limits the wait for the lock of the claims. A process holds it for less than a millisecond, unless the
process is suspended; then the others read from the server without claims."""
_LOCK_PAUSE_SECONDS: Final = 0.001
LOOK_SECONDS: Final = 0.05
"""The pause before a waiter looks at the directory again, because a directory reports no changes. A look
takes 20 µs."""
_SCAN_DIVISOR: Final = 64
"""The cache measures the directory again after it has written this fraction (1/64) of the limit."""

_HEADER: Final = struct.Struct("<8sqI12x")
"""The header of an index: magic, size of the resource, checksum of the size."""
_BLOCK_RECORD: Final = struct.Struct("<4sIIdI8x")
"""Magic, size of the block, checksum of its bytes, expiry (0: none), checksum of this record's first 20
bytes."""
_CLAIM_RECORD: Final = struct.Struct("<32sQ16sd")
"""Resource, block, owner, expiry."""
_HEADER_MAGIC, _RECORD_MAGIC = b"playpgs1", b"blk1"

_Claims = dict[tuple[bytes, int], tuple[bytes, float]]
"""The owner and expiry of each claim, by resource and block."""


@dataclass(slots=True)
class _Resource:
    """The open files of one resource."""

    data: int
    index: int
    users: int = 0
    """The number of reads and writes in progress. The files stay open for them, even after an eviction."""
    noted_at: float = 0.0
    """The time of the last update of the index's modification time."""

    def close(self) -> None:
        os.close(self.data)
        os.close(self.index)


class DirectoryCache:
    """A page cache of at most `max_bytes` in a directory. It drops the least recently used resource first.

    The cache is safe for any number of processes at once, and after a crash at any moment. The bytes are not
    encrypted; only this user can read them. On a file system that is read-only or has no locks, the cache
    stores nothing, and processes read from the server without claims.
    """

    claim_seconds = CLAIM_SECONDS

    def __init__(
        self,
        directory: str | PathLike[str],
        *,
        max_bytes: int = MAX_BYTES,
        on_trouble: Callable[[str], None] | None = None,
    ) -> None:
        """Open the directory, or create it with mode 0700. If nothing can be stored in it, this calls
        `on_trouble` with a message.

        Raises `UsageError` if it belongs to another user, is open to others, or cannot be created.
        """
        self._directory = directory = Path(directory)
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Resource] = OrderedDict()
        self._written_bytes = max_bytes  # the first block measures the directory
        self._supports_nowait = True
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = directory.lstat()
        except OSError as error:
            raise UsageError(
                f"cache: {directory} cannot be used as a directory ({error.strerror})"
            ) from error
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise UsageError(
                f"cache: expected a directory of yours, closed to others, got {directory} with the mode"
                f" {stat.filemode(status.st_mode)}; chmod 700 it, or name one that does not exist yet"
            )
        self._access = os.O_RDWR
        try:
            with self._locked("lock"):
                pass  # locks work
        except BlockingIOError:
            pass  # another process has the lock, so locks work
        except OSError as error:
            self._access = os.O_RDONLY
            if on_trouble is not None:
                on_trouble(f"the cache {directory} is only read, nothing is stored in it: {error.strerror}")

    # --- the protocol ----------------------------------------------------------------------------------

    async def get(self, key: str, block: int) -> bytes | None:
        """See `PageCache.get`. A thread reads the bytes that are not in the system's page cache."""
        await trio.lowlevel.checkpoint()
        if self._supports_nowait:
            try:
                return self._get(key, block, flags=os.RWF_NOWAIT)
            except BlockingIOError:
                pass  # on disk
            except OSError:
                self._supports_nowait = False  # the file system does not support RWF_NOWAIT
        return await trio.to_thread.run_sync(self._get_or_none, key, block)

    async def put(self, key: str, block: int, data: bytes, *, ttl_seconds: float | None = None) -> None:
        """See `PageCache.put`. If cancelled, the thread still finishes the block."""
        if self._access == os.O_RDONLY:
            return
        expires_at = 0.0 if ttl_seconds is None else time.time() + ttl_seconds
        await trio.to_thread.run_sync(self._put, key, block, data, expires_at, abandon_on_cancel=True)

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
        """See `ClaimingCache.claim`. If cancelled, the thread still finishes, and the claims expire."""
        return await trio.to_thread.run_sync(self._claim, key, first, count, owner, abandon_on_cancel=True)

    async def wait(self, key: str, block: int, *, seconds: float) -> None:
        """See `ClaimingCache.wait`."""
        if await self.get(key, block) is None and (_digest(key), block) in self._read_claims():
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

    def _get_or_none(self, key: str, block: int) -> bytes | None:
        try:
            return self._get(key, block)
        except OSError:
            return None

    def _get(self, key: str, block: int, *, flags: int = 0) -> bytes | None:
        with self._use_files(key) as resource:
            if resource is None:
                return None
            record = bytearray(_BLOCK_RECORD.size)
            offset = _HEADER.size + block * _BLOCK_RECORD.size
            if os.preadv(resource.index, [record], offset, flags) != _BLOCK_RECORD.size:
                return None
            magic, n_bytes, checksum, expires_at, record_checksum = _BLOCK_RECORD.unpack(record)
            if magic != _RECORD_MAGIC or record_checksum != zlib.crc32(record[:20]) or n_bytes > BLOCK_BYTES:
                return None
            if expires_at and expires_at <= time.time():
                return None
            data = bytearray(n_bytes)
            if n_bytes and os.preadv(resource.data, [data], block * BLOCK_BYTES, flags) != n_bytes:
                if flags:
                    raise BlockingIOError  # a part of it is on disk
                return None
            if zlib.crc32(data, _checksum_seed(key, block)) != checksum:
                return None
            self._note_use(resource)
            return bytes(data)

    def _put(self, key: str, block: int, data: bytes, expires_at: float) -> None:
        with suppress(OSError):  # such as a full disk: the block is not stored
            self._make_room(len(data))
            with self._use_files(key, create=True) as resource:
                assert resource is not None
                view, offset = memoryview(data), block * BLOCK_BYTES
                while view:
                    n_written = os.pwrite(resource.data, view, offset)
                    view, offset = view[n_written:], offset + n_written
                os.fdatasync(resource.data)
                fields = (_RECORD_MAGIC, len(data), zlib.crc32(data, _checksum_seed(key, block)), expires_at)
                record_checksum = zlib.crc32(_BLOCK_RECORD.pack(*fields, 0)[:20])
                record = _BLOCK_RECORD.pack(*fields, record_checksum)
                os.pwrite(resource.index, record, _HEADER.size + block * _BLOCK_RECORD.size)
                if len(data) < BLOCK_BYTES:
                    size = block * BLOCK_BYTES + len(data)
                    os.pwrite(resource.index, _HEADER.pack(_HEADER_MAGIC, size, _size_checksum(key, size)), 0)

    def _size(self, key: str) -> int | None:
        with suppress(OSError, struct.error), self._use_files(key) as resource:
            if resource is not None:
                magic, size, checksum = _HEADER.unpack(os.pread(resource.index, _HEADER.size, 0))
                if magic == _HEADER_MAGIC and size >= 0 and checksum == _size_checksum(key, size):
                    return int(size)
        return None

    # --- claims ----------------------------------------------------------------------------------------

    def _claim(self, key: str, first: int, count: int, owner: str) -> int:
        resource, expires_at = _digest(key), time.time() + CLAIM_SECONDS
        with suppress(OSError), self._edit_claims() as claims:
            for block in range(first, first + count):
                if (resource, block) in claims:
                    return block - first
                claims[resource, block] = _digest(owner)[:16], expires_at
        return count

    def _release(self, key: str, blocks: list[int], owner: str) -> None:
        resource = _digest(key)
        with suppress(OSError), self._edit_claims() as claims:
            for block in blocks:
                if claims.get((resource, block), (b"",))[0] == _digest(owner)[:16]:
                    del claims[resource, block]

    @contextmanager
    def _edit_claims(self) -> Iterator[_Claims]:
        """Lock the claims, yield the valid ones, and store them when the block ends. Raises `OSError`."""
        if self._access == os.O_RDONLY:
            raise OSError(errno.EROFS, "the cache is only read")
        with self._locked("claims", seconds=LOCK_SECONDS) as file:
            claims = self._read_claims()
            yield claims
            data = b"".join(_CLAIM_RECORD.pack(*place, *claim) for place, claim in claims.items())
            n_written = os.pwrite(file, data, 0)
            os.ftruncate(file, n_written)

    def _read_claims(self) -> _Claims:
        """Return the valid claims; without the lock perhaps not all, while another process writes them."""
        try:
            data = Path(self._directory, "claims").read_bytes()
        except OSError:
            return {}
        now = time.time()
        whole_records = data[: len(data) // _CLAIM_RECORD.size * _CLAIM_RECORD.size]
        return {
            (resource, block): (owner, expires_at)
            for resource, block, owner, expires_at in _CLAIM_RECORD.iter_unpack(whole_records)
            if now < expires_at <= now + CLAIM_SECONDS  # a later one is from before the clock was set back
        }

    # --- files -----------------------------------------------------------------------------------------

    @contextmanager
    def _use_files(self, key: str, *, create: bool = False) -> Iterator[_Resource | None]:
        """Yield the open files of a resource; None if they are missing."""
        name = _digest(key).hex()
        with self._lock:
            resource = self._open_files(name, create=create)
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

    def _open_files(self, name: str, *, create: bool) -> _Resource | None:
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
        while len(self._open) > _MAX_OPEN_RESOURCES:
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
        if now - resource.noted_at > _TOUCH_SECONDS or not resource.noted_at:
            resource.noted_at = now
            if self._access == os.O_RDWR:
                os.utime(resource.index)

    # --- the limit -------------------------------------------------------------------------------------

    def _make_room(self, n_bytes: int) -> None:
        with self._lock:
            self._written_bytes += n_bytes
            if self._written_bytes < max(self._max_bytes // _SCAN_DIVISOR, BLOCK_BYTES):
                return
            self._written_bytes = 0
        with suppress(BlockingIOError), self._locked("lock"):  # without the lock, another process evicts
            self._evict()

    @contextmanager
    def _locked(self, name: str, *, seconds: float = 0.0) -> Iterator[int]:
        """Open and lock a file. Raises `BlockingIOError` if another process has the lock for `seconds`."""
        file = os.open(f"{self._directory}/{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + seconds
        try:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise
                time.sleep(_LOCK_PAUSE_SECONDS)
            yield file
        finally:
            os.close(file)

    def _evict(self) -> None:
        resources: list[tuple[float, str, int]] = []
        for entry in os.scandir(self._directory):
            name, dot, suffix = entry.name.rpartition(".")
            if dot and suffix == "index":
                with suppress(FileNotFoundError):
                    used_at = entry.stat().st_mtime
                    n_bytes = 512 * entry.stat().st_blocks
                    n_bytes += 512 * os.stat(self._path(name, "data")).st_blocks  # noqa: PTH116
                    resources.append((used_at, name, n_bytes))
        total = sum(n_bytes for _, _, n_bytes in resources)
        if total <= self._max_bytes:
            return
        for _, name, n_bytes in sorted(resources):
            # In either order, one file without the other has no valid blocks.
            for suffix in ("index", "data"):
                with suppress(FileNotFoundError):
                    os.unlink(self._path(name, suffix))  # noqa: PTH108
            total -= n_bytes
            if total <= _REMAINING_SHARE * self._max_bytes:
                return


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _checksum_seed(key: str, block: int) -> int:
    return zlib.crc32(f"{key}:{block}".encode())


def _size_checksum(key: str, size: int) -> int:
    return zlib.crc32(f"{key}:size:{size}".encode())
