"""The footprint of a check: the files and resources that it added, changed or deleted on the server."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from playhead.check.target import Target
from playhead.config.servers import ServerConfig
from playhead.errors import PlayheadError

_MOST_ENTRIES: Final = 20_000
"""Limits the entries in all watched directories together. A directory beyond it is not reported, because a
partial count would be a guess."""
_DEPTH: Final = 8
_SHALLOW: Final = 1
"""Limits the levels watched below the working directory, which may not be the server's own."""
_SHOWN_NAMES: Final = 3

Entry = tuple[int, int]
"""The size in bytes, and the time of the last change in nanoseconds. Both are 0 for a directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The files and resources of a server at one moment, to find what a check changed."""

    entries: Mapping[str, Mapping[str, Entry]]
    """The entries of each watched directory, by their relative paths."""
    resources: frozenset[str] = frozenset()
    """The URIs of the listed resources."""


def footprint(server: object) -> Footprint:
    """Record the entries of the directories that a server's command and environment name, and of its working
    directory. Empty for a server that is not a process. Blocks for some milliseconds."""
    if not isinstance(server, ServerConfig) or server.command is None:
        return Footprint(entries={})
    places: dict[str, int] = {}
    for word in (*server.command[1:], *(server.env or {}).values()):
        place = word.partition("=")[2] if word.startswith("-") and "=" in word else word
        if (directory := _directory(place, server.cwd)) is not None:
            places[directory] = _DEPTH
    places.setdefault(os.path.realpath(server.cwd or os.curdir), _SHALLOW)
    entries: dict[str, Mapping[str, Entry]] = {}
    left = _MOST_ENTRIES
    for place, depth in sorted(places.items()):  # a directory comes before those below it
        if any(Path(place).is_relative_to(other) for other in entries if places[other] == _DEPTH):
            continue
        inside = dict(islice(_walk(Path(place), "", depth), left + 1))
        if len(inside) <= left:
            left -= len(inside)
            entries[place] = inside
    return Footprint(entries=entries)


def _directory(word: str, cwd: str | None) -> str | None:
    """Return the directory that an argument names, or the directory of the data file that it names."""
    if not word or "\n" in word or "://" in word:
        return None
    path = Path(cwd or os.curdir, word)
    try:
        if path.is_dir():
            return os.path.realpath(path)
        # A file of code shows where a server was installed, not where it works.
        if (
            os.sep in word
            and path.suffix not in _CODE
            and path.parent.is_dir()
            and not os.access(path, os.X_OK)
        ):
            return os.path.realpath(path.parent)
    except (OSError, ValueError):
        pass
    return None


_CODE: Final = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".jar", ".rb", ".php", ".sh", ".exe"})


def _walk(place: Path, inner: str, depth: int) -> Iterator[tuple[str, Entry]]:
    try:
        with os.scandir(place / inner) as entries:
            items = sorted(entries, key=lambda item: item.name)
    except OSError:
        return
    for item in items:
        path = f"{inner}/{item.name}" if inner else item.name
        try:
            status = item.stat(follow_symlinks=False)
        except OSError:
            continue
        is_directory = stat.S_ISDIR(status.st_mode)
        yield path, (0, 0) if is_directory else (status.st_size, status.st_mtime_ns)
        if is_directory and depth > 1:
            yield from _walk(place, path, depth - 1)


def changes(before: Footprint, after: Footprint) -> list[str]:
    """Return what changed between two footprints, one sentence per place."""
    sentences = []
    for place, old in before.entries.items():
        now = after.entries.get(place)
        if now is None:
            continue
        added = [path for path in now if path not in old]
        gone = [path for path in old if path not in now]
        other = [path for path in now if path in old and now[path] != old[path]]
        parts = [
            f"{len(paths)} {word} {'entry' if len(paths) == 1 else 'entries'} ({_names(paths)})"
            for word, paths in (("new", added), ("changed", other), ("deleted", gone))
            if paths
        ]
        if parts:
            sentences.append(f"the check left the server changed: {', '.join(parts)} under {place}")
    if added_resources := sorted(after.resources - before.resources):
        count = len(added_resources)
        word = "resource" if count == 1 else "resources"
        sentences.append(f"the check left the server changed: {count} new {word} ({_names(added_resources)})")
    return sentences


def changed_paths(before: Footprint, after: Footprint) -> list[str]:
    """Return the relative paths of the new and changed entries."""
    return [
        path
        for place, old in before.entries.items()
        for path, entry in after.entries.get(place, {}).items()
        if old.get(path) != entry
    ]


def _names(paths: Sequence[str]) -> str:
    more = f", and {len(paths) - _SHOWN_NAMES} more" if len(paths) > _SHOWN_NAMES else ""
    return ", ".join(path[:60] for path in paths[:_SHOWN_NAMES]) + more


async def listed_resources(target: Target) -> frozenset[str]:
    """Return the URIs of all listed resources; none if the server doesn't list any."""
    if target.session.capabilities.resources is None:
        return frozenset()
    try:
        return frozenset(str(item.uri) for item in await target.session.list_resources())
    except PlayheadError:
        return frozenset()
