"""Match a link to the listed URI template that reads ranges of it, even if a gateway has renamed it.

A gateway that joins several servers writes a server's name into the URIs that it lists, so that a read finds
its server. Links inside results often stay as the inner server wrote them. Three ways of writing the name are
known: around the percent-encoded URI (endara-relay), in front of the scheme (Envoy AI Gateway), and as the
first segment (FastMCP; Envoy for `ui:`). A link fits a renamed template if it fits what the inner server
listed; the URI that is read has the gateway's form.

Pure: the listed templates are an argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from playhead.errors import UsageError

if TYPE_CHECKING:
    from mcp.shared.uri_template import UriTemplate

RangeVariables = tuple[str, str]
"""The names of a template's two variables for a range, such as `("start", "end")`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Naming:
    """A way in which gateways write a server's name into a URI."""

    pattern: re.Pattern[str]
    """Matches a whole URI: `server` is the name, `before` and `after` it are the inner URI."""
    outer: str
    """The gateway's form of an inner URI."""
    is_quoted: bool = False
    """The inner URI is percent-encoded: all of it, or in a template all but the braces."""
    is_certain: bool = True
    """No other server has such URIs."""


_SCHEME: Final = r"[A-Za-z][A-Za-z0-9.-]*"
_NAMINGS: Final = (
    _Naming(
        pattern=re.compile(r"(?P<before>)mcp-relay://(?P<server>[^/{}?#]+)/(?P<after>.+)", re.DOTALL),
        outer="mcp-relay://{server}/{quoted}",
        is_quoted=True,
    ),
    _Naming(
        pattern=re.compile(rf"(?P<before>)(?P<server>{_SCHEME})\+(?P<after>{_SCHEME}://.*)", re.DOTALL),
        outer="{server}+{scheme}://{rest}",
    ),
    _Naming(
        pattern=re.compile(rf"(?P<before>{_SCHEME}://)(?P<server>[^/{{}}?#]+)/(?P<after>.+)", re.DOTALL),
        outer="{scheme}://{server}/{rest}",
        is_certain=False,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Renamed:
    """The server behind a gateway that a URI or template belongs to, and its own form of it."""

    inner: str
    server: str
    naming: _Naming

    def outer(self, inner: str) -> str:
        """Return the gateway's form of a URI of the same server."""
        scheme, _, rest = inner.partition("://")
        return self.naming.outer.format(
            server=self.server, scheme=scheme, rest=rest, quoted=quote(inner, safe="")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateMatch:
    """A listed template that fits a link, with the values of its variables apart from the range."""

    template: UriTemplate
    """The inner server's, if a gateway has renamed it."""
    values: Mapping[str, str | Sequence[str]]
    variables: RangeVariables
    reason: str
    """Why it was matched, as a clause: `the server lists the template 'x://{a}{?start,end}'`."""
    renamed: _Renamed | None = None

    def expand(self, first: int, second: int) -> str:
        """Return the URI with the range; values are percent-encoded by RFC 6570, so reserved characters of a
        URL inside a URL survive."""
        name_of_first, name_of_second = self.variables
        uri = self.template.expand({**self.values, name_of_first: str(first), name_of_second: str(second)})
        return uri if self.renamed is None else self.renamed.outer(uri)

    def expand_without_range(self) -> str:
        """Return the URI of the resource itself; for templates whose range is in the query."""
        uri = self.template.expand(self.values)
        return uri if self.renamed is None else self.renamed.outer(uri)


def match_template(
    templates: Sequence[str],
    *,
    uri: str,
    url: str | None,
    extra: Mapping[str, object],
    range_variables: Sequence[RangeVariables],
    tool: str | None = None,
) -> TemplateMatch | None:
    """Return the first of the listed `templates` that takes a range and fits the link `uri`, if any.

    `url` is the URL in the link's description, `extra` are further values by the name of their variable.
    `range_variables` are the accepted pairs of names for a range, in the order of preference. `tool` is the
    tool whose result has the link: of the servers behind a gateway, the one whose name begins the tool's name
    is preferred.

    Raises `UsageError` if the link fits templates of several servers behind a gateway, and nothing says whose
    it is.
    """
    # Not with the module: the SDK takes half a second, and options are checked without it.
    from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate

    def matched(text: str, link: str, reason: str) -> TemplateMatch | None:
        try:
            template = UriTemplate.parse(text)
        except InvalidUriTemplate:
            return None  # an invalid template, listed for something else
        for variables in range_variables:
            values = _values(template, variables, uri=link, url=url, extra=extra)
            if values is not None:
                return TemplateMatch(template=template, values=values, variables=variables, reason=reason)
        return None

    for text in templates:
        match = matched(text, uri, f"the server lists the template {text!r}")
        if match is not None:
            return match
    found: dict[str, TemplateMatch] = {}
    for text in templates:
        for renamed in _renamed(text):
            link = _inner_link(uri, renamed)
            match = None if link is None else matched(renamed.inner, link, _reason(text, renamed, tool))
            if match is not None and (
                renamed.naming.is_certain
                or _begins(renamed.server, tool)
                # A segment may be anything: it names a server before the very link, or if the tool has it.
                or uri in {renamed.inner, match.template.expand({})}
            ):
                found.setdefault(renamed.server, replace(match, renamed=renamed))
    return _choose(found, uri=uri, tool=tool)


def _renamed(text: str) -> Iterator[_Renamed]:
    """Yield the readings of a URI or template as one that a gateway has renamed."""
    for naming in _NAMINGS:
        named = naming.pattern.fullmatch(text)
        if named is not None:
            after = unquote(named["after"]) if naming.is_quoted else named["after"]
            yield _Renamed(inner=named["before"] + after, server=named["server"], naming=naming)


def _inner_link(uri: str, renamed: _Renamed) -> str | None:
    """Return the link as the inner server wrote it; None for a link of another server behind the gateway.

    A link that was renamed without quotes fits the template as listed.
    """
    for link in _renamed(uri):
        if link.naming.is_quoted:
            return link.inner if link.server == renamed.server else None
    return uri


def _begins(server: str, tool: str | None) -> bool:
    return tool is not None and re.match(re.escape(server) + r"[^A-Za-z0-9]", tool) is not None


def _reason(text: str, renamed: _Renamed, tool: str | None) -> str:
    by = f", which begins the name of the tool {tool!r}" if _begins(renamed.server, tool) else ""
    return f"the gateway lists the template {text!r} for its server {renamed.server!r}{by}"


def _choose(found: Mapping[str, TemplateMatch], *, uri: str, tool: str | None) -> TemplateMatch | None:
    """Return the match of the server that wrote the link `uri`, which `tool` returned."""
    if not found:
        return None
    server = max(found, key=lambda name: (_begins(name, tool), len(name)))
    if _begins(server, tool) or len(found) == 1:
        return found[server]
    forms = ", ".join(match.renamed.outer(uri) for match in found.values() if match.renamed is not None)
    raise UsageError(
        f"{uri!r} fits templates of {len(found)} servers behind the gateway, and nothing says whose it is: "
        f"open it from the result of its tool, or read the server's own URI: {forms}"
    )


def _values(
    template: UriTemplate,
    range_variables: RangeVariables,
    *,
    uri: str,
    url: str | None,
    extra: Mapping[str, object],
) -> dict[str, str | Sequence[str]] | None:
    """Return the template's other variables for this resource; None if it is for another resource."""
    names = set(template.variable_names)
    of_range = set(range_variables)
    if not names >= of_range:
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
    # An unknown query variable may be left out (RFC 6570, 2.3). A path without its part, or a URL reader
    # without a URL, is another resource.
    optional = set(template.query_variable_names) - {"url"}
    optional |= {variable.name for variable in template.variables if variable.operator in {"?", "&"}} - {
        "url"
    }
    if names - of_range - optional - set(values):
        return None
    return {name: value for name, value in values.items() if name not in of_range}
