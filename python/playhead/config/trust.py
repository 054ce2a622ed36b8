"""Consent to the configuration files of the current directory.

Running `playhead` inside a cloned repository must not run the repository's code, start its servers or send
it the user's keys. `./mcp.json` and `./playhead-tools.toml` are used only after a person was shown what they
would do. The decision is stored with the file's path and with a hash of everything that decides what runs:

* the file itself;
* every file of the directory that it names, or that a Python file among these imports, in each form that
  Python loads: `helper.py`, `helper.so`, `helper/__init__.py`;
* the names of the modules in each directory where a server's Python starts to search (that of a script; the
  working directory for `-m` and `-c`; PYTHONPATH). A new name there can hide an installed module that a
  library imports. Data files, namespace packages and `__pycache__` hide nothing and do not count.

A change, such as a `git pull`, requires consent again. An import whose name is computed is not seen. Files in
the user's configuration directory, and files named by an option, need no consent.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import all_suffixes
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
_SUFFIXES: Final = frozenset({".py", ".pyc", ".so", ".pyd"})
"""Of a file that Python imports, the last one: `helper.cpython-313-x86_64-linux-gnu.so`."""
_SEARCHES_CWD: Final = re.compile(r"-\w*[mc]|--module")
"""Options of Python, and of what starts it, that put the working directory on its search path."""
_INTERPRETER: Final = re.compile(r"(?:.*/)?(?:python|pypy|(?:py|uv)$)")
_UNUSED: Final = frozenset({"test"})
"""Modules of the standard library that no library imports; projects have directories of this name."""
_FIRST_LINE_BYTES: Final = 256


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
        """The SHA-256 of the file and of what else decides what runs (see above), by relative path.

        Under the path of a directory, with a slash at its end: that of the names of its modules.
        """
        directory = self.path.parent
        modules = _Modules(directory)
        named, roots = _named_files(self.values, modules)
        if self.path.name not in SERVERS_FILES:
            roots = set()  # a handler's directory is never on playhead's own search path
        named |= {path for root in roots for path in modules.standard(root)}
        found = {self.path.name: hashlib.sha256(self.data).hexdigest()}
        for path in sorted(named | _imported_files(named, modules)):
            try:
                with path.open("rb") as opened:
                    digest = hashlib.file_digest(opened, "sha256").hexdigest()
            except OSError as error:
                raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
            found[str(path.relative_to(directory))] = digest
        for root in roots:
            names = "\n".join(sorted(str(path.relative_to(root)) for path in modules.listed(root)))
            found[f"{root.relative_to(directory)}/"] = hashlib.sha256(os.fsencode(names)).hexdigest()
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


@dataclass(frozen=True)
class _Modules:
    """The importable files below `directory`; each of its directories is listed once."""

    directory: Path
    _listings: dict[Path, dict[str, set[Path]]] = field(default_factory=dict)

    def find(self, base: Path, relative: str) -> set[Path]:
        """Return the files that `import` of the module at `relative`, such as `pack/inner`, could load."""
        found: set[Path] = set()
        for part in relative.split("/"):
            found |= self._listing(base).get(part, set())
            base /= part
        return {path for path in map(Path.resolve, found) if path.is_relative_to(self.directory)}

    def listed(self, base: Path) -> set[Path]:
        """Return the files in `base` that make a module importable."""
        return {path for paths in self._listing(base).values() for path in paths}

    def standard(self, base: Path) -> set[Path]:
        """Return the files of the modules in `base` that hide one of the standard library.

        Libraries import these, so that the imports of the directory's own files don't tell if they are used.
        """
        found: set[Path] = set()
        for name in sys.stdlib_module_names & self._listing(base).keys() - _UNUSED:
            found |= self.find(base, name)
            found.update(path for path in (base / name).rglob("*.py") if path.is_file())
        return {path for path in map(Path.resolve, found) if path.is_relative_to(self.directory)}

    def _listing(self, base: Path) -> dict[str, set[Path]]:
        if base not in self._listings:
            self._listings[base] = _importable(base)
        return self._listings[base]


def _importable(directory: Path) -> dict[str, set[Path]]:
    """Return the modules and regular packages of a directory by name, with the files that make them so."""
    found: dict[str, set[Path]] = {}
    try:
        entries = list(directory.iterdir())
    except (OSError, ValueError):  # it is not a directory
        return {}
    for entry in entries:
        name = entry.name.partition(".")[0]
        if not name.isidentifier() or name in ("__init__", "__main__"):
            continue
        if entry.suffix in _SUFFIXES and entry.is_file():
            found.setdefault(name, set()).add(entry)
        elif entry.name == name:
            initial = {entry / f"__init__{suffix}" for suffix in all_suffixes()}
            if present := {path for path in initial if path.is_file()}:
                found.setdefault(name, set()).update(present)
    return found


def _named_files(values: object, modules: _Modules) -> tuple[set[Path], set[Path]]:
    """Return the files below the directory that a string names, by path or as a Python module; and the
    directories in which a Python that is started with these words searches first."""
    directory = modules.directory
    words = {word for text in strings_in(values) for word in (text, *_WORDS.split(text)) if word}
    bases = {directory, *(path for path in _below(directory, words, directory) if path.is_dir())}
    found = {path for base in bases for path in _below(base, words, directory) if path.is_file()}
    # `python DIR` runs DIR/__main__.py.
    found |= {path for base in bases if (path := base / "__main__.py").is_file()}
    roots = {path.parent for path in found if _is_python(path)}
    if any(map(_SEARCHES_CWD.match, words)) and any(map(_INTERPRETER.match, words)):
        cwds = set(_strings_under(values, "cwd"))
        roots |= {directory, *_below(directory, cwds, directory)}
    if "PYTHONPATH" in words:
        roots |= bases
    for relative in {word.replace(".", "/") for word in words if word.replace(".", "").isidentifier()}:
        for base in bases:
            of_module = modules.find(base, relative)
            if (main := base / relative / "__main__.py").is_file():
                of_module.add(main.resolve())
            if of_module:
                found |= of_module
                roots.add(base)
    return found, {root for root in roots if root.is_dir()}


def _is_python(path: Path) -> bool:
    """Tell a Python script by its suffix or its first line."""
    if path.suffix in (".py", ".pyw"):
        return True
    try:
        with path.open("rb") as opened:
            first = opened.readline(_FIRST_LINE_BYTES)
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


def _strings_under(values: object, key: str) -> Iterator[str]:
    for entry in _table(values, "mcpServers").values():
        if isinstance(entry, dict) and isinstance(found := entry.get(key), str):
            yield found


def _below(base: Path, words: set[str], directory: Path) -> Iterator[Path]:
    for word in words:
        try:
            path = (base / word).resolve()
            if path.is_relative_to(directory) and path != directory and path.exists():
                yield path
        except (OSError, ValueError):  # too long for a path, or with a NUL in it: it names no file
            continue


def _imported_files(named: set[Path], modules: _Modules) -> set[Path]:
    """Return the files below the directory that the `named` Python files import, directly or not."""
    found: set[Path] = set()
    left = [path for path in named if _is_python(path)]
    while left:
        path = left.pop()
        for relative, above in _imports(path):
            # A package's root is not known: any directory from the file's own up to the project's may be it.
            roots = [base for base in path.parents if base.is_relative_to(modules.directory)]
            for base in roots if not above else roots[above - 1 : above]:
                new = modules.find(base, relative)
                if above and base != modules.directory:
                    new |= modules.find(base.parent, base.name)
                new -= found | named
                found |= new
                left += (path for path in new if path.suffix == ".py")
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
        if cache := own.get("cache"):
            yield "store", f"{name}: what it reads, in {cache}"
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
