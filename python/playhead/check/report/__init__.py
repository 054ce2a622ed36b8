"""What `playhead check` writes: the same report as JSON, Markdown, HTML and JUnit XML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from playhead.check.report.html import to_html
from playhead.check.report.json import to_json
from playhead.check.report.junit import to_junit
from playhead.check.report.markdown import to_markdown
from playhead.check.results import Report
from playhead.errors import SavingError, UsageError
from playhead.stream.saving import is_device, partial_beside

__all__ = ["check_path", "to_html", "to_json", "to_junit", "to_markdown", "write_report"]

_FORMATS: Final[Mapping[str, Callable[[Report], str]]] = {
    ".json": to_json,
    ".md": to_markdown,
    ".html": to_html,
    ".xml": to_junit,
}


def check_path(path: Path) -> None:
    """Look whether a report can be written to `path`, before the time of a check is spent.

    Raises `UsageError` for another suffix than .json, .md, .html and .xml, for a folder that isn't there, and
    for a name that a file can't have because a folder has it.
    """
    _format_of(path)
    is_device(path)
    if not path.parent.is_dir():
        raise UsageError(
            f"report {path}: expected a folder to write into, and {path.parent} is none: make it first"
        )
    partial = partial_beside(path)
    try:
        partial.touch(exist_ok=False)
        partial.unlink()
    except OSError as error:
        raise UsageError(
            f"report {path}: can't write in {path.parent} ({error.strerror}): name another folder"
        ) from error


def write_report(report: Report, path: Path) -> None:
    """Write `report` in the format of `path`'s suffix: .json, .md, .html, or .xml (JUnit).

    The file appears, or takes the old one's place, when it is whole. Blocks for as long as the disk takes.
    Raises `UsageError` for what `check_path` refuses, and `SavingError` where the disk does not take it: then
    nothing half stays behind, and an old file stays as it was.
    """
    check_path(path)
    data = _format_of(path)(report).encode("utf-8", "backslashreplace")
    partial = partial_beside(path)
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except BaseException as error:  # an interrupt too: whatever ends this leaves no file behind
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise SavingError(
                f"report {path}: could not be written ({error.strerror or error}): free some room, or give "
                "another name",
                path=str(path),
            ) from error
        raise


def _format_of(path: Path) -> Callable[[Report], str]:
    found = _FORMATS.get(path.suffix.lower())
    if found is None:
        raise UsageError(
            f"report {path}: expected a name that ends in .json, .md, .html or .xml (JUnit), which "
            f"chooses the format, got {repr(path.suffix) if path.suffix else 'none'}"
        )
    return found
