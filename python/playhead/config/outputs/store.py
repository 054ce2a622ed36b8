"""`OutputStore`: the folder in which results are kept, found again and removed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from playhead.config.outputs.content import TEXT, decoded
from playhead.config.outputs.folder import ToolFolder, saving
from playhead.config.outputs.names import (
    ANY_BYTES,
    RECORD_ID,
    RECORD_SUFFIX,
    TOOL_FOLDER,
    clean_mime,
    folder_name,
)
from playhead.config.outputs.record import (
    BrokenRecordError,
    Label,
    Problem,
    SavedOutput,
    check_tags,
    check_time,
    dump,
    load,
)
from playhead.config.outputs.writer import OutputWriter
from playhead.errors import UsageError
from playhead.limits import DEFAULT_LIMITS, Limits


def default_output_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The user's data folder for outputs: `$XDG_DATA_HOME/playhead/outputs`, else under `~/.local/share`.
    `environment` is this process's by default.

    A relative `XDG_DATA_HOME` is ignored, as the XDG base directory specification says.
    """
    data = Path((os.environ if environment is None else environment).get("XDG_DATA_HOME", ""))
    if not data.is_absolute():
        data = Path("~/.local/share").expanduser()
    return data / "playhead" / "outputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What was found, newest first, and what is in the folder but cannot be understood."""

    outputs: tuple[SavedOutput, ...]
    problems: tuple[Problem, ...] = ()


class OutputStore:
    """Saved results under `folder`, which is made when the first one comes, for the user alone.

    Any number of stores, threads and processes may use one folder at once. Every method blocks on the disk:
    call it in a thread. All of them raise `SavingError` where the disk refuses (`DiskFullError` where it is
    full); nothing half stays behind.
    """

    def __init__(self, folder: str | Path, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.folder = Path(folder)
        self.limits = limits
        self._swept = False

    # --- saving ----------------------------------------------------------------------------------------

    def save(
        self,
        tool_id: str,
        arguments: Mapping[str, object] | None,
        data: bytes | str,
        *,
        mime_type: str | None = None,
        tags: Iterable[str] = (),
        title: str | None = None,
        metadata: Mapping[str, object] | None = None,
        time: datetime | None = None,
    ) -> SavedOutput:
        """Keep `data` (text becomes UTF-8) and a record of the call, whose `time` is now by default.

        The same content is kept once however often it is saved; each call has its record. `mime_type`
        decides the suffix (default: plain text for a `str`, else by the first bytes). Raises `UsageError`
        for arguments, metadata or tags that cannot be recorded, `LimitError` past `Limits.saved_bytes`.
        """
        if isinstance(data, str):
            mime_type = clean_mime(mime_type, default=TEXT)
            # A lone surrogate is no UTF-8; it stays visible.
            data = data.encode("utf-8", "backslashreplace")
        with self.open_writer(
            tool_id,
            arguments,
            mime_type=mime_type,
            tags=tags,
            title=title,
            metadata=metadata,
            time=time,
        ) as writer:
            writer.write_at(0, data)
            return writer.commit()

    def save_base64(
        self,
        tool_id: str,
        arguments: Mapping[str, object] | None,
        text: str,
        *,
        mime_type: str | None = None,
        tags: Iterable[str] = (),
        title: str | None = None,
        metadata: Mapping[str, object] | None = None,
        time: datetime | None = None,
    ) -> SavedOutput:
        """`save` what `text` holds. Raises `LimitError` past `Limits.block_bytes`, before decoding, and
        `Base64Error`."""
        return self.save(
            tool_id,
            arguments,
            decoded(text, limits=self.limits),
            mime_type=mime_type,
            tags=tags,
            title=title,
            metadata=metadata,
            time=time,
        )

    def open_writer(
        self,
        tool_id: str,
        arguments: Mapping[str, object] | None,
        *,
        mime_type: str | None = None,
        tags: Iterable[str] = (),
        title: str | None = None,
        metadata: Mapping[str, object] | None = None,
        time: datetime | None = None,
    ) -> OutputWriter:
        """For bytes that come little by little; see `save` for the rest. `commit` or `discard` it."""
        label = Label(
            tool_id=tool_id,
            arguments=arguments,
            time=check_time(time or datetime.now(UTC)),
            mime=clean_mime(mime_type, default=ANY_BYTES),
            tags=check_tags(tags),
            title=title,
            metadata=metadata,
        )
        # What cannot be recorded is said now, not after the last byte.
        dump(label, file="0" * 73, sha256="0" * 64, size_bytes=1 << 40, limit_bytes=self.limits.record_bytes)
        name = folder_name(tool_id)
        with saving(self.folder / name):
            folder = ToolFolder(self.folder, name, create=True)
            try:
                self._sweep_once()
                return OutputWriter(folder, label, limits=self.limits)
            except BaseException:  # cancelled too: no folder stays open
                folder.close()
                raise

    def _sweep_once(self) -> None:
        """Remove what writers that died left behind, the first time that this store writes."""
        if self._swept:
            return
        self._swept = True
        for name in self._tool_folders()[0]:
            with suppress(OSError), ToolFolder(self.folder, name, create=False) as folder:
                folder.sweep()

    # --- finding ---------------------------------------------------------------------------------------

    def list(self) -> Listing:
        """Everything, newest first. A folder that does not exist yet is empty."""
        return self.find()

    def find(self, *, tag: str | None = None, tool_id: str | None = None, text: str | None = None) -> Listing:
        """What has the tag, comes from the tool, and names `text` (any case) in its title, tool or arguments.

        A record that is broken, or whose file is gone, is told as a problem and skipped.
        """
        wanted = None if tool_id is None else folder_name(tool_id)
        outputs = []
        names, links = self._tool_folders()
        problems = [Problem(path=self.folder / name, reason="a link, not followed") for name in links]
        for name in names:
            if wanted is not None and name != wanted:
                continue
            for found in self._records(name):
                if isinstance(found, Problem):
                    problems.append(found)
                elif (
                    (tag is None or tag in found.tags)
                    and (tool_id is None or found.tool_id == tool_id)
                    and (text is None or _names(found, text.casefold()))
                ):
                    outputs.append(found)
        outputs.sort(key=lambda output: (output.time, output.id), reverse=True)
        return Listing(outputs=tuple(outputs), problems=tuple(problems))

    def _tool_folders(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of folders, and of links in their place."""
        with saving(self.folder):
            try:
                found = [entry for entry in os.scandir(self.folder) if TOOL_FOLDER.fullmatch(entry.name)]
            except FileNotFoundError:
                return (), ()
        folders = (entry.name for entry in found if entry.is_dir(follow_symlinks=False))
        links = (entry.name for entry in found if entry.is_symlink())
        return tuple(sorted(folders)), tuple(sorted(links))

    def _records(self, name: str) -> Iterator[SavedOutput | Problem]:
        try:
            folder = ToolFolder(self.folder, name, create=False)
        except OSError as error:
            yield Problem(path=self.folder / name, reason=error.strerror or str(error))
            return
        with folder:
            for file in folder.names():
                if file.endswith(RECORD_SUFFIX) and RECORD_ID.fullmatch(file.removesuffix(RECORD_SUFFIX)):
                    with suppress(FileNotFoundError):  # removed meanwhile
                        yield self._record(folder, file)

    def _record(self, folder: ToolFolder, file: str) -> SavedOutput | Problem:
        path = folder.path / file
        try:
            text = folder.read(file, self.limits.record_bytes)
            if text is None:
                return Problem(path=path, reason="no file, or too long (Limits.record_bytes)")
            output = load(text, id=file.removesuffix(RECORD_SUFFIX), sidecar_path=path)
            size = folder.size_of(output.path.name)
        except FileNotFoundError:
            raise
        except OSError as error:
            return Problem(path=path, reason=error.strerror or str(error))
        except BrokenRecordError as error:
            return Problem(path=path, reason=str(error))
        if folder_name(output.tool_id) != folder.path.name:
            return Problem(path=path, reason="it is another tool's record, moved here")
        if size != output.size_bytes:
            came = "gone" if size is None else f"{size} bytes long"
            return Problem(path=path, reason=f"its file {output.path.name} is {came}")
        return output

    # --- removing --------------------------------------------------------------------------------------

    def remove(self, output: SavedOutput) -> None:
        """Remove a record, and its file where no other record speaks of it. Removed already: does nothing.

        Where the folder holds a record that cannot be read, the file stays: it may be that one's.
        """
        if not RECORD_ID.fullmatch(output.id):
            raise UsageError(f"expected an output of this store, came the id {output.id!r}")
        name = folder_name(output.tool_id)
        with saving(self.folder / name):
            try:
                folder = ToolFolder(self.folder, name, create=False)
            except FileNotFoundError:
                return
            with folder, folder.alone():
                folder.remove(output.id + RECORD_SUFFIX)
                if not any(
                    isinstance(other, Problem) or other.path.name == output.path.name
                    for other in self._records(name)
                ):
                    folder.remove(output.path.name)


def _names(output: SavedOutput, text: str) -> bool:
    arguments = json.dumps(output.arguments, ensure_ascii=False) if output.arguments else ""
    return any(text in part.casefold() for part in (output.title or "", output.tool_id, arguments))
