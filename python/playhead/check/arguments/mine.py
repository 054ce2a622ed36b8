"""Values that a server has named: the ids, paths, URIs, names and cursors that other tools take. No I/O.

A generated id refers to nothing, so most tools only refuse it. A `Mine` learns from listings, answers,
completions and enums, and offers values for parameters whose names fit. It never learns a value that looks
secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from playhead.check.arguments.cases import Case
from playhead.check.arguments.generate import Validity
from playhead.check.arguments.values import example_in
from playhead.check.error_text import error_text, texts_of
from playhead.redaction import is_secret

MOST_PER_NAME: Final = 20
MOST_CASES: Final = 6
"""Limits the mined cases per tool."""
_MOST_PATHS: Final = 3
"""Limits the paths in the working directory that one parameter is offered."""
_VALUE_CHARS: Final = 300
_TEXT_CHARS: Final = 20_000
_MOST_VALUES: Final = 2_000
"""Limits the values read from one answer."""
_DEPTH: Final = 12
_IN_TEXT: Final = re.compile(
    r"""(?P<name>\b[A-Za-z_]{0,30}(?:id|path|uri|url|name|slug|cursor|file))["'`*]{0,3}\s{0,2}[:=]\s{0,2}["'`]?"""
    r"""(?P<value>[^\s"'`,;(){}]{1,200})""",
    re.IGNORECASE,
)
_PATH: Final = re.compile(r"(?<![\w:/.~<])(?:/[\w.@+-]{1,80}){2,20}(?![\w:])")
"""Matches an absolute path, except in a stack trace, where the number of a line follows."""
_OFFER: Final = re.compile(
    r"(?:\be\.g\.|\bsuch as|\bone of|\bmust be(?= ['\"`])"
    r"|\b(?:allowed|supported|available|valid|known)(?: \w+)?(?: are)?:)"
    r"(?P<values>[^;\n]{1,300})",
    re.IGNORECASE,
)
"""Matches what an error offers in place of the refused value."""
_QUOTED: Final = re.compile(r"""['"`]([^'"`\n]{1,80})['"`]""")
_PATHS: Final = frozenset(
    {"path", "file", "filename", "file_name", "file_path", "filepath", "directory", "dir", "folder"}
)
_DIRECTORIES: Final = frozenset({"directory", "dir", "folder", "repo", "repository", "root", "workspace"})
_FAMILIES: Final = (
    _PATHS,
    frozenset({"uri", "url", "href", "link"}),
    frozenset({"cursor", "next_cursor", "page_token", "next_page_token"}),
)
"""Groups the names that mean the same kind of value."""
_COMMON: Final[Mapping[str, str]] = {
    "expression": "1 + 2",
    "formula": "=1+2",
    "sql": "SELECT 1",
    "query": "SELECT 1",
    "timezone": "Europe/Paris",
    "source_timezone": "Europe/Paris",
    "target_timezone": "Asia/Tokyo",
    "time": "12:00",
    "date": "2026-01-12",
    "code": "1 + 2",
    "command": "echo 1",
}
"""Maps names to values that fit them by the name alone, for parameters whose text has a grammar."""
# fmt: off
READS: Final = frozenset([
    "get", "read", "fetch", "load", "show", "describe", "view", "open", "find", "lookup", "retrieve",
])
WRITES: Final = frozenset([
    "create", "write", "set", "add", "save", "put", "store", "insert", "append", "update", "record",
    "remember",
])
ENDS: Final = frozenset(["delete", "remove", "clear", "reset", "close", "drop", "end", "stop", "kill"])
_CONTENTS: Final = frozenset([
    "content", "contents", "text", "body", "value", "data", "note", "message", "description",
])
# fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The place where a server named a value."""

    method: str
    params: Mapping[str, Any]
    words: frozenset[str]
    """The nouns of the tool and of the arrays around the value: `list_items` → item."""

    def __str__(self) -> str:
        return str(self.params.get("name") or self.method)


@dataclass(frozen=True, slots=True, kw_only=True)
class MinedValue:
    """A value for a parameter."""

    value: str | int
    source: Source
    is_same: bool
    """True if the name or the noun matches, so that the server should know the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinedCase:
    """Arguments with mined values."""

    case: Case
    values: tuple[MinedValue, ...]


@dataclass(slots=True)
class Mine:
    """The values that one server has named, by the names under which they appeared."""

    directory: str = ""
    """The working directory of the server, if calls may read and write there."""
    files: Sequence[str] = ()
    """The paths of the files in `directory`."""
    directories: Sequence[str] = ()
    """The paths of the directories in `directory`."""
    _values: dict[str, dict[str | int, Source]] = field(default_factory=dict)
    _creators: set[str] = field(default_factory=set)
    """The tools whose first success has been read."""
    _echoes: str = ""
    """The arguments of the answer that is being read: a value among them is an echo, and proves nothing."""

    def learn(self, method: str, params: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Learn from the result of a request."""
        source = Source(method=method, params=params, words=frozenset(words_of(str(params.get("name", "")))))
        arguments = params.get("arguments")
        match method:
            case "tools/call" if result.get("isError") is True or error_text(result, arguments) is not None:
                self.learn_error(params, texts_of(result))
            case "tools/call":
                self._echoes = json.dumps(arguments, ensure_ascii=False)
                self._learn_result(result, source)
                self._echoes = ""
                if source.words & WRITES and str(source) not in self._creators:
                    self._creators.add(str(source))
                    self._learn_created(arguments, replace(source, method="created"))
            case "completion/complete":
                argument, completion = params.get("argument"), result.get("completion")
                values = completion.get("values") if isinstance(completion, dict) else None
                for value in values if isinstance(values, list) else ():
                    if isinstance(value, str):
                        self._add(
                            str(argument.get("name")) if isinstance(argument, dict) else "", value, source
                        )
            case "resources/list":
                self._walk(result.get("resources"), "resources", source, 0)
            case "tools/list":
                tools = result.get("tools")
                for tool in tools if isinstance(tools, list) else ():
                    schema = tool.get("inputSchema") if isinstance(tool, dict) else None
                    properties = schema.get("properties") if isinstance(schema, dict) else None
                    for name, inner in properties.items() if isinstance(properties, dict) else ():
                        for value in _stated(inner) if isinstance(inner, dict) else ():
                            self._add(name, value, source)

    def learn_error(self, params: Mapping[str, Any], text: str) -> None:
        """Learn the paths that an error names, often the directories that a server allows, and the values
        that it offers for a parameter."""
        source = Source(method="error", params=params, words=frozenset())
        arguments = params.get("arguments")
        text = text[:_TEXT_CHARS].replace(str(params.get("name")), "")
        self._echoes = json.dumps(arguments, ensure_ascii=False)
        for name in _refused(arguments, text) if isinstance(arguments, dict) else ():
            for value in _offered(text):
                self._add(name, value, source)
        for match in _PATH.finditer(text):
            self._add("path", match[0].rstrip("."), source)
        self._echoes = ""

    def _learn_result(self, result: Mapping[str, Any], source: Source) -> None:
        self._walk(result.get("structuredContent"), "", source, 0)
        blocks = result.get("content")
        for block in blocks if isinstance(blocks, list) else ():
            if not isinstance(block, dict):
                continue
            if block.get("type") == "resource_link":
                self._walk(block, "", source, 0)
            if not isinstance(text := block.get("text"), str) or len(text) > _TEXT_CHARS:
                continue
            try:
                self._walk(json.loads(text), "", source, 0)
            except (ValueError, RecursionError):
                for match in _IN_TEXT.finditer(text):
                    self._add(match["name"], match["value"].rstrip("."), source)
                for match in _PATH.finditer(text):
                    self._add("path", match[0].rstrip("."), source)

    def _learn_created(self, arguments: object, source: Source) -> None:
        """Learn the paths and names of what a tool has created: it exists from now on."""
        for name, value in arguments.items() if isinstance(arguments, dict) else ():
            if normalized(name).rpartition("_")[2] in _PATHS | {"name", "title", "key", "uri", "slug"}:
                self._add(name, value, source)

    def _walk(self, value: object, name: str, source: Source, depth: int) -> None:
        if depth > _DEPTH:
            return
        if isinstance(value, dict):
            inner = Source(
                method=source.method, params=source.params, words=source.words | set(words_of(name))
            )
            for key, item in list(value.items())[:_MOST_VALUES]:
                self._walk(item, str(key), inner, depth + 1)
        elif isinstance(value, list):
            for item in value[:_MOST_VALUES]:
                self._walk(item, name, source, depth + 1)
        else:
            self._add(name, value, source)

    def _add(self, name: str, value: object, source: Source) -> None:
        if isinstance(value, bool) or not isinstance(value, str | int) or not name:
            return
        if isinstance(value, str) and (
            not value.strip() or len(value) > _VALUE_CHARS or {"\n", "\\"} & set(value)
        ):
            return
        if looks_secret(name, str(value)) or (
            isinstance(value, str)
            and (value in self._echoes or (name == "path" and f'"{base_name(value)}"' in self._echoes))
        ):
            return
        known = self._values.setdefault(normalized(name), {})
        if len(known) < MOST_PER_NAME:
            known.setdefault(value, source)

    def values_for(self, name: str, tool: str = "", description: object = "") -> list[MinedValue]:
        """Return values for the parameter `name` of `tool`, those of the same noun first."""
        wanted = normalized(name)
        nouns = set(words_of(tool)) - READS - WRITES
        found: list[MinedValue] = []

        def take(key: str, *, needs: set[str] | None = None, is_same: bool) -> None:
            for value, source in self._values.get(key, {}).items():
                if needs is None or needs & source.words:
                    found.append(MinedValue(value=value, source=source, is_same=is_same))

        head, _, last = wanted.rpartition("_")
        if self.directory and _PATHS & {wanted, last}:
            source = Source(method="place", params={"name": "its working directory"}, words=frozenset())
            places = self._places(wanted, tool, str(description))
            found += [MinedValue(value=value, source=source, is_same=False) for value in places]
        own = {singular(head)} if head else nouns
        if head or last not in ("id", "name", "uri", "path"):
            take(wanted, is_same=True)
        if last in ("id", "ids", "name", "uri", "path", "slug", "key"):
            take(last.removesuffix("s"), needs=own, is_same=True)
        elif not head:
            for key in ("name", "id"):
                take(key, needs={singular(wanted)}, is_same=True)
        for family in _FAMILIES:
            if wanted in family or last in family:
                for key in sorted(family):
                    take(key, is_same=False)
        if not found and (common := _COMMON.get(wanted)) is not None:
            source = Source(method="common", params={"name": "its name"}, words=frozenset())
            found.append(MinedValue(value=common, source=source, is_same=False))
        distinct: dict[str | int, MinedValue] = {}
        for item in found:
            distinct.setdefault(item.value, item)
        return list(distinct.values())

    def _places(self, name: str, tool: str, description: str) -> list[str]:
        """Return paths in the working directory: new ones have the names of the server's own examples."""
        words = {*words_of(name), *words_of(tool)}
        about = set(words_of(description))
        if words & _DIRECTORIES or (about & _DIRECTORIES and "file" not in about):
            return [self.directory, *self.directories[:1]]
        known = {key: self._values.get(key, {}) for key in (name, *sorted(_PATHS))}
        created = [
            str(value) for values in known.values() for value, it in values.items() if it.method == "created"
        ]
        named = dict.fromkeys(base_name(str(value)) for values in known.values() for value in values)
        examples = [it for it in named if re.fullmatch(r"[\w-]+\.[a-z]{2,5}", it)]
        new = [f"{self.directory}/{it}" for it in [*examples[:2], "example.txt"]]
        paths = [*created, *self.files, *new] if words & READS else [*created, *new, *self.files]
        return paths[:_MOST_PATHS]

    def cases_for(self, tool: str, schema: object, base: Mapping[str, Any]) -> list[MinedCase]:
        """Return cases with mined values in place of those of `base`, which are valid arguments."""
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(properties, dict):
            return []
        validity = Validity(schema)
        names = dict.fromkeys((*base, *(name for name in properties if normalized(name) == "cursor")))
        offers = {
            name: values
            for name, shape in properties.items()
            if name in names and (values := self.values_for(name, tool, _description(shape)))
        }
        cases: list[MinedCase] = []
        for mined in _combined(offers):
            usable = {
                name: value
                for name, value in mined.items()
                if validity.allows({**base, name: value.value}) is True
            }
            arguments = {**base, **{name: value.value for name, value in usable.items()}}
            if not usable or validity.allows(arguments) is not True:
                continue
            if any(arguments == known.case.arguments for known in cases):
                continue
            if len(cases) == MOST_CASES:
                break
            words = ", ".join(f"`{name}` from {value.source}" for name, value in usable.items())
            case = Case(title=f"mined {words}"[:300], arguments=arguments, kind="valid")
            cases.append(MinedCase(case=case, values=tuple(usable.values())))
        return cases


def _combined(offers: Mapping[str, Sequence[MinedValue]]) -> Iterator[dict[str, MinedValue]]:
    """Yield a value for each name: first those of one answer, whose ids belong together."""
    answers: dict[str, dict[str, MinedValue]] = {}
    for name, values in offers.items():
        for value in values:
            if value.source.method != "tools/call":
                continue
            key = f"{value.source.method} {json.dumps(value.source.params, sort_keys=True, default=str)}"
            answers.setdefault(key, {}).setdefault(name, value)
    first = {name: values[0] for name, values in offers.items()}
    for answer in [it for it in answers.values() if len(it) > 1][:2]:
        yield {**first, **answer}
    if first:
        yield first
    for index in range(1, max(map(len, offers.values()), default=0)):
        yield from ({**first, name: values[index]} for name, values in offers.items() if index < len(values))


def _description(schema: object) -> object:
    return schema.get("description", "") if isinstance(schema, dict) else ""


def _stated(schema: Mapping[str, Any]) -> Iterator[object]:
    """Yield the values that the schema of a parameter names."""
    for key in ("enum", "examples"):
        yield from values if isinstance(values := schema.get(key), list) else ()
    yield schema.get("default")
    yield example_in(schema.get("description"))


def _refused(arguments: Mapping[str, Any], text: str) -> list[str]:
    """Return the names of the arguments that an error is about: it has the name, or else the value in
    quotes."""
    words = {singular(word) for word in re.findall(r"[a-z]{3,}", text.lower())}
    if named := [name for name in arguments if set(words_of(name)) & words]:
        return named
    values = [value for value in arguments.values() if isinstance(value, str)]
    quoted = {it for it in _QUOTED.findall(text) if values.count(it) == 1}
    return [name for name, value in arguments.items() if isinstance(value, str) and value in quoted]


def _offered(text: str) -> Iterator[str]:
    """Yield the values that an error offers: those in quotes, or else a list of words; and names with the
    suffixes of files."""
    for match in _OFFER.finditer(text):
        quoted = _QUOTED.findall(match["values"])
        yield from quoted or (re.findall(r"[\w.-]+", match["values"]) if "," in match["values"] else ())
    yield from (f"example{suffix}" for suffix in re.findall(r"[(,] ?(\.[a-z]{2,5})\b", text))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """A tool that writes, and one that should read what it wrote."""

    writer: str
    reader: str
    content: str
    """The parameter of the writer that takes the content."""
    keys: tuple[str, ...]
    """The parameters of both that name the place."""


def read_backs(tools: Mapping[str, object]) -> Iterator[ReadBack]:
    """Yield the pairs of a writer and a reader of the same nouns. `tools` has the inputSchemas by name."""
    for writer, schema in tools.items():
        words = words_of(writer)
        nouns = set(words) - WRITES
        fields, required = _fields_of(schema)
        content = next((name for name in required if normalized(name) in _CONTENTS), None)
        if not set(words) & WRITES or content is None:
            continue
        for reader, other in tools.items():
            keys = _fields_of(other)[1]
            others = set(words_of(reader))
            if (
                others & READS
                and others - READS == nouns
                and keys
                and set(keys) <= {*fields, "id"} - {content}
            ):
                yield ReadBack(writer=writer, reader=reader, content=content, keys=tuple(keys))
                break


def _fields_of(schema: object) -> tuple[Sequence[str], Sequence[str]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required") if isinstance(schema, dict) else None
    names = list(properties) if isinstance(properties, dict) else []
    return names, [name for name in names if isinstance(required, list) and name in required]


def looks_secret(name: str, value: str) -> bool:
    """True if a value may be a secret, by its name or because a part of it looks random. A UUID doesn't."""
    return is_secret(name, "") or any(is_secret("", part) for part in re.split(r"[^A-Za-z0-9]+", value))


def base_name(path: str) -> str:
    """Return the last part of a path of any system."""
    return re.split(r"[/\\]", path)[-1]


def normalized(name: str) -> str:
    """Write a name in one form: `itemId` and `item-id` are `item_id`."""
    return re.sub(r"\W+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).strip("_").lower()


def words_of(name: str) -> list[str]:
    """Split a name into its words, in the singular."""
    return [singular(word) for word in normalized(name).split("_") if word]


def singular(word: str) -> str:
    return f"{word[:-3]}y" if word.endswith("ies") else word[:-1] if re.search(r"[^s]s$", word) else word
