"""Range strategies: forms of a half-open range `[start, end)` in one `resources/read`.

MCP has no ranged read, so servers have developed four forms. They are tried in this order until one delivers
a byte, unless the caller names one:

1. `uri-template`: a listed template has `start` and `end`; it is expanded (RFC 6570).
2. `arguments`: the link's URI, with `arguments: {url, start, end}`. For links whose description is a URL.
3. `meta`: a configured key of `_meta` holds `{start, end}`.
4. `whole`: one plain read, no range.

Pure: the server's templates are an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from playhead.errors import UsageError
from playhead.stream.templates import TemplateMatch, match_template

STRATEGY_NAMES = ("uri-template", "arguments", "meta", "whole")
RANGE_VARIABLES = (("start", "end"),)
"""Pairs of variables that make a URI template one for ranges, in the order of preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """The parameters of a `resources/read`."""

    uri: str
    arguments: dict[str, object] | None = None
    meta: dict[str, object] | None = None


class RangeStrategy(Protocol):
    """A form in which ranges are requested."""

    @property
    def name(self) -> str:
        """`uri-template`, `arguments`, `meta` or `whole`."""
        ...

    def request(self, start: int, end: int) -> ResourceRequest:
        """Return the read of `[start, end)`, in bytes from 0."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateStrategy:
    """The range as two variables of a URI template."""

    match: TemplateMatch
    name: str = field(default="uri-template", init=False)

    def request(self, start: int, end: int) -> ResourceRequest:
        return ResourceRequest(uri=self.match.expand(start, end))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentsStrategy:
    """The range in `arguments`; `url` is the link's description."""

    uri: str
    url: str | None
    extra: Mapping[str, object]
    name: str = field(default="arguments", init=False)

    def request(self, start: int, end: int) -> ResourceRequest:
        url: dict[str, object] = {} if self.url is None else {"url": self.url}
        return ResourceRequest(uri=self.uri, arguments={**url, **self.extra, "start": start, "end": end})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaStrategy:
    """The range under one key of `_meta`."""

    uri: str
    key: str
    extra: Mapping[str, object]
    name: str = field(default="meta", init=False)

    def request(self, start: int, end: int) -> ResourceRequest:
        return ResourceRequest(
            uri=self.uri,
            arguments=dict(self.extra) or None,
            meta={self.key: {"start": start, "end": end}},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeStrategy:
    """No range: the answer is the whole resource."""

    uri: str
    extra: Mapping[str, object]
    name: str = field(default="whole", init=False)

    def request(self, start: int, end: int) -> ResourceRequest:
        return ResourceRequest(uri=self.uri, arguments=dict(self.extra) or None)


def is_url(text: str | None) -> bool:
    """Return whether a link's description is a URL that a server could read."""
    if text is None or any(character.isspace() for character in text):
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


def candidate_strategies(
    *,
    uri: str,
    description: str | None = None,
    templates: Sequence[str] = (),
    override: str | None = None,
    extra_arguments: Mapping[str, object] | None = None,
    meta_key: str | None = None,
    tool: str | None = None,
) -> tuple[RangeStrategy, ...]:
    """Return the strategies for ranges of the resource `uri`, in the order in which they are tried.

    `templates` are the server's listed URI templates; `description` is the link's, and counts if it is a URL.
    `extra_arguments` are sent with every read (in the template's variables of the same name, else in
    `arguments`), and make `arguments` a candidate. `meta_key` is the `_meta` key of servers that take the
    range there. `whole` is the last resort. `override` names the only strategy. `tool` is the one whose
    result has the link (see `match_template`).

    Raises `UsageError` if `override` is unknown, if it is `uri-template` and no listed template fits the URI,
    if templates of several servers behind a gateway fit it, or if it is `meta` without a `meta_key`.
    """
    extra = dict(extra_arguments or {})
    url = description if is_url(description) else None
    if override is not None and override not in STRATEGY_NAMES:
        raise UsageError(
            f"range strategy: expected one of {', '.join(STRATEGY_NAMES)}, got {override!r}; "
            "leave it out to let playhead choose"
        )
    match = match_template(
        templates, uri=uri, url=url, extra=extra, range_variables=RANGE_VARIABLES, tool=tool
    )
    if override == "uri-template" and match is None:
        listed = ", ".join(templates) or "none"
        raise UsageError(
            f"range strategy uri-template: no listed template with start and end fits {uri!r} "
            f"(listed: {listed}); choose another strategy"
        )
    if override == "meta" and meta_key is None:
        raise UsageError("range strategy meta: expected the name of the _meta key, got none; set meta_key")
    candidates: list[RangeStrategy] = []
    if match is not None:
        candidates.append(TemplateStrategy(match=match))
    if override == "arguments" or url is not None or extra:
        candidates.append(ArgumentsStrategy(uri=uri, url=url, extra=extra))
    if meta_key is not None:
        candidates.append(MetaStrategy(uri=uri, key=meta_key, extra=extra))
    candidates.append(WholeStrategy(uri=uri, extra=extra))
    return tuple(strategy for strategy in candidates if override in {None, strategy.name})


def choose_strategy(
    *,
    uri: str,
    description: str | None = None,
    templates: Sequence[str] = (),
    override: str | None = None,
    extra_arguments: Mapping[str, object] | None = None,
    meta_key: str | None = None,
) -> RangeStrategy:
    """Return the first of `candidate_strategies`, for a caller that does not negotiate."""
    return candidate_strategies(
        uri=uri,
        description=description,
        templates=templates,
        override=override,
        extra_arguments=extra_arguments,
        meta_key=meta_key,
    )[0]
