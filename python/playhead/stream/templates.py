"""Match a link to the listed URI templates that read ranges of it, even if gateways have renamed them.

A link fits a template that equals it up to the template's first range variable. The names of range variables
usually give their meaning. If no name does, the last two variables are a guess, which two reads settle
(`probing`).

A gateway of several servers writes the server's name into each URI that it lists, so that it can route reads.
Links inside results often stay as the inner server wrote them. There are three places for the name: before
the percent-encoded URI (endara-relay), in front of the scheme (Envoy AI Gateway), or as the first segment
(FastMCP; Envoy for `ui:`). A gateway of gateways writes several names. A link fits a renamed template if it
fits the inner server's template; the read then uses the gateway's form of the URI.

Pure: the listed templates are an argument.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal
from urllib.parse import quote, unquote

from playhead.errors import UsageError
from playhead.stream.uri_template import UriTemplate

RANGE_PAIRS: Final = (("start", "end"), ("offset", "length"), ("from", "to"), ("range_start", "range_end"))
"""Pairs of names that are preferred if a template has several variables that could be a range."""
_STARTS: Final = frozenset(
    ["start", "offset", "from", "begin", "rangestart", "startbyte", "startoffset", "pos"]
)
_ENDS: Final = frozenset(["end", "to", "until", "stop", "rangeend", "endbyte", "endoffset"])
_LENGTHS: Final = frozenset(["length", "len", "count", "limit", "size", "bytes", "bytecount", "maxbytes"])
_PAGES: Final = frozenset(["page", "pagenumber", "pageno", "pagenum", "pageindex"])
_PAGE_SIZES: Final = frozenset(["pagesize", "perpage", "pagelength", "pagebytes"]) | _LENGTHS
"""These five sets hold the names of range variables, in lower case and without separators."""
_ADDRESSES: Final = frozenset(["url", "uri", "resourceuri", "resourceurl", "address", "link", "href"])
"""The names of variables that take the address of a resource."""
_GUESSED: Final = 2
"""The rank of matches that are guesses, the last in `_order`."""
MATCHES_MAX: Final = 4
"""Limits the templates that are tried for one link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeVariables:
    """The variables of a template that select a range."""

    kind: Literal["end", "length", "page", "guess"]
    """The meaning of `second`: the end of the range, its length, the size of the page whose number is
    `first`, or (`guess`) either end or length."""
    first: str
    second: str | None = None

    @property
    def names(self) -> set[str]:
        return {self.first} if self.second is None else {self.first, self.second}


def range_variables(names: Sequence[str]) -> RangeVariables | None:
    """Return the range variables among a template's variables, whose `names` are in order; None without
    any."""
    for first, second in RANGE_PAIRS:
        if first in names and second in names:
            kind: Literal["end", "length"] = "length" if second == "length" else "end"
            return RangeVariables(kind=kind, first=first, second=second)

    def named(meaning: frozenset[str]) -> str | None:
        return next((name for name in names if re.sub(r"[._]", "", name).lower() in meaning), None)

    start, page = named(_STARTS), named(_PAGES)
    if start is not None and (end := named(_ENDS)) is not None:
        return RangeVariables(kind="end", first=start, second=end)
    if start is not None and (length := named(_LENGTHS)) is not None:
        return RangeVariables(kind="length", first=start, second=length)
    if page is not None:
        return RangeVariables(kind="page", first=page, second=named(_PAGE_SIZES))
    others = [name for name in names[-2:] if not is_address(name)]
    return RangeVariables(kind="guess", first=others[0], second=others[1]) if len(others) == 2 else None


def is_address(name: str) -> bool:
    """Return True for a variable that takes the address of the resource to read."""
    return re.sub(r"[._]", "", name).lower() in _ADDRESSES


@dataclass(frozen=True, slots=True, kw_only=True)
class _Naming:
    """A pattern by which gateways write a server's name into a URI."""

    pattern: re.Pattern[str]
    """Matches a whole URI. Its group `server` is the name; `before` and `after` together are the inner
    URI."""
    outer: str
    """The gateway's form of an inner URI."""
    is_quoted: bool = False
    """True if the inner URI is percent-encoded (in a template without the braces)."""
    is_certain: bool = True
    """True if only gateways write such URIs."""


RENAMINGS_MAX: Final = 8
"""Limits the nesting of gateways."""
_SCHEME: Final = r"[A-Za-z][A-Za-z0-9.-]*"
_NAMINGS: Final = (
    _Naming(
        pattern=re.compile(r"(?P<before>)mcp-relay://(?P<server>[^/{}?#]+)/(?P<after>.+)", re.DOTALL),
        outer="mcp-relay://{server}/{quoted}",
        is_quoted=True,
    ),
    _Naming(
        pattern=re.compile(
            rf"(?P<before>)(?P<server>{_SCHEME})\+(?P<after>{_SCHEME}(\+{_SCHEME})*://.*)", re.DOTALL
        ),
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
    """A URI or template that gateways have renamed."""

    inner: str
    """The innermost server's form."""
    servers: tuple[str, ...]
    """The servers' names, from the outermost gateway inwards; never empty."""
    namings: tuple[_Naming, ...]
    """The pattern of each name, in the same order."""

    @property
    def server(self) -> str:
        return "/".join(self.servers)

    @property
    def is_certain(self) -> bool:
        return all(naming.is_certain for naming in self.namings)

    def outer(self, uri: str) -> str:
        """Return the outermost gateway's form of a URI of the same server."""
        for server, naming in zip(reversed(self.servers), reversed(self.namings), strict=True):
            scheme, _, rest = uri.partition("://")
            uri = naming.outer.format(server=server, scheme=scheme, rest=rest, quoted=quote(uri, safe=""))
        return uri

    def begins(self, tool: str | None) -> bool:
        """Return True if the tool's name begins with the servers' names, each followed by a separator."""
        pattern = "".join(re.escape(server) + r"[^A-Za-z0-9]+" for server in self.servers)
        return tool is not None and re.match(pattern, tool) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateMatch:
    """A listed template that fits a link."""

    template: UriTemplate
    """The inner server's form, if a gateway has renamed the template."""
    values: Mapping[str, str | Sequence[str]]
    """The values of all variables but the range variables."""
    variables: RangeVariables
    reason: str
    """The reason of the match, as a clause: `the server lists the template 'x://{a}{?start,end}'`."""
    renamed: _Renamed | None = None
    address: str | None = None
    """The variable that takes the address of the resource, if `values` has it from the link."""
    is_for_any: bool = False
    """True if the template takes any link as the value of a variable."""

    @property
    def is_in_query(self) -> bool:
        """True if the range is in the query, which can be left out."""
        return self.variables.names <= _query_names(self.template)

    def expand(self, first: int, second: int) -> str:
        """Return the URI with the range. Values are percent-encoded by RFC 6570, so that the reserved
        characters of a URL inside a URL survive."""
        range_values = {self.variables.first: str(first)}
        if self.variables.second is not None:
            range_values[self.variables.second] = str(second)
        return self._outer({**self.values, **range_values})

    def expand_without_range(self) -> str:
        """Return the URI of the whole resource. Only if `is_in_query`."""
        return self._outer(self.values)

    def _outer(self, values: Mapping[str, str | Sequence[str]]) -> str:
        uri = self.template.expand(values)
        return uri if self.renamed is None else self.renamed.outer(uri)

    def with_encoded_address(self) -> TemplateMatch | None:
        """Return this match with the address in base64url, for servers whose router takes no slash in a
        variable; None without an address."""
        if self.address is None:
            return None
        plain = str(self.values[self.address]).encode()
        encoded = base64.urlsafe_b64encode(plain).rstrip(b"=").decode("ascii")
        return replace(
            self,
            values={**self.values, self.address: encoded},
            reason=f"{self.reason}, and {self.address} is sent in base64url",
        )


def match_templates(
    templates: Sequence[str],
    *,
    uri: str,
    url: str | None,
    extra: Mapping[str, object],
    tool: str | None = None,
) -> list[TemplateMatch]:
    """Return the listed `templates` that take a range and fit the link `uri`, in the order to try them.

    Matches whose range variables have known names come first, then numbered pages, then guesses.

    `url` is the URL in the link's description; `extra` has values for further variables. `tool` is the tool
    whose result has the link: if its name begins with the name of a server behind a gateway, that server is
    preferred.

    Raises `UsageError` if the link fits templates of several servers behind a gateway, and nothing tells
    which server wrote it.
    """
    parsed = {text: template for text in templates if (template := UriTemplate.parse(text)) is not None}

    def matched(template: UriTemplate, link: str, reason: str) -> TemplateMatch | None:
        variables = range_variables(template.variable_names)
        values = None if variables is None else _values(template, variables, uri=link, url=url, extra=extra)
        if variables is None or values is None:
            return None
        addresses = [name for name in values if is_address(name) and values[name] in (url, link)]
        return TemplateMatch(
            template=template,
            values=values,
            variables=variables,
            reason=reason,
            address=next(iter(addresses), None),
            is_for_any=link in values.values(),
        )

    tried = (
        matched(template, uri, f"the server lists the template {text!r}") for text, template in parsed.items()
    )
    listed = sorted((match for match in tried if match is not None), key=_order)
    by_server: dict[str, TemplateMatch] = {}
    for text in dict.fromkeys(templates):
        for renamed in _renamed(text):
            link, inner = _inner_link(uri, renamed), UriTemplate.parse(renamed.inner)
            match = (
                None if link is None or inner is None else matched(inner, link, _reason(text, renamed, tool))
            )
            if match is None or inner is None:
                continue
            # Every URI with a path has a first segment. Only the link or the tool's name can show that it is
            # the name of a server.
            is_named = renamed.is_certain or uri in {renamed.inner, inner.expand({})}
            if (is_named and not match.is_for_any) or renamed.begins(tool):
                match = replace(match, renamed=renamed)
                by_server[renamed.server] = min(by_server.get(renamed.server, match), match, key=_order)
    if not listed or _order(listed[0]) >= _GUESSED:
        chosen = _choose(by_server, uri=uri, tool=tool)
        listed = listed if chosen is None else [chosen, *listed]
    return listed[:MATCHES_MAX]


def _order(match: TemplateMatch) -> int:
    if match.is_for_any or match.variables.kind == "guess":
        return _GUESSED
    return 1 if match.variables.kind == "page" else 0


def _renamed(text: str, depth: int = RENAMINGS_MAX) -> Iterator[_Renamed]:
    """Yield each reading of `text` as a renamed URI or template, with fewer gateways first."""
    for naming in _NAMINGS if depth else ():
        match = naming.pattern.fullmatch(text)
        if match is None:
            continue
        server = match["server"]
        inner = match["before"] + (unquote(match["after"]) if naming.is_quoted else match["after"])
        yield _Renamed(inner=inner, servers=(server,), namings=(naming,))
        for deeper in _renamed(inner, depth - 1):
            yield _Renamed(
                inner=deeper.inner,
                servers=(server, *deeper.servers),
                namings=(naming, *deeper.namings),
            )


def _inner_link(uri: str, renamed: _Renamed) -> str | None:
    """Return the link as the inner server wrote it; None for a link of another server behind the gateway.

    A link that was renamed without percent-encoding is returned as it is: it fits the template as listed.
    """
    for link in _renamed(uri, 1):
        if link.namings[0].is_quoted:
            return link.inner if link.servers[0] == renamed.servers[0] else None
    return uri


def _reason(text: str, renamed: _Renamed, tool: str | None) -> str:
    by = f", which begins the name of the tool {tool!r}" if renamed.begins(tool) else ""
    return f"the gateway lists the template {text!r} for its server {renamed.server!r}{by}"


def _choose(by_server: Mapping[str, TemplateMatch], *, uri: str, tool: str | None) -> TemplateMatch | None:
    """Return the match of the server that wrote the link `uri`, which `tool` returned."""
    known = [(match.renamed, match) for match in by_server.values() if match.renamed is not None]
    if not known:
        return None
    renamed, match = max(known, key=lambda pair: (pair[0].begins(tool), len(pair[0].server)))
    if renamed.begins(tool) or len(known) == 1:
        return match
    forms = ", ".join(renamed.outer(uri) for renamed, _ in known)
    raise UsageError(
        f"{uri!r} fits templates of {len(by_server)} servers behind the gateway, and nothing says whose it"
        f" is: open it from the result of its tool, or read the server's own URI: {forms}"
    )


def _links_before(text: str, names: set[str]) -> Iterator[str]:
    """Yield the beginnings of a template, up to the first variable of `names`, the longest first."""
    # `song://{id}/bytes/{start}-{end}` has `song://{id}/bytes` and `song://{id}`.
    expressions = re.finditer(r"\{[^{}]*\}", text)
    first = next((it for it in expressions if names & set(re.split(r"[^\w.]+", it.group()))), None)
    scheme = re.match(r"[^:{}]+:(//)?", text)
    if first is None or scheme is None:
        return
    before = text[: first.start()]
    while len(before := before.rstrip("/?&=#:;,.-_~")) > scheme.end():
        yield before
        cut = max(map(before.rfind, "/?&;"))
        if "{" in before[cut:]:
            return
        before = before[:cut]


def _query_names(template: UriTemplate) -> set[str]:
    return {variable.name for variable in template.variables if variable.operator in {"?", "&"}}


def _values(
    template: UriTemplate,
    variables: RangeVariables,
    *,
    uri: str,
    url: str | None,
    extra: Mapping[str, object],
) -> dict[str, str | Sequence[str]] | None:
    """Return the values of all variables but those of the range; None if the template does not fit."""
    values = _values_in_link(template, variables, uri)
    if values is None:
        return None
    names = set(template.variable_names)
    addresses = {name for name in names if is_address(name)}
    if url is not None:
        for name in addresses:
            values.setdefault(name, url)
    values.update({name: str(value) for name, value in extra.items() if name in names})
    # A query variable without a value may be left out (RFC 6570, 2.3). Without a segment of its path, or
    # without the URL to read, the URI would be another resource.
    optional = (template.query_variable_names | _query_names(template)) - addresses
    if names - variables.names - optional - set(values):
        return None
    return {name: value for name, value in values.items() if name not in variables.names}


def _values_in_link(
    template: UriTemplate, variables: RangeVariables, uri: str
) -> dict[str, str | Sequence[str]] | None:
    """Return the values that the link has for the template's variables; None if it does not fit."""
    if variables.names <= _query_names(template):
        candidates = [template]
        unexpanded = {str(template), template.expand({})}
    else:
        candidates = _templates_before_range(template, variables)
        unexpanded = {str(template)}
    if uri in unexpanded:
        return {}
    for candidate in candidates:
        matched = candidate.match(uri)
        if matched is not None:
            # A link that has values for the variables of a guess shows that they do not select a range.
            is_wrong_guess = variables.kind == "guess" and variables.names & set(matched)
            return None if is_wrong_guess else dict(matched)
    takes_any = [name for name in template.variable_names if is_address(name) and name.lower() != "url"]
    return {min(takes_any): uri} if takes_any else None


def _templates_before_range(template: UriTemplate, variables: RangeVariables) -> list[UriTemplate]:
    """Return the beginnings of the template that a link may fit: those before the range, then those before
    an address."""
    addresses = {name for name in template.variable_names if is_address(name)}
    texts = [
        *_links_before(str(template), variables.names),
        *_links_before(str(template), addresses),
    ]
    return [parsed for text in texts if (parsed := UriTemplate.parse(text)) is not None]
