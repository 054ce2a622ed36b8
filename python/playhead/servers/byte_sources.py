"""The sources of a ranged resource: a file, bytes, or a callable that reads, each as a `ByteSource`.

A source also knows the version of its bytes and, unless it takes too long to compute, their digest. Sources
run under asyncio and trio.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol, cast

import anyio.to_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError

from playhead.errors import UsageError
from playhead.limits import MIB

DIGEST_BYTES: Final = 256 * MIB
"""Limits the files with a digest. To compute that of a longer file would take longer than a client waits."""

_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
"""The flag of a read that returns only bytes in memory, and never waits for the disk. Linux only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceBytes:
    """A range of bytes, with what the source knows about the resource."""

    data: bytes
    """The bytes from `start` on. There are at most `end - start`, fewer if the resource or the page ends
    before, and none only at or after the end of the resource."""
    total_bytes: int | None = None
    """The size of the whole resource."""
    mime_type: str | None = None
    etag: str | None = None
    """The version of the resource, which changes if any byte changes."""
    is_live: bool | None = None
    """True while the resource still grows: `total_bytes` is its present size."""
    name: str | None = None
    """The name of a member of a family, for links and files; None is the family's name."""


ReadCallable = Callable[..., Awaitable[bytes | ResourceBytes]]
"""`async def read(start, end, **variables)`: read the half-open range `[start, end)`.

`variables` are the strings for the other variables of the URI template. The callable raises `MCPError` to
refuse a read; the SDK handles any other exception.
"""


class ByteSource(Protocol):
    """Bytes by range, and their digest if known."""

    async def read(self, start: int, end: int, values: Mapping[str, str]) -> ResourceBytes: ...

    async def sha256(self, piece: ResourceBytes) -> bytes | None: ...


class _FileSource:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest: tuple[str, bytes] | None = None

    async def read(self, start: int, end: int, values: Mapping[str, str]) -> ResourceBytes:
        return await read_file(self._path, start, end)

    async def sha256(self, piece: ResourceBytes) -> bytes | None:
        if piece.total_bytes is None or piece.total_bytes > DIGEST_BYTES:
            return None
        if self._digest is None or self._digest[0] != piece.etag:
            version, digest = await anyio.to_thread.run_sync(self._compute_digest)
            if version != piece.etag:
                return None  # it has just changed
            self._digest = version, digest
        return self._digest[1]

    def _compute_digest(self) -> tuple[str, bytes]:
        with self._path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
            return file_version(os.fstat(file.fileno())), digest


class _BytesSource:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._digest = hashlib.sha256(data).digest()

    async def read(self, start: int, end: int, values: Mapping[str, str]) -> ResourceBytes:
        etag = self._digest.hex()[:32]
        return ResourceBytes(data=self._data[start:end], total_bytes=len(self._data), etag=etag)

    async def sha256(self, piece: ResourceBytes) -> bytes | None:
        return self._digest


class _CallableSource:
    def __init__(self, read: ReadCallable, *, size_bytes: int | None, digest: bytes | None) -> None:
        self._callable = read
        self._size_bytes = size_bytes
        self._digest = digest

    async def read(self, start: int, end: int, values: Mapping[str, str]) -> ResourceBytes:
        answer = await self._callable(start, end, **values)
        piece = answer if isinstance(answer, ResourceBytes) else ResourceBytes(data=bytes(answer))
        etag = piece.etag or (self._digest.hex()[:32] if self._digest is not None else None)
        size = piece.total_bytes if piece.total_bytes is not None else self._size_bytes
        return replace(piece, total_bytes=size, etag=etag)

    async def sha256(self, piece: ResourceBytes) -> bytes | None:
        return self._digest


def source_of(source: object, *, size_bytes: int | None, sha256: str | None) -> ByteSource:
    """Return a `ByteSource` for a path, bytes or a callable. Raises `UsageError`."""
    if isinstance(source, bytes):
        return _BytesSource(source)
    if isinstance(source, Path):
        if not source.is_file():
            raise UsageError(f"{str(source)!r} is not a file; expected one to read")
        return _FileSource(source)
    if not callable(source):
        raise UsageError(f"expected a Path, bytes or a callable that reads, got {source!r:.80}")
    if sha256 is not None and re.fullmatch(r"[0-9a-fA-F]{64}", sha256) is None:
        raise UsageError(f"sha256: expected 64 hexadecimal digits, got {sha256!r:.80}")
    digest = bytes.fromhex(sha256) if sha256 is not None else None
    return _CallableSource(cast("ReadCallable", source), size_bytes=size_bytes, digest=digest)


async def read_file(path: Path, start: int, end: int) -> ResourceBytes:
    """Read `[start, end)` of a file: directly if the system has it in memory, otherwise in a thread, which
    costs more than the read itself.

    Raises `MCPError` (-32603) for a file that cannot be read, or that changes meanwhile.
    """
    piece = _read_range(path, start, end, flags=_NOWAIT) if _NOWAIT else None
    return piece or cast("ResourceBytes", await anyio.to_thread.run_sync(_read_range, path, start, end))


def _read_range(path: Path, start: int, end: int, *, flags: int = 0) -> ResourceBytes | None:
    """Read as `read_file`; None if `flags` forbid to wait for the disk, which would be necessary."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            before = os.fstat(descriptor)
            data = bytearray(max(0, min(end, before.st_size) - start))
            n_bytes = os.preadv(descriptor, [data], start, flags) if data else 0
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if flags:
            return None
        raise MCPError(types.INTERNAL_ERROR, f"reading failed: {error.strerror or error}") from error
    if n_bytes < len(data) and flags:
        return None
    if file_version(before) != file_version(after):
        raise MCPError(types.INTERNAL_ERROR, "the file changed while it was read; read it again")
    return ResourceBytes(
        data=bytes(memoryview(data)[:n_bytes]), total_bytes=before.st_size, etag=file_version(before)
    )


def file_version(status: os.stat_result) -> str:
    """Return the entity tag of a file, which changes if the file is written to or replaced."""
    return f'"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"'
