"""Reading a configuration file's tables: every wrong value is named with the file and its key path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from playhead.errors import ConfigError

VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def expand(text: str, *, where: str, environment: Mapping[str, str]) -> str:
    """`text` with `${NAME}` and a leading `~` replaced. Raises `ConfigError` where a variable isn't set."""

    def value_of(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in environment:
            raise ConfigError(f"{where}: the environment variable {name} is not set")
        return environment[name]

    expanded = VARIABLE.sub(value_of, text)
    # Only where it stood in the file: a variable's value is taken as it is.
    if text == "~" or text.startswith("~/"):
        return str(Path("~").expanduser()) + expanded[1:]
    return expanded


class Fields:
    """One table of a file. Readers give `None` (or an empty mapping) for a key that isn't there.

    `environment` is what `${NAME}` is taken from; with None, texts stay as they were written.
    """

    def __init__(self, raw: object, *, where: str, environment: Mapping[str, str] | None) -> None:
        if not isinstance(raw, dict):
            raise ConfigError(f"{where}: expected an object, came {_kind(raw)}")
        self._raw: dict[str, object] = raw
        self._environment = environment
        self.where = where

    def names(self) -> tuple[str, ...]:
        return tuple(self._raw)

    def only(self, *known: str) -> None:
        """Raise `ConfigError` for a key that is none of `known`, with the nearest of them."""
        for name in self._raw:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                raise ConfigError(f"{self._at(name)}: is not a setting; {hint}")

    def table(self, name: str, *, required: bool = False) -> Fields:
        if name not in self._raw and required:
            raise ConfigError(f"{self.where}: the key {name!r} is missing")
        return Fields(self._raw.get(name, {}), where=self._at(name), environment=self._environment)

    def tables(self, name: str) -> tuple[Fields, ...]:
        """A list of tables."""
        value = self._raw.get(name, [])
        if not isinstance(value, list):
            raise ConfigError(f"{self._at(name)}: expected a list of objects, came {_kind(value)}")
        return tuple(
            Fields(item, where=f"{self._at(name)}[{index}]", environment=self._environment)
            for index, item in enumerate(value)
        )

    def text(self, name: str) -> str | None:
        value = self._raw.get(name)
        return None if value is None else self._text(value, self._at(name))

    def texts(self, name: str) -> dict[str, str]:
        """A table of texts, expanded."""
        inner = self.table(name)
        return {key: self._text(inner._raw[key], inner._at(key)) for key in inner.names()}

    def items(self, name: str) -> tuple[str, ...] | None:
        """A list of texts, expanded."""
        value = self._raw.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise ConfigError(f"{self._at(name)}: expected a list, came {_kind(value)}")
        return tuple(self._text(item, f"{self._at(name)}[{index}]") for index, item in enumerate(value))

    def values(self, name: str) -> dict[str, object]:
        """A table of any JSON values; texts at its top are expanded."""
        inner = self.table(name)
        return {
            key: self._text(value, inner._at(key)) if isinstance(value, str) else value
            for key, value in inner._raw.items()
        }

    def number(self, name: str) -> float | None:
        value = self._raw.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ConfigError(f"{self._at(name)}: expected a number above 0, came {value!r}")
        return float(value)

    def whole(self, name: str) -> int | None:
        value = self._raw.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise ConfigError(f"{self._at(name)}: expected a whole number above 0, came {value!r}")
        return value

    def integer(self, name: str) -> int | None:
        """A whole number of either sign."""
        value = self._raw.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ConfigError(f"{self._at(name)}: expected a whole number, came {value!r}")
        return value

    def flag(self, name: str) -> bool | None:
        value = self._raw.get(name)
        if value is not None and not isinstance(value, bool):
            raise ConfigError(f"{self._at(name)}: expected true or false, came {_kind(value)}")
        return value

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        value = self.text(name)
        if value is not None and value not in allowed:
            raise ConfigError(f"{self._at(name)}: expected one of {', '.join(allowed)}, came {value!r}")
        return value

    def _at(self, name: str) -> str:
        return f"{self.where}: {name}" if ": " not in self.where else f"{self.where}.{name}"

    def _text(self, value: object, where: str) -> str:
        if not isinstance(value, str):
            # Not the value itself: it may be a secret in the wrong shape.
            raise ConfigError(f"{where}: expected a text, came {_kind(value)}")
        if self._environment is None:
            return value
        return expand(value, where=where, environment=self._environment)


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "an object")
