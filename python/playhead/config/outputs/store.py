"""`OutputStore`: save, find and remove results in a directory."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from playhead._core import decode_base64
from playhead.config.directories import data_directory
from playhead.config.outputs.record import (
    RECORD,
    RECORD_ID,
    RECORD_SUFFIX,
    TOOL_FOLDER,
    BrokenRecordError,
    Problem,
    SavedOutput,
    check_tags,
    check_time,
    clean_mime,
    dump,
    folder_name,
    load,
)
from playhead.config.outputs.writer import OutputWriter, hidden_name, saving
from playhead.content.blocks import UnknownBlock
from playhead.content.formats import Base64Text, decoded_bytes
from playhead.errors import LimitError, UsageError
from playhead.limits import DEFAULT_LIMITS, MIB, Limits
from playhead.results.kinds import view_of

if TYPE_CHECKING:
    from playhead.content.types import TypedContent

TEXT: Final = "text/plain"
JSON: Final = "application/json"
JSON_CHARS: Final = 4 * MIB
"""Limits the text to parse as JSON, because `[],[],…` takes 23 times its size as Python lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Arguments of `OutputStore.save`."""

    data: bytes | str = field(repr=False)
    mime_type: str
    title: str | None = None


def content_of(content: TypedContent | UnknownBlock, *, limits: Limits = DEFAULT_LIMITS) -> Content | None:
    """Return the bytes of a block. None for an unknown block, and for a link, which has to be read first.

    A JSON object or list in text of at most `JSON_CHARS` (4 Mi) has the MIME type of JSON. Raises
    `LimitError` for more than `Limits.block_bytes`, before decoding, and `Base64Error` for invalid base64.
    """
    if isinstance(content, UnknownBlock):
        return None
    view = view_of(content.model_dump(by_alias=True, exclude_none=True))
    if view.kind == "text":
        default = JSON if view.uri is None and _is_json(view.text) else TEXT
        return Content(data=view.text, mime_type=view.mime_type or default, title=view.uri)
    if view.data is None:
        return None
    return Content(data=decoded(view.data, limits=limits), mime_type=view.mime_type or "", title=view.uri)


def decoded(text: Base64Text, *, limits: Limits) -> bytes:
    """Check the size of base64, and decode it strictly. Raises like `content_of`."""
    size = decoded_bytes(text)
    if size > limits.block_bytes:
        raise LimitError(
            f"an output of {size} bytes in one block; {limits.block_bytes} are allowed (Limits.block_bytes)",
            limit="block_bytes",
            allowed=limits.block_bytes,
            got=size,
        )
    return decode_base64(text)


def _is_json(text: str) -> bool:
    if len(text) > JSON_CHARS or not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def default_output_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the user's output directory: `$XDG_DATA_HOME/playhead/outputs`, else under `~/.local/share`.

    `environment` is this process's by default.
    """
    return data_directory(os.environ if environment is None else environment) / "outputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A list of outputs, newest first, and the files of the directory that cannot be read."""

    outputs: tuple[SavedOutput, ...]
    problems: tuple[Problem, ...] = ()


class OutputSettings(TypedDict, total=False):
    """The optional settings of an output to save."""

    mime_type: str | None
    """Decides the suffix; by default plain text for a `str`, else by the first bytes."""
    tags: Iterable[str]
    title: str | None
    metadata: Mapping[str, object] | None
    """Values from the tool configuration."""
    time: datetime | None
    """The time of the call; now by default."""


class OutputStore:
    """Saved results under `folder`, which the first save creates for this user only.

    Any number of stores, threads and processes may share one directory. Every method blocks on the disk: call
    it in a thread. All of them raise `SavingError` if the disk fails (`DiskFullError` if it is full), and
    leave no partial files. Only a killed process leaves a hidden `.part` file.
    """

    def __init__(self, folder: str | Path, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.folder = Path(folder)
        self.limits = limits

    # --- saving ----------------------------------------------------------------------------------------

    def save(
        self,
        tool_id: str,
        arguments: Mapping[str, object] | None,
        data: bytes | str,
        **settings: Unpack[OutputSettings],
    ) -> SavedOutput:
        """Save `data` (text as UTF-8) and a record of the call, with the `settings` of `OutputSettings`.

        Identical content is stored once; each call has its own record. Raises `UsageError` for arguments,
        metadata or tags that cannot be recorded, `LimitError` past `Limits.saved_bytes`.
        """
        if isinstance(data, str):
            settings["mime_type"] = clean_mime(settings.get("mime_type"), default=TEXT)
            # UTF-8 cannot encode lone surrogates; they stay visible as escapes.
            data = data.encode("utf-8", "backslashreplace")
        with self.open_writer(tool_id, arguments, **settings) as writer:
            writer.write_at(0, data)
            return writer.commit()

    def save_base64(
        self,
        tool_id: str,
        arguments: Mapping[str, object] | None,
        text: Base64Text,
        **settings: Unpack[OutputSettings],
    ) -> SavedOutput:
        """Decode and `save` base64. Raises `LimitError` past `Limits.block_bytes`, before decoding, and
        `Base64Error`."""
        return self.save(tool_id, arguments, decoded(text, limits=self.limits), **settings)

    def open_writer(
        self,
        tool_id: str,
        arguments: Mapping[str, object] | None,
        **settings: Unpack[OutputSettings],
    ) -> OutputWriter:
        """Open a writer for incremental data; `commit` or `discard` it. Arguments are those of `save`."""
        rest: dict[str, Any] = {**settings}
        time = check_time(rest.pop("time", None) or datetime.now(UTC))
        id = f"{time:%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"
        folder = self.folder / folder_name(tool_id)
        draft = SavedOutput(
            id=id,
            path=folder / ("0" * 73),
            sidecar_path=folder / (id + RECORD_SUFFIX),
            tool_id=tool_id,
            arguments=arguments,
            time=time,
            mime=clean_mime(rest.pop("mime_type", None)),
            sha256="0" * 64,
            size_bytes=self.limits.saved_bytes,
            tags=check_tags(rest.pop("tags", ())),
            **rest,  # title and metadata
        )
        # Reject values that JSON cannot represent now, not after the last byte.
        dump(draft, limit_bytes=self.limits.record_bytes)
        with saving(folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            _refuse_link(folder)
            return OutputWriter(draft, limits=self.limits)

    # --- finding ---------------------------------------------------------------------------------------

    def list(self) -> Listing:
        """List all outputs, newest first; empty if the directory does not exist."""
        return self.find()

    def find(self, *, tag: str | None = None, tool_id: str | None = None, text: str | None = None) -> Listing:
        """Find outputs with this tag, from this tool, or with `text` (any case) in title, tool or arguments.

        An invalid record, or one whose file is missing, is skipped and reported as a problem.
        """
        outputs: list[SavedOutput] = []
        problems: list[Problem] = []
        wanted_folder = None if tool_id is None else folder_name(tool_id)
        for folder in self._folders():
            if wanted_folder is not None and folder.name != wanted_folder:
                continue
            for record in self._records(folder):
                if isinstance(record, Problem):
                    problems.append(record)
                    continue
                has_tag = tag is None or tag in record.tags
                is_of_tool = tool_id is None or record.tool_id == tool_id
                if has_tag and is_of_tool and (text is None or _contains(record, text.casefold())):
                    outputs.append(record)
        outputs.sort(key=lambda output: (output.time, output.id), reverse=True)
        return Listing(outputs=tuple(outputs), problems=tuple(problems))

    def _folders(self) -> tuple[Path, ...]:
        """Return the directories of tools, and links in place of one."""
        with saving(self.folder), suppress(FileNotFoundError):
            return tuple(
                path
                for path in sorted(self.folder.iterdir())
                if TOOL_FOLDER.fullmatch(path.name) and (path.is_dir() or path.is_symlink())
            )
        return ()

    def _records(self, folder: Path) -> Iterator[SavedOutput | Problem]:
        try:
            _refuse_link(folder)
            paths = sorted(folder.iterdir())
        except OSError as error:
            yield Problem(path=folder, reason=error.strerror or str(error))
            return
        for path in paths:
            if RECORD.fullmatch(path.name):
                try:
                    yield self._record(path)
                except FileNotFoundError:
                    pass  # removed meanwhile
                except (OSError, BrokenRecordError) as error:
                    yield Problem(path=path, reason=getattr(error, "strerror", None) or str(error))

    def _record(self, path: Path) -> SavedOutput:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > self.limits.record_bytes:
            raise BrokenRecordError("not a file, or too long (Limits.record_bytes)")
        output = load(path.read_bytes(), id=path.name.removesuffix(RECORD_SUFFIX), sidecar_path=path)
        file = output.path
        if folder_name(output.tool_id) != path.parent.name:
            raise BrokenRecordError("it is another tool's record, moved here")
        if not file.is_file() or file.is_symlink():
            raise BrokenRecordError(f"its file {file.name} is missing")
        if file.stat().st_size != output.size_bytes:
            raise BrokenRecordError(f"its file {file.name} is {file.stat().st_size} bytes long")
        return output

    # --- removing --------------------------------------------------------------------------------------

    def remove(self, output: SavedOutput) -> None:
        """Remove a record, and its file if no other record refers to it. Idempotent.

        The file stays if the directory contains an unreadable record, which may refer to it.
        """
        if not RECORD_ID.fullmatch(output.id):
            raise UsageError(f"expected an output of this store, got the id {output.id!r}")
        folder = self.folder / folder_name(output.tool_id)
        file, aside = folder / output.path.name, folder / hidden_name()
        with saving(folder), suppress(FileNotFoundError):
            _refuse_link(folder)
            (folder / (output.id + RECORD_SUFFIX)).unlink(missing_ok=True)
            if not self._is_used(file):
                file.rename(aside)
                # Another program may have saved the same content meanwhile. If its record exists now, put the
                # file back. Otherwise that program will find the file missing, and will write it again.
                if self._is_used(file):
                    aside.rename(file)
                else:
                    aside.unlink()

    def _is_used(self, file: Path) -> bool:
        records = self._records(file.parent)
        return any(isinstance(record, Problem) or record.path == file for record in records)


def _contains(output: SavedOutput, text: str) -> bool:
    arguments = json.dumps(output.arguments, ensure_ascii=False) if output.arguments else ""
    return any(text in part.casefold() for part in (output.title or "", output.tool_id, arguments))


def _refuse_link(folder: Path) -> None:
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "a link, not followed")
