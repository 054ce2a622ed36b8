"""The writer of an output. It takes bytes at any offset, in any order, and renames the file once complete."""

from __future__ import annotations

import bisect
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedIOBase, BufferedRandom, BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from playhead.config.outputs.record import SavedOutput, dump, load, suffix_of
from playhead.content.audio import SNIFF_BYTES
from playhead.errors import ClosedError, DigestError, DiskFullError, LimitError, SavingError, UsageError
from playhead.limits import Limits

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Extent:
    """The written ranges of a file: sorted and half-open, with gaps between them."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        first = bisect.bisect_left(self._ends, start)
        last = bisect.bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def missing(self, end: int) -> tuple[tuple[int, int], ...]:
        """Return the gaps in [0, `end`)."""
        gaps = zip([0, *self._ends], [*self._starts, end], strict=True)
        return tuple((start, min(stop, end)) for start, stop in gaps if start < min(stop, end))

    def next_missing(self, start: int) -> int:
        """Return the first byte from `start` on that was not written."""
        at = bisect.bisect_right(self._starts, start) - 1
        return max(start, self._ends[at]) if at >= 0 else start

    @property
    def end(self) -> int:
        """The offset past the highest byte."""
        return self._ends[-1] if self._ends else 0

    @property
    def total(self) -> int:
        return sum(self._ends) - sum(self._starts)


_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_A_DIRECTORY: Final = frozenset({errno.EEXIST, errno.ELOOP, errno.ENOTDIR})


@contextmanager
def saving(path: Path, *, otherwise: str = "choose another output directory") -> Iterator[None]:
    """Convert an `OSError` into a `SavingError` about `path` with advice, which ends with `otherwise`."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise DiskFullError(
                f"{path}: {error.strerror}; make room, or {otherwise}", path=str(path)
            ) from error
        if error.errno in _NOT_A_DIRECTORY:
            raise SavingError(
                f"{path}: expected a directory, got a link or a file; remove it, or {otherwise}",
                path=str(path),
            ) from error
        raise SavingError(
            f"{path}: cannot write to this directory ({error.strerror or error}); correct that, or"
            f" {otherwise}",
            path=str(path),
        ) from error


class OutputWriter:
    """Writer from `OutputStore.open_writer`, for one thread at a time. End it with `commit` or `discard`.

    As a context manager it discards an uncommitted file. It computes the SHA-256 while bytes arrive in order;
    if some arrive out of order, it reads the file back at the end.
    """

    def __init__(self, draft: SavedOutput, *, limits: Limits) -> None:
        self._draft = draft
        self._folder = draft.sidecar_path.parent
        self._limits = limits
        self._extent = Extent()
        self._digest = hashlib.sha256()
        self._digested_bytes = 0
        self._file = _temporary_file(self._folder)

    def __enter__(self) -> OutputWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    @property
    def written_bytes(self) -> int:
        """Distinct bytes written so far."""
        return self._extent.total

    @property
    def end_bytes(self) -> int:
        """The offset past the highest byte written."""
        return self._extent.end

    def missing(self, size_bytes: int) -> tuple[tuple[int, int], ...]:
        """Return the half-open ranges of [0, `size_bytes`) not yet written."""
        return self._extent.missing(size_bytes)

    def write_at(self, offset: int, data: Buffer) -> None:
        """Write bytes at `offset`. Blocks on the disk.

        Raises `LimitError` past `Limits.saved_bytes`, `DiskFullError` or `SavingError` if the disk fails; the
        file is then discarded. Raises `ClosedError` after `commit` or `discard`.
        """
        view = memoryview(data).cast("B")
        end = offset + len(view)
        self._require_open()
        if end > self._limits.saved_bytes:
            self.discard()
            raise LimitError(
                f"an output of {self._draft.tool_id!r} has more than {self._limits.saved_bytes} bytes, the"
                " most that is saved (Limits.saved_bytes)",
                limit="saved_bytes",
                allowed=self._limits.saved_bytes,
                got=end,
            )
        try:
            with saving(self._folder):
                write_at(self._file.fileno(), offset, view)
        except SavingError:
            self.discard()
            raise
        self._extent.add(offset, end)
        if offset <= self._digested_bytes < end:
            self._digest.update(view[self._digested_bytes - offset :])
            self._digested_bytes = end

    def commit(self, *, size_bytes: int | None = None, sha256: str | None = None) -> SavedOutput:
        """Rename the file into place and write its record. Blocks until both are on disk.

        `size_bytes` is the known size (default: up to the highest byte written), `sha256` the announced
        digest in hexadecimal (default: none). Raises `UsageError` if bytes are missing or in excess,
        `DigestError` if the bytes are not those announced, `DiskFullError` or `SavingError` if the disk
        fails; in every case no file is left behind.
        """
        self._require_open()
        size = self._extent.end if size_bytes is None else size_bytes
        try:
            missing = self._extent.missing(size)
            if missing or self._extent.end > size:
                raise UsageError(
                    f"commit: expected the bytes [0, {size}), got {self.written_bytes} up to"
                    f" {self._extent.end}, missing {list(missing[:3])}"
                )
            with saving(self._folder):
                digest = self._whole_digest(size)
                if sha256 is not None and digest != sha256:
                    raise DigestError(
                        f"an output of {self._draft.tool_id!r}: expected {size} bytes with the SHA-256"
                        f" {sha256}, got {digest}; the file is damaged, or not the one that was announced",
                        offset=size,
                        expected=sha256,
                        got=digest,
                    )
                return self._publish(size, digest)
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove the unfinished file. Idempotent; does nothing after `commit`."""
        if not self._file.closed:
            with saving(self._folder):
                self._file.close()
                Path(self._file.name).unlink(missing_ok=True)

    def _require_open(self) -> None:
        if self._file.closed:
            raise ClosedError("this output was committed or discarded already")

    def _publish(self, size: int, sha256: str) -> SavedOutput:
        suffix = suffix_of(self._draft.mime, os.pread(self._file.fileno(), SNIFF_BYTES, 0))
        output = replace(
            self._draft, path=self._folder / f"{sha256}.{suffix}", sha256=sha256, size_bytes=size
        )
        text = dump(output, limit_bytes=self._limits.record_bytes)
        os.fsync(self._file.fileno())  # a power cut must not leave a name without its bytes
        record = self._copy_to_temporary(BytesIO(text))
        try:
            Path(self._file.name).replace(output.path)
            record.replace(output.sidecar_path)
        finally:
            record.unlink(missing_ok=True)
        if not output.path.exists():  # `OutputStore.remove` moved it before the record existed
            self._file.seek(0)
            self._copy_to_temporary(self._file).replace(output.path)
        return load(text, id=output.id, sidecar_path=output.sidecar_path)

    def _copy_to_temporary(self, source: BufferedIOBase) -> Path:
        """Copy `source` to a temporary file that is on the disk."""
        with _temporary_file(self._folder) as file:
            try:
                shutil.copyfileobj(source, file)
                file.flush()
                os.fsync(file.fileno())
            except BaseException:  # also on interrupt: leave no partial file
                Path(file.name).unlink()
                raise
        return Path(file.name)

    def _whole_digest(self, size: int) -> str:
        if self._digested_bytes < size:
            self._file.seek(0)
            self._digest = hashlib.file_digest(self._file, "sha256")
        return self._digest.hexdigest()


def write_at(descriptor: int, offset: int, view: memoryview) -> None:
    """Write all bytes at `offset`: one write takes only some if the disk is nearly full. Raises `OSError`."""
    count = 0
    while count < len(view):
        count += os.pwrite(descriptor, view[count:], offset + count)


def hidden_name() -> str:
    """Return a new name for a temporary file."""
    return f".{secrets.token_hex(8)}.part"


def _temporary_file(folder: Path) -> BufferedRandom:
    path = folder / hidden_name()
    path.touch(mode=0o600, exist_ok=False)
    return path.open("r+b")
