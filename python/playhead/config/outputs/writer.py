"""Write one output: bytes at any offset, in any order, and renamed into place when complete."""

from __future__ import annotations

import bisect
import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from playhead.config.outputs.record import PARTIAL, RECORD_SUFFIX, Label, SavedOutput, dump, load, suffix_of
from playhead.content.audio import SNIFF_BYTES
from playhead.errors import ClosedError, DigestError, DiskFullError, LimitError, SavingError, UsageError
from playhead.limits import MIB, Limits

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Extent:
    """Ranges of bytes written: sorted, half-open, neither adjacent nor overlapping."""

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
        edges = zip([0, *self._ends], [*self._starts, end], strict=True)
        return tuple((a, min(b, end)) for a, b in edges if a < min(b, end))

    @property
    def end(self) -> int:
        """One past the highest byte."""
        return self._ends[-1] if self._ends else 0

    @property
    def total(self) -> int:
        return sum(self._ends) - sum(self._starts)


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_HERE: Final = frozenset({errno.ELOOP, errno.ENOTDIR})


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Convert an `OSError` into a `SavingError` about `path` with advice."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFullError(
                f"{path}: {error.strerror}; make room, or choose another output directory", path=str(path)
            ) from error
        if error.errno in _NOT_HERE:
            raise SavingError(
                f"{path}: expected a directory of outputs, got a link or a file; remove it, or choose another"
                " output directory",
                path=str(path),
            ) from error
        raise SavingError(
            f"{path}: cannot write to this output directory ({error.strerror or error}); correct that, or"
            " choose another",
            path=str(path),
        ) from error


class ToolFolder:
    """An open tool directory. Raises `OSError`, which callers wrap with `saving`."""

    def __init__(self, root: Path, name: str, *, create: bool) -> None:
        """Raises `FileNotFoundError` if it does not exist and `create` is False."""
        self.path = root / name
        if create:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The root itself may be a link: it is the user's choice.
        root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=root_fd)
            self._fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root_fd)
        finally:
            os.close(root_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def fileno(self) -> int:
        """Return the descriptor of the directory."""
        return self._fd

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold a shared lock while adding names."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold an exclusive lock while removing names; waits for other holders."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    # --- names -----------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return os.listdir(self._fd)  # noqa: PTH208 - of the open directory, not of its current path

    def create_partial(self) -> tuple[str, int]:
        """Create a temporary file, locked while its descriptor is open. Return its name and descriptor."""
        name = f".{secrets.token_hex(8)}.part"
        with self.shared():  # a sweep must not remove it before it is locked
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=self._fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                self.remove(name)
                raise
        return name, fd

    def rename(self, partial: str, name: str) -> None:
        """Rename atomically, replacing an existing file (or a symbolic link itself, not its target)."""
        os.rename(partial, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def size_of(self, name: str) -> int | None:
        """Return the size of a regular file; None for anything else."""
        try:
            found = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def read(self, name: str, limit_bytes: int) -> bytes | None:
        """Read a regular file of at most `limit_bytes`; None for anything else. Never blocks on a pipe."""
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._fd)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            data = file.read(limit_bytes + 1)
        return data if len(data) <= limit_bytes else None

    def sweep(self) -> None:
        """Remove temporary files of dead writers. Skips a directory that is in use."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            for name in filter(PARTIAL.fullmatch, self.names()):
                self._remove_if_dead(name)
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _remove_if_dead(self, name: str) -> None:
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._fd)
        except OSError:
            return  # already removed, or not created by a writer
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.remove(name)
        except BlockingIOError:
            pass  # its writer is alive
        finally:
            os.close(fd)


_REREAD_BYTES: Final = MIB


class OutputWriter:
    """Writer from `OutputStore.open_writer`, for one thread at a time. End it with `commit` or `discard`.

    As a context manager it discards an uncommitted file. The SHA-256 is updated while bytes arrive in order;
    bytes written out of order are read back at the end.
    """

    def __init__(self, folder: ToolFolder, label: Label, *, limits: Limits) -> None:
        self._folder = folder
        self._label = label
        self._limits = limits
        self._extent = Extent()
        self._digest = hashlib.sha256()
        self._digested_bytes = 0
        self._partial, self._fd = folder.create_partial()

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
        """One past the highest byte written."""
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
                f"an output of {self._label.tool_id!r} has more than {self._limits.saved_bytes} bytes, the"
                " most that is saved (Limits.saved_bytes)",
                limit="saved_bytes",
                allowed=self._limits.saved_bytes,
                got=end,
            )
        try:
            with saving(self._folder.path):
                done = 0
                while done < len(view):
                    done += os.pwrite(self._fd, view[done:], offset + done)
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
            with saving(self._folder.path):
                digest = self._whole_digest(size)
                if sha256 is not None and digest != sha256:
                    raise DigestError(
                        f"an output of {self._label.tool_id!r}: expected {size} bytes with the SHA-256"
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
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                # Before closing releases the lock; nobody else removes a locked file.
                if self._partial:
                    with saving(self._folder.path):
                        self._folder.remove(self._partial)
            finally:
                os.close(fd)
                self._folder.close()

    def _require_open(self) -> None:
        if self._fd < 0:
            raise ClosedError("this output was committed or discarded already")

    def _publish(self, size: int, sha256: str) -> SavedOutput:
        file = f"{sha256}.{suffix_of(self._label.mime, os.pread(self._fd, SNIFF_BYTES, 0))}"
        id = f"{self._label.time:%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"
        text = dump(
            self._label,
            file=file,
            sha256=sha256,
            size_bytes=size,
            limit_bytes=self._limits.record_bytes,
        )
        os.fsync(self._fd)  # a power cut must not leave a name without its bytes
        record, record_fd = self._folder.create_partial()
        try:
            _write_all(record_fd, text)
            os.fsync(record_fd)
            with self._folder.shared():  # the file must not be removed before its record exists
                self._folder.rename(self._partial, file)
                self._partial = ""
                self._folder.rename(record, id + RECORD_SUFFIX)
        except BaseException:  # also on interrupt: leave no partial record
            self._folder.remove(record)
            raise
        finally:
            os.close(record_fd)
        return load(text, id=id, sidecar_path=self._folder.path / (id + RECORD_SUFFIX))

    def _whole_digest(self, size: int) -> str:
        while self._digested_bytes < size:
            piece = os.pread(self._fd, min(_REREAD_BYTES, size - self._digested_bytes), self._digested_bytes)
            if not piece:
                raise OSError("the file was cut while it was written")
            self._digest.update(piece)
            self._digested_bytes += len(piece)
        return self._digest.hexdigest()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
