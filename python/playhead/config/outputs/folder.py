"""One tool's folder, held open by its descriptor, so that nothing put in its place later leads elsewhere.

No link is followed below the root: a folder or record that is one is refused, a file that is one is replaced.

Two kinds of locks (`flock`, which the system drops when a process dies):
* a temporary file is locked by its writer, so that one without a lock is left over and may go;
* the folder is held shared while names appear in it, alone while leftovers or outputs are removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from playhead.config.outputs.names import PARTIAL
from playhead.errors import DiskFullError, SavingError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_HERE: Final = frozenset({errno.ELOOP, errno.ENOTDIR})


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Turn an `OSError` into a `SavingError` about `path` that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFullError(
                f"{path}: {error.strerror}; make room, or choose another output folder", path=str(path)
            ) from error
        if error.errno in _NOT_HERE:
            raise SavingError(
                f"{path}: expected a folder of outputs, found a link or a file; remove it, or choose another"
                " output folder",
                path=str(path),
            ) from error
        raise SavingError(
            f"{path}: this output folder cannot be used: {error.strerror or error}; change that, or choose"
            " another",
            path=str(path),
        ) from error


class ToolFolder:
    """An open folder. Raises `OSError`s: callers wrap them by `saving`."""

    def __init__(self, root: Path, name: str, *, create: bool) -> None:
        """Raises `FileNotFoundError` where it does not exist and `create` is not set."""
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
        """The folder's descriptor."""
        return self._fd

    @contextmanager
    def shared(self) -> Iterator[None]:
        """While names appear."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While names are removed; waits for others."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    # --- names -----------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return os.listdir(self._fd)  # noqa: PTH208 - of the open folder, not of whatever has its name now

    def create_partial(self) -> tuple[str, int]:
        """A new temporary file, locked for as long as its descriptor is open: its name, the descriptor."""
        name = f".{secrets.token_hex(8)}.part"
        with self.shared():  # between creating and locking it must not be taken for left over
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=self._fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                self.remove(name)
                raise
        return name, fd

    def rename(self, partial: str, name: str) -> None:
        """Atomically; what has the name already is replaced (a link itself, not what it leads to)."""
        os.rename(partial, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def remove(self, name: str) -> None:
        """Nothing there: nothing to do."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def size_of(self, name: str) -> int | None:
        """Of a regular file; None for anything else."""
        try:
            found = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def read(self, name: str, limit_bytes: int) -> bytes | None:
        """A regular file of at most `limit_bytes`; None for anything else. Never blocks on a pipe."""
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._fd)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            data = file.read(limit_bytes + 1)
        return data if len(data) <= limit_bytes else None

    def sweep(self) -> None:
        """Remove the temporary files of writers that died. A folder that is in use is left for next time."""
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
            return  # gone already, or nothing that a writer of ours made
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.remove(name)
        except BlockingIOError:
            pass  # its writer lives
        finally:
            os.close(fd)
