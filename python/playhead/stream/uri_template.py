"""URI templates (RFC 6570), expanded and matched.

Written here although the SDK has them, because importing its module costs half a second of CPU, and packages
for RFC 6570 only expand. `tests/property/test_uri_template_laws.py` compares this module with the SDK. Not
supported: the prefix of a value (`{name:3}`, which the SDK refuses too), `{;names*}`, and matching of a
`{;name}` without a value.

A template is matched by one scan from the end of the URI, in which each variable takes the fewest characters
that let the literal before it match. If a variable may span segments, the part before it is scanned from the
start, in mirror image, and the variable takes the rest. The scan never backtracks, so the time for a hostile
template is bounded by its length times the URI's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final
from urllib.parse import quote, unquote

from playhead.web_address import escaped

TEMPLATE_CHARS_MAX: Final = 8_192
VARIABLES_MAX: Final = 256
URI_CHARS_MAX: Final = 65_536

Values = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator of RFC 6570, by its row of appendix A."""

    prefix: str
    separator: str
    stops: str
    """The characters that end a value in a URI."""
    is_named: bool = False
    safe: str = ""
    empty: str = ""
    """Follows the name of a variable whose value is empty."""


_RESERVED: Final = ":/?#[]@!$&'()*+,;="
_OPERATORS: Final = {
    "": _Operator("", ",", "/?#&,"),
    "+": _Operator("", ",", "?#", safe=_RESERVED),
    "#": _Operator("#", ",", "", safe=_RESERVED),
    ".": _Operator(".", ".", "./?#"),
    "/": _Operator("/", "/", "/?#"),
    ";": _Operator(";", ";", ";/?#", is_named=True),
    "?": _Operator("?", "&", "&#", is_named=True, empty="="),
    "&": _Operator("&", "&", "&#", is_named=True, empty="="),
}
_EXPRESSION: Final = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*")


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a template."""

    name: str
    operator: str
    is_list: bool = False
    """True if it is written `name*`: a list, each item after a separator."""

    @property
    def is_long(self) -> bool:
        """True if its value may span several segments of a URI."""
        return self.is_list or self.operator in ("+", "#")

    def items(self, text: str) -> list[str] | None:
        """Return the items of a list as written in a URI; None if `text` is not such a list."""
        operator = _OPERATORS[self.operator]
        stops = set(operator.stops) - {operator.separator}
        if text and (text[0] != operator.separator or stops & set(text)):
            return None
        return [unquote(item) for item in text.split(operator.separator)[1:]]


_Part = str | tuple[Variable, ...]
"""Literal text, or the variables of one expression."""
_Atom = str | Variable


@dataclass(frozen=True)
class UriTemplate:
    """A valid template. `parse` makes one."""

    text: str
    parts: tuple[_Part, ...]

    @classmethod
    def parse(cls, text: str) -> UriTemplate | None:
        """Parse `text`. None if it is not a template, or could not be matched: it has two variables with
        nothing between them, a repeated name, several variables that may span segments, or several
        `{?...}`."""
        if len(text) > TEMPLATE_CHARS_MAX:
            return None
        parts: list[_Part] = []
        end = 0
        for match in _EXPRESSION.finditer(text):
            if match.start() > end:
                parts.append(text[end : match.start()])
            variables = tuple(
                Variable(spec.removesuffix("*"), match[1], is_list=spec.endswith("*"))
                for spec in match[2].split(",")
            )
            if not all(_NAME.fullmatch(each.name) for each in variables):
                return None
            if match[1] not in ("/", ".") and any(each.is_list for each in variables):
                return None
            parts.append(variables)
            end = match.end()
        if end < len(text):
            parts.append(text[end:])
        template = cls(text, tuple(parts))
        return template if template._can_be_matched() else None

    def _can_be_matched(self) -> bool:
        names = self.variable_names
        atoms = self._atoms
        return (
            len(names) <= VARIABLES_MAX
            and len(names) == len(set(names))
            and not any("{" in part for part in self.parts if isinstance(part, str))
            and sum(part[0].operator == "?" for part in self.parts if not isinstance(part, str)) <= 1
            and not any(isinstance(a, Variable) and isinstance(b, Variable) for a, b in pairwise(atoms))
            and sum(isinstance(atom, Variable) and atom.is_long for atom in atoms) <= 1
        )

    @cached_property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(variable for part in self.parts if not isinstance(part, str) for variable in part)

    @property
    def variable_names(self) -> list[str]:
        """The names, in order."""
        return [variable.name for variable in self.variables]

    @cached_property
    def query_variable_names(self) -> frozenset[str]:
        """The variables of a query at the end of the template. `match` accepts them in any order, and without
        some."""
        return frozenset(variable.name for part in self.parts[self._query_start :] for variable in part)  # type: ignore[union-attr] # expressions only

    @cached_property
    def _query_start(self) -> int:
        """The index of the part at which the query at the end begins; the number of parts without one."""
        start = len(self.parts)
        while start and not isinstance(part := self.parts[start - 1], str) and part[0].operator in ("?", "&"):
            start -= 1
        before, after = self.parts[:start], self.parts[start:]
        has_mark = any("?" in part or "#" in part for part in before if isinstance(part, str)) or any(
            part[0].operator in ("?", "#") for part in before if not isinstance(part, str)
        )
        if not after or after[0][0].operator != "?" or has_mark:  # type: ignore[union-attr] # an expression
            return len(self.parts)
        return start

    @cached_property
    def _atoms(self) -> tuple[_Atom, ...]:
        """The parts before the query, as alternating literals and variables."""
        atoms: list[_Atom] = []

        def add(literal: str) -> None:
            if literal and atoms and isinstance(last := atoms[-1], str):
                atoms[-1] = last + literal
            elif literal:
                atoms.append(literal)

        for part in self.parts[: self._query_start]:
            if isinstance(part, str):
                add(part)
                continue
            operator = _OPERATORS[part[0].operator]
            for index, variable in enumerate(part):
                lead = operator.separator if index else operator.prefix
                name = f"{variable.name}=" if operator.is_named else ""
                add("" if variable.is_list else lead + name)
                atoms.append(variable)
        return tuple(atoms)

    def expand(self, values: Values) -> str:
        """Return the URI with `values`, percent-encoded. A variable without a value is left out."""
        pieces: list[str] = []
        for part in self.parts:
            if isinstance(part, str):
                pieces.append(part)
                continue
            operator = _OPERATORS[part[0].operator]
            lead = operator.prefix
            for variable in part:
                value = values.get(variable.name)
                if value is None:
                    continue
                if isinstance(value, str):
                    items = [_encoded(value, operator.safe)]
                else:
                    items = [_encoded(item, operator.safe) for item in value]
                if not variable.is_list and items:
                    items = [",".join(items)]
                for text in items:
                    name = variable.name + ("=" if text else operator.empty) if operator.is_named else ""
                    pieces += (lead, name, text)
                    lead = operator.separator
        return "".join(pieces)

    def match(self, uri: str) -> dict[str, str | list[str]] | None:
        """Return the values in `uri`, decoded; None if it does not match."""
        if len(uri) > URI_CHARS_MAX:
            return None
        query = ""
        if self.query_variable_names:
            uri, _, query = uri.partition("#")[0].partition("?")
        values = self._scanned(uri)
        if values is None:
            return None
        for pair in reversed(query.split("&")):  # of several with the same name, the first one counts
            name, _, value = pair.partition("=")
            if name in self.query_variable_names:
                values[name] = unquote(value)
        return values

    def _scanned(self, uri: str) -> dict[str, str | list[str]] | None:
        atoms = self._atoms
        middle = next(
            (at for at, atom in enumerate(atoms) if isinstance(atom, Variable) and atom.is_long), None
        )
        if middle is None:
            match = _scan(atoms, uri, is_whole=True)
            return None if match is None or match[1] else {name: unquote(it) for name, it in match[0].items()}
        after = _scan(atoms[middle + 1 :], uri)
        if after is None:
            return None
        mirrored = [atom[::-1] if isinstance(atom, str) else atom for atom in reversed(atoms[:middle])]
        before = _scan(mirrored, uri[: after[1]][::-1])
        if before is None:
            return None
        text = uri[after[1] - before[1] : after[1]]
        long = atoms[middle]
        assert isinstance(long, Variable)
        value: str | list[str] | None
        if long.is_list:
            value = long.items(text)
        else:
            value = None if set(text) & set(_OPERATORS[long.operator].stops) else unquote(text)
        if value is None:
            return None
        return {
            **{name: unquote(it[::-1]) for name, it in before[0].items()},
            long.name: value,
            **{name: unquote(it) for name, it in after[0].items()},
        }

    def __str__(self) -> str:
        return self.text


def _scan(atoms: Sequence[_Atom], text: str, *, is_whole: bool = False) -> tuple[dict[str, str], int] | None:
    """Match `atoms` at the end of `text`. Return the values, and the index at which the match begins; None
    without a match. With `is_whole` only a match at index 0 is sought.
    """
    values: dict[str, str] = {}
    end = len(text)
    for index in reversed(range(len(atoms))):
        atom = atoms[index]
        if isinstance(atom, str):
            if not text.endswith(atom, 0, end):
                return None
            end -= len(atom)
            continue
        first = 1 + max((text.rfind(stop, 0, end) for stop in _OPERATORS[atom.operator].stops), default=-1)
        before = atoms[index - 1] if index else ""
        assert isinstance(before, str), "two variables have a literal between them"
        start = first
        if is_whole and index == 1:
            start = len(before)
        elif before:
            at = text.rfind(before, 0, end)
            start = -1 if at < 0 else at + len(before)
        if not first <= start <= end:
            return None
        values[atom.name] = text[start:end]
        end = start
    return values, end


def _encoded(value: str, safe: str) -> str:
    return escaped(value, safe) if safe else quote(value, safe="")
