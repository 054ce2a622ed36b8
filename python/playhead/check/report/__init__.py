"""Write the report of `playhead check` as JSON, Markdown, HTML or JUnit XML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from playhead.check.report.for_programs import to_json, to_junit
from playhead.check.results import Report
from playhead.errors import SavingError, UsageError
from playhead.extras import require_extra
from playhead.stream.saving import is_device, partial_beside

__all__ = [
    "check_path",
    "check_writable",
    "to_html",
    "to_json",
    "to_junit",
    "to_markdown",
    "write_report",
    "write_text",
]


def to_html(report: Report) -> str:
    """Format the report as one self-contained HTML page. Raises `UsageError` without the extra `check`."""
    require_extra("check", "HTML reports")
    from playhead.check.report.html import render

    return render(report)


def to_markdown(report: Report) -> str:
    """Format the report as GitHub-flavoured Markdown. Raises `UsageError` without the extra `check`."""
    require_extra("check", "Markdown reports")
    from playhead.check.report.markdown import render

    return render(report)


_FORMATS: Final[Mapping[str, Callable[[Report], str]]] = {
    ".json": to_json,
    ".md": to_markdown,
    ".html": to_html,
    ".xml": to_junit,
}


def check_path(path: Path) -> None:
    """Check that a report can be written to `path`. Call it before the check, which takes long.

    Raises `UsageError` for a suffix other than .json, .md, .html and .xml, for a missing extra, for a missing
    directory, and for a path that is a directory.
    """
    _format_of(path)
    if path.suffix.lower() in (".html", ".md"):
        require_extra("check", "HTML and Markdown reports")
    check_writable(path, what="report")


def check_writable(path: Path, *, what: str) -> None:
    """Check that a file can be written to `path`. Raises `UsageError`, in which `what` names the file."""
    if is_device(path):
        return
    if not path.parent.is_dir():
        raise UsageError(f"{what} {path}: {path.parent} is not a directory; create it first")
    partial = partial_beside(path)
    try:
        partial.touch(exist_ok=False)
        partial.unlink()
    except OSError as error:
        raise UsageError(
            f"{what} {path}: can't write to {path.parent} ({error.strerror}); name another directory"
        ) from error


def write_report(report: Report, path: Path) -> None:
    """Write `report` in the format of the suffix of `path`: .json, .md, .html, or .xml (JUnit).

    The file appears, or replaces an old one, when it is complete. Blocks on the disk. Raises `UsageError` as
    `check_path` does, and `SavingError` if writing fails: no partial file is left, and an old file is
    unchanged.
    """
    check_path(path)
    write_text(_format_of(path)(report), path, what="report")


def write_text(text: str, path: Path, *, what: str) -> None:
    """Write `text` to the file at `path`, which appears when it is complete. Blocks. Raises `SavingError`."""
    data = text.encode("utf-8", "backslashreplace")
    if is_device(path):
        path.write_bytes(data)
        return
    partial = partial_beside(path)
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except BaseException as error:  # also after an interrupt, no partial file may be left
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise SavingError(
                f"{what} {path}: could not be written ({error.strerror or error}); free some space, or give "
                "another name",
                path=str(path),
            ) from error
        raise


def _format_of(path: Path) -> Callable[[Report], str]:
    to_text = _FORMATS.get(path.suffix.lower())
    if to_text is None:
        raise UsageError(
            f"report {path}: expected a name ending in .json, .md, .html or .xml (JUnit), which "
            f"selects the format, got {repr(path.suffix) if path.suffix else 'none'}"
        )
    return to_text
