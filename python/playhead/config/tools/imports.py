"""Imports the user's own Python by name or by file. Nothing that a server says gets here."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from playhead.errors import ConfigError

FILE_SUFFIX: Final = ".py"


def import_named(name: str, *, folder: Path | None, where: str, reload: bool = False) -> ModuleType:
    """The module called `name`: a dotted name, or a path that ends in `.py` and begins at `folder`.

    A file that has changed is read anew; a module by name only with `reload`. Raises `ConfigError`, beginning
    with `where`, for whatever goes wrong.
    """
    try:
        if name.endswith(FILE_SUFFIX):
            return _import_file((folder or Path()) / Path(name).expanduser())
        if reload and name in sys.modules:
            return importlib.reload(sys.modules[name])
        return importlib.import_module(name)
    except OSError as error:
        raise ConfigError(f"{where}: {error.filename or name} can't be read ({error.strerror})") from error
    except Exception as error:  # a module may raise anything while it is imported
        raise ConfigError(f"{where}: can't import {name} ({type(error).__name__}: {error})") from error


def _import_file(path: Path) -> ModuleType:
    source = path.read_bytes()
    # Named by what it holds: a changed file is another module, and an unchanged one doesn't run twice.
    digest = hashlib.sha256(str(path.absolute()).encode() + b"\0" + source).hexdigest()
    name = f"playhead_tool_{digest[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs, as the import system does: dataclasses look themselves up
    try:
        # Not by the loader: it would take compiled code of the same second and size for this source.
        exec(compile(source, path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module
