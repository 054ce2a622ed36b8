"""One output while it is written: bytes at their offsets, in any order, under a name only when whole."""

from __future__ import annotations

import hashlib
import os
import secrets
from typing import TYPE_CHECKING, Final

from playhead.config.outputs.extent import Extent
from playhead.config.outputs.folder import ToolFolder, saving
from playhead.config.outputs.names import RECORD_SUFFIX, suffix_of
from playhead.config.outputs.record import Label, SavedOutput, dump, load
from playhead.content.audio import SNIFF_BYTES
from playhead.errors import ClosedError, LimitError, SavingError, UsageError
from playhead.limits import MIB, Limits

if TYPE_CHECKING:
    from typing_extensions import Buffer

_REREAD_BYTES: Final = MIB


class OutputWriter:
    """Made by `OutputStore.open_writer`; for one thread at a time. Ends by `commit` or `discard`.

    As a context manager it discards what was not committed. The SHA-256 is taken along as long as bytes come
    in order; what was written out of order is read back at the end.
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
        """Different bytes written so far."""
        return self._extent.total

    @property
    def end_bytes(self) -> int:
        """One past the highest byte written."""
        return self._extent.end

    def missing(self, size_bytes: int) -> tuple[tuple[int, int], ...]:
        """The half-open ranges of [0, `size_bytes`) that were not written."""
        return self._extent.missing(size_bytes)

    def write_at(self, offset: int, data: Buffer) -> None:
        """Put bytes at their place. Blocks on the disk.

        Raises `LimitError` past `Limits.saved_bytes`, `DiskFullError` or `SavingError` where the disk takes
        no more; the file is then discarded. `ClosedError` after its end.
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

    def commit(self, *, size_bytes: int | None = None) -> SavedOutput:
        """Give the file its name and its record. Blocks until both are on the disk.

        `size_bytes` is the proved size (default: up to the highest byte written). Raises `UsageError` where
        bytes of it are missing or there are more, `DiskFullError` or `SavingError` where the disk refuses;
        in every case nothing stays behind.
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
                return self._publish(size)
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove the unfinished file. Idempotent; after `commit` there is none."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                # Before the lock goes with the descriptor; no one else removes what is locked.
                if self._partial:
                    with saving(self._folder.path):
                        self._folder.remove(self._partial)
            finally:
                os.close(fd)
                self._folder.close()

    def _require_open(self) -> None:
        if self._fd < 0:
            raise ClosedError("this output was committed or discarded already")

    def _publish(self, size: int) -> SavedOutput:
        sha256 = self._whole_digest(size)
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
            with self._folder.shared():  # nobody removes the file between its name and its record
                self._folder.rename(self._partial, file)
                self._partial = ""
                self._folder.rename(record, id + RECORD_SUFFIX)
        except BaseException:  # an interrupt too: no half record stays
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
