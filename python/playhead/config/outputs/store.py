"""`OutputStore`: save, find and remove results in a directory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

from playhead._core import decode_base64
from playhead.config.directories import data_directory
from playhead.config.outputs.record import (
    ANY_BYTES,
    RECORD_ID,
    RECORD_SUFFIX,
    TOOL_FOLDER,
    BrokenRecordError,
    Label,
    Problem,
    SavedOutput,
    check_tags,
    check_time,
    clean_mime,
    dump,
    folder_name,
    load,
)
from playhead.config.outputs.writer import OutputWriter, ToolFolder, saving
from playhead.content.blocks import UnknownBlock
from playhead.content.formats import Base64Text, decoded_bytes
from playhead.errors import LimitError, UsageError
from playhead.limits import DEFAULT_LIMITS, MIB, Limits

if TYPE_CHECKING:
    from playhead.content.types import TypedContent

TEXT: Final = "text/plain"
JSON: Final = "application/json"
JSON_CHARS: Final = 4 * MIB
"""Longest text to parse as JSON: `[],[],…` takes 23 times its size as Python lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Arguments of `OutputStore.save`."""

    data: bytes | str = field(repr=False)
    mime_type: str
    title: str | None = None


def content_of(content: TypedContent | UnknownBlock, *, limits: Limits = DEFAULT_LIMITS) -> Content | None:
    """Return the bytes of a block; None for an unknown block or a link, which is read, or teed while playing.

    Text that is a JSON object or list, of at most `JSON_CHARS` (4 Mi), is saved as JSON. Raises
    `LimitError` before decoding more than `Limits.block_bytes`, `Base64Error` for invalid base64.
    """
    from mcp_types import (  # loaded with typed content, and not by a stream that is saved
        AudioContent,
        BlobResourceContents,
        EmbeddedResource,
        ImageContent,
        ResourceLink,
        TextContent,
        TextResourceContents,
    )

    from playhead.content.types import FileContent

    match content:
        case TextContent(text=text):
            return Content(data=text, mime_type=JSON if _is_json(text) else TEXT)
        case ImageContent(data=data, mime_type=mime_type) | AudioContent(data=data, mime_type=mime_type):
            return Content(data=decoded(data, limits=limits), mime_type=mime_type)
        case EmbeddedResource(resource=TextResourceContents() as inner):
            return Content(data=inner.text, mime_type=inner.mime_type or TEXT, title=inner.uri)
        case EmbeddedResource(resource=BlobResourceContents() as inner):
            return Content(
                data=decoded(inner.blob, limits=limits), mime_type=inner.mime_type or "", title=inner.uri
            )
        case EmbeddedResource() | ResourceLink() | FileContent() | UnknownBlock():
            return None
        case _:
            assert_never(content)


def decoded(text: Base64Text, *, limits: Limits) -> bytes:
    """Decode strict base64 after checking its size. Raises like `content_of`."""
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
    """The outputs found, newest first, and the files in the directory that cannot be read."""

    outputs: tuple[SavedOutput, ...]
    problems: tuple[Problem, ...] = ()


class OutputStore:
    """Saved results under `folder`, which is created on the first save, accessible only to the user.

    Any number of stores, threads and processes may share one directory. Every method blocks on the disk: call
    it in a thread. All of them raise `SavingError` if the disk fails (`DiskFullError` if it is full), and
    leave no partial files.
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
        """Save `data` (text as UTF-8) and a record of the call, whose `time` is now by default.

        Identical content is stored once; each call has its own record. `mime_type`
        decides the suffix (default: plain text for a `str`, else by the first bytes). Raises `UsageError`
        for arguments, metadata or tags that cannot be recorded, `LimitError` past `Limits.saved_bytes`.
        """
        if isinstance(data, str):
            mime_type = clean_mime(mime_type, default=TEXT)
            # UTF-8 cannot encode lone surrogates; they stay visible as escapes.
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
        text: Base64Text,
        *,
        mime_type: str | None = None,
        tags: Iterable[str] = (),
        title: str | None = None,
        metadata: Mapping[str, object] | None = None,
        time: datetime | None = None,
    ) -> SavedOutput:
        """Decode and `save` base64. Raises `LimitError` past `Limits.block_bytes`, before decoding, and
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
        """Open a writer for incremental data; `commit` or `discard` it. Arguments are those of `save`."""
        label = Label(
            tool_id=tool_id,
            arguments=arguments,
            time=check_time(time or datetime.now(UTC)),
            mime=clean_mime(mime_type, default=ANY_BYTES),
            tags=check_tags(tags),
            title=title,
            metadata=metadata,
        )
        # Reject unrecordable values now, not after the last byte.
        dump(label, file="0" * 73, sha256="0" * 64, size_bytes=1 << 40, limit_bytes=self.limits.record_bytes)
        name = folder_name(tool_id)
        with saving(self.folder / name):
            folder = ToolFolder(self.folder, name, create=True)
            try:
                self._sweep_once()
                return OutputWriter(folder, label, limits=self.limits)
            except BaseException:  # also on cancellation: close the directory
                folder.close()
                raise

    def _sweep_once(self) -> None:
        """Remove partial files of dead writers, on the first write of this store."""
        if self._swept:
            return
        self._swept = True
        for name in self._tool_folders()[0]:
            with suppress(OSError), ToolFolder(self.folder, name, create=False) as folder:
                folder.sweep()

    # --- finding ---------------------------------------------------------------------------------------

    def list(self) -> Listing:
        """List all outputs, newest first; empty if the directory does not exist."""
        return self.find()

    def find(self, *, tag: str | None = None, tool_id: str | None = None, text: str | None = None) -> Listing:
        """Find outputs with this tag, from this tool, or with `text` (any case) in title, tool or arguments.

        An invalid record, or one whose file is missing, is skipped and reported as a problem.
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
        """Return the names of tool directories, and of symbolic links in place of one."""
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
        """Remove a record, and its file if no other record refers to it. Idempotent.

        The file stays if the directory contains an unreadable record, which may refer to it.
        """
        if not RECORD_ID.fullmatch(output.id):
            raise UsageError(f"expected an output of this store, got the id {output.id!r}")
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
