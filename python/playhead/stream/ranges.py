"""How a half-open range `[start, end)` of a resource is written into one `resources/read`.

MCP has no ranged read of its own, so servers have grown four forms. They are tried in this order, unless
the caller names one:

1. `uri-template`: a listed template has `start` and `end`; it is expanded (RFC 6570).
2. `arguments`: the link's URI, with `arguments: {url, start, end}` beside it. The form of links whose
   description is a URL.
3. `meta`: a configured key of `_meta` holds `{start, end}`.
4. `whole`: one plain read, no range.

Pure: what a server offers is an argument, and nothing is asked here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate

from playhead.errors import UsageError

STRATEGY_NAMES = ("uri-template", "arguments", "meta", "whole")
RANGE_VARIABLES = frozenset({"start", "end"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """The parameters of one `resources/read`."""

    uri: str
    arguments: dict[str, object] | None = None
    meta: dict[str, object] | None = None


class RangeStrategy(Protocol):
    """One way to ask for a range."""

    @property
    def name(self) -> str:
        """`uri-template`, `arguments`, `meta` or `whole`."""
        ...

    def request(self, start: int, end: int) -> ResourceRequest:
        """The read of `[start, end)`, in bytes from 0."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateStrategy:
    """The range as two variables of a URI template.

    Values are percent-encoded by RFC 6570, so that reserved characters of a URL inside a URL survive.
    """

    template: UriTemplate
    values: Mapping[str, str | Sequence[str]]
    name: str = field(default="uri-template", init=False)

    def request(self, start: int, end: int) -> ResourceRequest:
        uri = self.template.expand({**self.values, "start": str(start), "end": str(end)})
        return ResourceRequest(uri=uri)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentsStrategy:
    """The range in `arguments` beside the URI; `url` is the link's description."""

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
    """Whether a link's description is a URL that a server could read."""
    if text is None or any(character.isspace() for character in text):
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


def _template_values(
    template: UriTemplate, *, uri: str, url: str | None, extra: Mapping[str, object]
) -> dict[str, str | Sequence[str]] | None:
    """What the template's other variables are for this resource; None where it is another resource's."""
    names = set(template.variable_names)
    if not names >= RANGE_VARIABLES:
        return None
    values: dict[str, str | Sequence[str]] = {}
    if uri not in {str(template), template.expand({})}:
        matched = template.match(uri)
        if matched is None:
            return None
        values.update(matched)
    if url is not None and "url" in names:
        values.setdefault("url", url)
    values.update({name: str(value) for name, value in extra.items() if name in names})
    # An unknown query variable may stay away (RFC 6570, 2.3). A path without its part, or a reader of URLs
    # without a URL, is another resource.
    optional = set(template.query_variable_names) - {"url"}
    optional |= {variable.name for variable in template.variables if variable.operator in {"?", "&"}} - {
        "url"
    }
    if names - RANGE_VARIABLES - optional - set(values):
        return None
    return {name: value for name, value in values.items() if name not in RANGE_VARIABLES}


def _template_strategy(
    templates: Sequence[str], *, uri: str, url: str | None, extra: Mapping[str, object]
) -> TemplateStrategy | None:
    for text in templates:
        try:
            template = UriTemplate.parse(text)
        except InvalidUriTemplate:
            continue  # listed for something else, in a form that nobody can expand
        values = _template_values(template, uri=uri, url=url, extra=extra)
        if values is not None:
            return TemplateStrategy(template=template, values=values)
    return None


def choose_strategy(
    *,
    uri: str,
    description: str | None = None,
    templates: Sequence[str] = (),
    override: str | None = None,
    extra_arguments: Mapping[str, object] | None = None,
    meta_key: str | None = None,
) -> RangeStrategy:
    """Choose how ranges of the resource `uri` are asked for.

    `templates` are the server's listed URI templates; `description` is the link's, and counts where it is a
    URL. `extra_arguments` go along with every read (into the template's variables of the same name, else
    into `arguments`), and make `arguments` the choice where no template fits. `meta_key` is the `_meta` key
    of servers that take the range there. `override` names a strategy.

    Raises `UsageError` when `override` is unknown, when it is `uri-template` and no listed template fits
    the URI, or when it is `meta` and no `meta_key` is given.
    """
    extra = dict(extra_arguments or {})
    url = description if is_url(description) else None
    if override is not None and override not in STRATEGY_NAMES:
        raise UsageError(
            f"range strategy: expected one of {', '.join(STRATEGY_NAMES)}, got {override!r}; "
            "leave it out to let playhead choose"
        )
    if override in {None, "uri-template"}:
        found = _template_strategy(templates, uri=uri, url=url, extra=extra)
        if found is not None:
            return found
        if override is not None:
            listed = ", ".join(templates) or "none"
            raise UsageError(
                f"range strategy uri-template: no listed template with start and end fits {uri!r} "
                f"(listed: {listed}); choose another strategy"
            )
    if override == "arguments" or (override is None and (url is not None or extra)):
        return ArgumentsStrategy(uri=uri, url=url, extra=extra)
    if override == "meta" or (override is None and meta_key is not None):
        if meta_key is None:
            raise UsageError(
                "range strategy meta: expected the name of the _meta key, got none; set meta_key"
            )
        return MetaStrategy(uri=uri, key=meta_key, extra=extra)
    return WholeStrategy(uri=uri, extra=extra)
