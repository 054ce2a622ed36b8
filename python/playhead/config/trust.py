"""Consent to the configuration files of the current directory.

To run `playhead` inside a cloned repository must not run the repository's code, start its servers or send it
the user's keys. So playhead uses `./mcp.json` and `./playhead-tools.toml` only after a person has read what
they would do, and has agreed. It stores the decision with the file's path and one hash over the names and
contents of every file below the directory that Python or a command could load. A change, such as a `git
pull`, requires consent again. Files in the user's configuration directory, and files named by an option, need
no consent.

The hash leaves out files that are large or change by themselves: `.git`, `.venv` and `node_modules`, unless
the configuration file names something in one; audio and images that it does not name; and bytecode in
`__pycache__` that Python checks against its source.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from playhead.config.directories import user_directory
from playhead.config.document import VARIABLE, parse_document, read_document, read_file, strings_in
from playhead.errors import ConfigError
from playhead.limits import MIB

T = TypeVar("T", dict[Any, Any], list[Any])
SERVERS_FILES: Final = ("mcp.json",)
TOOL_FILES: Final = ("playhead-tools.toml", "playhead-tools.json")
_STORE: Final = "trust.json"
_TREE_KEY: Final = "./"
"""The key of the hash. A decision of an earlier version, with one hash per file, does not count."""
MOST_FILES: Final = 2_000
MOST_BYTES: Final = 64 * MIB
_LARGE_DIRECTORIES: Final = frozenset({".git", ".venv", "node_modules"})
_MEDIA_SUFFIXES: Final = frozenset(
    ".aac .flac .gif .jpeg .jpg .m4a .mp3 .oga .ogg .opus .png .wav .webp".split()  # noqa: SIM905 - one line
)
_TOOL_EFFECTS: Final = {
    "response_handler": "run",
    "description": "set description",
    "system_prompt": "set system_prompt",
}
_BETWEEN_NAMES: Final = re.compile(r"[\s=:,;/\"']+")
"""Separates the names in a command: `--script=src/run.py`, `handler.py:summarise`."""


class UntrustedError(ConfigError):
    """A file of the current directory that is not accepted yet; `file.effects` lists what it would do."""

    def __init__(self, file: ProjectFile) -> None:
        option = "--config" if file.path.name in SERVERS_FILES else "--tool-config"
        directory = shlex.quote(str(file.path.parent))
        super().__init__(
            f"{file.path}: this directory is not trusted; read the file, then run"
            f" `playhead trust {directory}`, or add --trust or {option} FILE"
        )
        self.file = file


@dataclass(frozen=True)
class ProjectFile:
    """A configuration file of a directory, read once, so that the same bytes are shown, hashed and used."""

    path: Path
    data: bytes = field(repr=False)

    @cached_property
    def values(self) -> object:
        """Its content. Raises `ConfigError`."""
        return parse_document(self.data, self.path)

    @cached_property
    def variables(self) -> frozenset[str]:
        """The environment variables that it names; no others are expanded in it."""
        return frozenset(name for text in strings_in(self.values) for name in VARIABLE.findall(text))

    @cached_property
    def effects(self) -> tuple[tuple[str, str], ...]:
        """Its effects as pairs of a verb and an object, for the person who decides."""
        effects = [*_server_effects(self.values), *_tool_effects(self.values)]
        if self.path.name in SERVERS_FILES and self.variables:
            effects.append(("read", f"environment variables {', '.join(sorted(self.variables))}"))
        return tuple(effects)

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 over the files below the directory (see the header of this module).

        Raises `ConfigError` if a part of it cannot be read, or if it exceeds `MOST_FILES` or `MOST_BYTES`.
        """
        names = {name for text in strings_in(self.values) for name in _BETWEEN_NAMES.split(text)}
        directory, tree = self.path.parent, hashlib.sha256()
        files = size_bytes = 0
        try:
            for path in _paths_to_hash(directory, names):
                is_file = path.is_file()
                files += 1
                size_bytes += path.stat().st_size if is_file else 0
                if files > MOST_FILES or size_bytes > MOST_BYTES:
                    raise ConfigError(
                        f"{directory}: expected at most {MOST_FILES:,} files and {MOST_BYTES // MIB} MiB"
                        " below a directory to trust, got more; use --trust for one command, or name the file"
                        " by an option"
                    )
                content = self.data if path == self.path else _content_of(path)
                name = os.fsencode(path.relative_to(directory))
                tree.update(hashlib.sha256(name).digest() + hashlib.sha256(content).digest())
        except OSError as error:
            _raise_unreadable(error)
        return tree.hexdigest()


def project_files(names: Sequence[str], directory: Path = Path()) -> tuple[ProjectFile, ...]:
    """Read those files of `directory` (default: the current one) that exist. Raises `ConfigError`."""
    paths = (directory.resolve() / name for name in names)
    return tuple(
        ProjectFile(path=path, data=read_file(path, advice="it was there a moment ago"))
        for path in paths
        if path.is_file()
    )


@dataclass(kw_only=True)
class Trust:
    """Decisions about the files of the current directory, made in this run or stored by an earlier one."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    everything: bool = False
    """True to use every file during this run (`--trust`)."""
    notice: Callable[[str], None] = lambda _: None
    """It is called with a line about each file that is not used."""
    _answers: dict[Path, bool] = field(default_factory=dict, init=False)
    _notices: set[str] = field(default_factory=set, init=False)

    def say(self, text: str) -> None:
        """Pass a line to `notice`, unless it was passed before."""
        if text not in self._notices:
            self._notices.add(text)
            self.notice(text)

    def project_file(self, names: Sequence[str]) -> ProjectFile | None:
        """Read the file in the current directory that has one of `names`, if any. Returns None in the user's
        own configuration directory.

        Raises `ConfigError` if there are several, because only one would be used.
        """
        if Path().resolve() == user_directory(self.environment).resolve():
            return None
        files = project_files(names)
        if len(files) > 1:
            raise ConfigError(f"{files[0].path}: {files[1].path.name} exists too; keep one of them")
        return files[0] if files else None

    def accepts(self, file: ProjectFile) -> bool:
        """Return True if `file` may be used.

        Raises `UntrustedError` if nobody has decided yet, and `ConfigError` for an invalid file or store.
        """
        if self.everything:
            return True
        if file.path in self._answers:
            return self._answers[file.path]
        files = {_TREE_KEY: file.fingerprint}  # raises for a too large directory, before a person is asked
        answer = _member_of(self._stored_answers(), str(file.path), dict)
        if answer.get("files") != files:
            raise UntrustedError(file)
        accepted = answer.get("accepted") is True
        if not accepted:
            self.say(f"{file.path} is not used, as you decided; `playhead trust` changes that")
        self._answers[file.path] = accepted
        return accepted

    def remember(self, file: ProjectFile, *, accepted: bool) -> None:
        """Store the decision for later runs. Raises `OSError`; for this run it applies even then."""
        self._answers[file.path] = accepted
        answer = {"accepted": accepted, "files": {_TREE_KEY: file.fingerprint}}
        answers = self._stored_answers() | {str(file.path): answer}
        text = json.dumps({"answers": answers}, indent=1, ensure_ascii=False)
        directory = user_directory(self.environment)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=directory, delete=False, encoding="utf-8") as partial:
            try:
                partial.write(text)
                partial.close()
                Path(partial.name).replace(directory / _STORE)
            except BaseException:  # on cancellation too: leave no partial file
                Path(partial.name).unlink()
                raise

    def _stored_answers(self) -> dict[str, Any]:
        path = user_directory(self.environment) / _STORE
        if not path.is_file():
            return {}
        return _member_of(read_document(path, advice="it was there a moment ago"), "answers", dict)


def _paths_to_hash(directory: Path, names: set[str]) -> Iterator[Path]:
    """Yield all links and the files that could be run, sorted; `names` are the words in the configuration."""
    skipped = _LARGE_DIRECTORIES - names
    for base, directories, files in os.walk(directory, onerror=_raise_unreadable):
        directories[:] = sorted(set(directories) - skipped)
        for name in sorted([*files, *directories]):
            path = Path(base, name)
            if path.is_symlink() or (path.is_file() and (name in names or not _cannot_run(path))):
                yield path


def _content_of(path: Path) -> bytes:
    """Return the content of a file; for a link, its target and the content there."""
    target = os.fsencode(path.readlink()) if path.is_symlink() else b""
    return target + path.read_bytes() if path.is_file() else target


def _cannot_run(path: Path) -> bool:
    """Return True for media, and for bytecode that Python checks against its source."""
    if path.parent.name == "__pycache__" and path.suffix == ".pyc":
        with path.open("rb") as file:
            return file.read(8)[4:] == bytes(4)  # PEP 552: checked by the time and size of the source
    return path.suffix.lower() in _MEDIA_SUFFIXES and not os.access(path, os.X_OK)


def _raise_unreadable(error: OSError) -> NoReturn:
    raise ConfigError(f"{error.filename}: cannot be read ({error.strerror})") from None


# --- what a file would do ------------------------------------------------------------------------------


def _member_of(values: object, key: str, kind: type[T]) -> T:
    """Return a member of a table; an empty one if it is missing, or of another kind."""
    member = values.get(key) if isinstance(values, dict) else None
    return member if isinstance(member, kind) else kind()


def _server_effects(values: object) -> Iterator[tuple[str, str]]:
    for name, entry in _member_of(values, "mcpServers", dict).items():
        if not isinstance(entry, dict):
            continue
        settings = _member_of(entry, "playhead", dict)
        if "command" in entry:
            words = [str(entry["command"]), *map(str, _member_of(entry, "args", list))]
            where = f" in {entry['cwd']}" if entry.get("cwd") else ""
            yield "start", f"{name}: {shlex.join(words)}{where}"
        else:
            yield "connect to", f"{name}: {entry.get('url')}"
        for key, what in (("env", "environment"), ("headers", "headers")):
            if names := _member_of(entry, key, dict):
                yield "pass on", f"{name}: {what} {', '.join(names)}"
        if origins := _member_of(settings, "allow_origins", list):
            yield "allow", f"{name}: links to {', '.join(map(str, origins))}"
        if paths := _member_of(settings, "allow_paths", list):
            yield "allow", f"{name}: playing files below {', '.join(map(str, paths))}"
        if cache := settings.get("cache"):
            yield "store", f"{name}: what it reads, in {cache}"
        if settings.get("trust_structured"):
            yield "allow", f"{name}: structured responses"
        if _member_of(entry, "tls", dict).get("verify") is False:
            yield "allow", f"{name}: unverified TLS"


def _tool_effects(values: object) -> Iterator[tuple[str, str]]:
    for module in _member_of(values, "modules", list):
        yield "run", f"module {module}"
    for name, entry in _member_of(values, "tools", dict).items():
        for key, verb in _TOOL_EFFECTS.items():
            if isinstance(entry, dict) and entry.get(key):
                yield verb, f"{name}: {entry[key]}"
    if approvals := _member_of(values, "approvals", dict):
        yield "set approvals", f"{json.dumps(approvals, ensure_ascii=False)} (yours stay in force)"
