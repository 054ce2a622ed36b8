"""Consent to the configuration files of the current directory.

Running `playhead` inside a cloned repository must not run the repository's code, start its servers or send
it the user's keys. `./mcp.json` and `./playhead-tools.toml` are used only after a person was shown what they
would do. The decision is stored with the file's path, its content, and the content of every file of the
directory that it names or that a Python file among these imports, so that a change, such as a `git pull`,
requires consent again. (An import whose name is computed is not seen.) Files in the user's configuration
directory, and files named by an option, need no consent.
"""

from __future__ import annotations

import ast
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
from typing import Any, Final

from playhead.config.document import (
    VARIABLE,
    Table,
    parse_document,
    read_document,
    read_file,
    strings_in,
    validate,
)
from playhead.errors import ConfigError

SERVERS_FILES: Final = ("mcp.json",)
TOOL_FILES: Final = ("playhead-tools.toml", "playhead-tools.json")
_STORE: Final = "trust.json"
_WORDS: Final = re.compile(r"[\s=:,;]+")
"""Separators between a file's name and the rest: `--script=run.py`, `handler.py:summarise`."""


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
        found = [*_server_effects(self.values), *_tool_effects(self.values)]
        if self.path.name in SERVERS_FILES and self.variables:
            found.append(("read", f"environment variables {', '.join(sorted(self.variables))}"))
        return tuple(found)

    @property
    def fingerprint(self) -> dict[str, str]:
        """The SHA-256 of the file, of every file of its directory that it names, and of those that Python
        files among these import, by relative path."""
        directory = self.path.parent
        found = {self.path.name: hashlib.sha256(self.data).hexdigest()}
        by_name = _named_files(self.values, directory)
        for path in sorted(by_name | _imported_files(by_name, directory)):
            try:
                with path.open("rb") as named:
                    digest = hashlib.file_digest(named, "sha256").hexdigest()
            except OSError as error:
                raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
            found[str(path.relative_to(directory))] = digest
        return found


def user_directory(environment: Mapping[str, str]) -> Path:
    """`playhead` in the user's configuration directory (XDG base directory specification)."""
    base = Path(environment.get("XDG_CONFIG_HOME", ""))
    return (base if base.is_absolute() else Path("~/.config").expanduser()) / "playhead"


def project_files(names: Sequence[str], directory: Path = Path()) -> tuple[ProjectFile, ...]:
    """Those of `names` that are in `directory` (default: the current one). Raises `ConfigError`."""
    paths = (directory.resolve() / name for name in names)
    return tuple(
        ProjectFile(path=path, data=read_file(path, advice="it was there a moment ago"))
        for path in paths
        if path.is_file()
    )


class _Answer(Table):
    accepted: bool
    files: dict[str, str]


class _Store(Table):
    answers: dict[str, _Answer]


@dataclass(kw_only=True)
class Trust:
    """Decisions about the files of the current directory. By default, files accepted earlier are used."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    everything: bool = False
    """`--trust`: use every file during this run."""
    notice: Callable[[str], None] = lambda _: None
    """Called with a line about each file that is not used."""
    _answers: dict[Path, bool] = field(default_factory=dict, init=False)
    _said: set[str] = field(default_factory=set, init=False)

    def say(self, text: str) -> None:
        """Pass a line to `notice`, once."""
        if text not in self._said:
            self._said.add(text)
            self.notice(text)

    def project_file(self, names: Sequence[str]) -> ProjectFile | None:
        """The one of `names` in the current directory, unless that is the user's own configuration directory.

        Raises `ConfigError` if there are several, because only one would be used.
        """
        if Path().resolve() == user_directory(self.environment).resolve():
            return None
        found = project_files(names)
        if len(found) > 1:
            raise ConfigError(f"{found[0].path}: {found[1].path.name} exists too; keep one of them")
        return found[0] if found else None

    def accepts(self, file: ProjectFile) -> bool:
        """Return True if `file` may be used.

        Raises `UntrustedError` if nobody has decided yet, and `ConfigError` for an invalid file or store.
        """
        if self.everything:
            return True
        if file.path in self._answers:
            return self._answers[file.path]
        answer = self._stored().get(str(file.path))
        if answer is None or answer.files != file.fingerprint:
            raise UntrustedError(file)
        if not answer.accepted:
            self.say(f"{file.path} is not used, as you decided; `playhead trust` changes that")
        self._answers[file.path] = answer.accepted
        return answer.accepted

    def remember(self, file: ProjectFile, *, accepted: bool) -> None:
        """Store the decision for later runs. Raises `OSError`; for this run it applies even then."""
        self._answers[file.path] = accepted
        answers = self._stored()
        answers[str(file.path)] = _Answer(accepted=accepted, files=file.fingerprint)
        directory = user_directory(self.environment)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = _Store(answers=answers).model_dump_json(indent=1)
        with tempfile.NamedTemporaryFile("w", dir=directory, delete=False, encoding="utf-8") as written:
            try:
                written.write(text)
                written.close()
                Path(written.name).replace(directory / _STORE)
            except BaseException:  # on cancellation too: leave no partial file
                Path(written.name).unlink()
                raise

    def _stored(self) -> dict[str, _Answer]:
        path = user_directory(self.environment) / _STORE
        if not path.is_file():
            return {}
        values = read_document(path, advice="it was there a moment ago")
        return dict(validate(_Store, values, path=path).answers)


# --- what a file names ---------------------------------------------------------------------------------


def _named_files(values: object, directory: Path) -> set[Path]:
    """Return the files below `directory` that a string names, by path or as a Python module."""
    words = {word for text in strings_in(values) for word in (text, *_WORDS.split(text)) if word}
    bases = {directory, *(path for path in _below(directory, words, directory) if path.is_dir())}
    modules = {word.replace(".", "/") for word in words if word.replace(".", "").isidentifier()}
    words |= {f"{module}{suffix}" for module in modules for suffix in (".py", "/__init__.py", "/__main__.py")}
    return {path for base in bases for path in _below(base, words, directory) if path.is_file()}


def _below(base: Path, words: set[str], directory: Path) -> Iterator[Path]:
    for word in words:
        try:
            path = (base / word).resolve()
            if path.is_relative_to(directory) and path != directory and path.exists():
                yield path
        except (OSError, ValueError):  # too long for a path, or with a NUL in it: it names no file
            continue


def _imported_files(named: set[Path], directory: Path) -> set[Path]:
    """Return the Python files below `directory` that the `named` ones import, directly or not."""
    found: set[Path] = set()
    left = [path for path in named if path.suffix == ".py"]
    while left:
        path = left.pop()
        for relative, above in _imports(path):
            # A package's root is not known: any directory from the file's own up to the project's may be it.
            roots = [base for base in path.parents if base.is_relative_to(directory)]
            words = {f"{relative}.py"}
            words |= {f"{package}/__init__.py" for package in (relative, *map(str, Path(relative).parents))}
            for base in roots if not above else roots[above - 1 : above]:
                new = {it for it in _below(base, words, directory) if it.is_file()} - found - named
                found |= new
                left += new
    return found


def _imports(path: Path) -> set[tuple[str, int]]:
    """Return the modules that a Python file imports, as paths, each with its leading dots."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):  # nor can Python import it
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(name.name, 0) for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = [] if node.module is None else [node.module]
            found |= {(".".join([*base, name.name]), node.level) for name in node.names}
            found |= {(name, node.level) for name in base}
    return {(name.replace(".", "/"), level) for name, level in found}


# --- what a file would do ------------------------------------------------------------------------------


def _table(values: object, key: str) -> dict[str, Any]:
    found = values.get(key) if isinstance(values, dict) else None
    return found if isinstance(found, dict) else {}


def _items(values: object, key: str) -> list[Any]:
    found = values.get(key) if isinstance(values, dict) else None
    return found if isinstance(found, list) else []


def _server_effects(values: object) -> Iterator[tuple[str, str]]:
    for name, entry in _table(values, "mcpServers").items():
        if not isinstance(entry, dict):
            continue
        own = _table(entry, "playhead")
        if "command" in entry:
            words = [str(entry["command"]), *map(str, _items(entry, "args"))]
            where = f" in {entry['cwd']}" if entry.get("cwd") else ""
            yield "start", f"{name}: {shlex.join(words)}{where}"
        else:
            yield "connect to", f"{name}: {entry.get('url')}"
        for key, what in (("env", "environment"), ("headers", "headers")):
            if names := _table(entry, key):
                yield "pass on", f"{name}: {what} {', '.join(names)}"
        if origins := _items(own, "allow_origins"):
            yield "allow", f"{name}: links to {', '.join(map(str, origins))}"
        if own.get("trust_structured"):
            yield "allow", f"{name}: structured responses"
        if _table(entry, "tls").get("verify") is False:
            yield "allow", f"{name}: unverified TLS"


def _tool_effects(values: object) -> Iterator[tuple[str, str]]:
    for module in _items(values, "modules"):
        yield "run", f"module {module}"
    for name, entry in _table(values, "tools").items():
        if isinstance(entry, dict) and entry.get("response_handler"):
            yield "run", f"{name}: {entry['response_handler']}"
        if isinstance(entry, dict):
            for key in ("description", "system_prompt"):
                if entry.get(key):
                    yield f"set {key}", f"{name}: {entry[key]}"
    if approvals := _table(values, "approvals"):
        yield "set approvals", f"{json.dumps(approvals, ensure_ascii=False)} (yours stay in force)"
