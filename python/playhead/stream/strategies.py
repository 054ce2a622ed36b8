"""Strategies for reading a range `[start, end)` of a resource, in bytes from 0: one per form of request.

MCP has no ranged read, so servers have developed their own forms. `FORMS` lists them in the order in which
they are tried. The entry of a form decides from the `ResourceFacts` whether the server offers it, and returns
the strategy that makes the requests and reads the answers. Both are in this file, so that a new form is one
entry, its name in `config.servers.RangeStrategyName` and one test.

Pure: no strategy sends a request. `FileStrategy` and `HttpRangeStrategy` only name the source; the client
reads it over HTTP.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

from playhead.errors import UsageError
from playhead.limits import Limits
from playhead.stream.answer import Page
from playhead.stream.result_pages import CURSOR_FIELDS, DATA_FIELDS, page_of_contents, page_of_tool
from playhead.stream.templates import TemplateMatch, match_templates

if TYPE_CHECKING:
    from mcp_types import Tool

TRIED: Final = "nothing says that the server takes it, and a small read was answered"
"""The reason for a form that the server does not announce."""

Fact = Literal["templates", "tools", "resources"]
"""A listing of a server, which may have to be requested before a form can be recognised."""

URL_ARGUMENTS: Final = ("url", "uri")
LENGTH_ARGUMENTS: Final = ("length", "byteCount")
CURSOR_ARGUMENTS: Final = ("cursor", "page_token", "pageToken", "offset", *CURSOR_FIELDS)
CHUNK_CAPABILITY: Final = "resourceReadChunking"
"""The experimental capability of servers that take `offset` and `length` in the params."""
_TOKEN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """The parameters of a `resources/read`."""

    uri: str
    arguments: dict[str, object] | None = None
    meta: dict[str, object] | None = None
    more: dict[str, object] | None = None
    """Further members of `params`, which no MCP revision defines."""

    def params(self) -> dict[str, Any]:
        """Return the `params` of the JSON-RPC request."""
        params: dict[str, Any] = {"uri": self.uri, **(self.more or {})}
        if self.arguments is not None:
            params["arguments"] = self.arguments
        if self.meta is not None:
            params["_meta"] = self.meta
        return params


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """The parameters of a `tools/call`."""

    name: str
    arguments: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFacts:
    """Facts about a resource and its server that decide which forms apply."""

    uri: str
    description: str | None = None
    """The description of the resource link. Used only if it is a single `scheme://…` token."""
    tool: str | None = None
    """The tool whose result has the link, if any; see `match_templates`."""
    templates: Sequence[str] | None = ()
    """The server's listed URI templates; None if they are not known yet."""
    tools: Sequence[Tool] | None = ()
    """The server's listed tools; None if they are not known yet."""
    is_listed: bool | None = False
    """True if the server lists `uri` as a resource; None if that is not known yet."""
    chunk_bytes_max: int | None = None
    """`capabilities.experimental.resourceReadChunking.maxChunkBytes`, if the server declares it."""
    offers_files: bool = False
    """True if the server declares file transfer (SEP-2631)."""
    is_file: bool = False
    """True if the tool result names the resource as a file of SEP-2631."""
    url: str | None = None
    """A URL of the bytes, outside of MCP, if the tool result has one."""
    extra_arguments: Mapping[str, object] = field(default_factory=dict)
    """Arguments sent with every read: as the template's variables of the same name, else in `arguments`."""
    meta_key: str | None = None
    """The configured `_meta` key for the range."""
    range_tool: str | None = None
    """The configured tool of the form `tool`."""
    poll_tool: str | None = None
    """The configured tool of the form `poll`."""
    is_queue: bool = False
    """True if the stream is the chunks that `poll_tool` returns for `extra_arguments`, without a resource."""
    only_repeatable: bool = False
    """True if reads must be repeatable without an effect; see `StreamOptions.only_repeatable`."""
    forced: str | None = None
    """The only form to use, if the caller or the configuration names one."""

    @property
    def token(self) -> str | None:
        """The description, if it is a URL that a server could read."""
        return self.description if is_token(self.description) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotOffered:
    """A form that does not apply to the resource."""

    why: str
    """The reason as a clause: `no listed template fits`."""
    needs: Fact | None = None
    """The listing without which the form cannot be recognised, if it is missing."""
    trial: ReadStrategy | None = None
    """The strategy to try with one small read although nothing announces the form. Never set with `needs`."""
    unfit: str = ""
    """The listed templates or tools of this kind, none of which fits."""


# --- strategies that use resources/read -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStrategy(ABC):
    """A strategy that reads each range with one `resources/read`."""

    name: str
    reason: str
    """The reason why this form was chosen, as a clause: `the description is a URL`."""

    @abstractmethod
    def request(self, start: int, end: int, /) -> ResourceRequest:
        """Return the request for `[start, end)`, in bytes from 0."""

    def page(self, result: Mapping[str, Any], *, start: int, limits: Limits, server: str) -> Page:
        """Read the answer to a request for `[start, …)`; see `page_of_contents`."""
        return page_of_contents(result, limits=limits, server=server)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateStrategy(ReadStrategy):
    """The range as variables of a URI template."""

    name: str = "uri-template"
    match: TemplateMatch
    others: tuple[TemplateStrategy, ...] = ()
    """Strategies to try after this one: with further templates that fit, or another spelling of the
    address."""

    def request(self, start: int, end: int) -> ResourceRequest:
        is_length = self.match.variables.kind == "length"
        return self.raw(start, end - start if is_length else end)

    def raw(self, first: int, second: int) -> ResourceRequest:
        """Return the request with these values of the two variables."""
        return ResourceRequest(uri=self.match.expand(first, second))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterStrategy(ReadStrategy):
    """The range in the parameters: in `arguments`, the URI's query, `_meta` or members of `params`."""

    request: Callable[[int, int], ResourceRequest]


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeStrategy(ReadStrategy):
    """No range: the answer is the whole resource."""

    name: str = "whole"
    uri: str
    extra: Mapping[str, object]

    def request(self, start: int, end: int) -> ResourceRequest:
        return ResourceRequest(uri=self.uri, arguments=dict(self.extra) or None)


# --- the other strategies ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStrategy:
    """The range as arguments of a tool."""

    name: ClassVar[str] = "tool"
    reason: str
    tool: str
    arguments: Mapping[str, object]
    """All arguments but the range."""
    length_argument: str | None
    """The argument for the length of the range; None if the tool has none."""
    is_repeatable: bool
    """True if the tool declares that it is read-only or idempotent, or if the configuration names it."""

    def request(self, start: int, end: int) -> ToolRequest:
        length = {} if self.length_argument is None else {self.length_argument: end - start}
        return ToolRequest(name=self.tool, arguments={**self.arguments, "offset": start, **length})

    def page(self, result: Mapping[str, Any], *, start: int, limits: Limits, server: str) -> Page:
        """Read the answer to a call for `[start, …)`; see `page_of_tool`."""
        return page_of_tool(result, tool=self.tool, start=start, limits=limits, server=server)


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorStrategy:
    """No range: a tool that is called with the cursor of its previous answer."""

    name: ClassVar[str] = "cursor"
    reason: str
    tool: str
    arguments: Mapping[str, object]
    """All arguments but the cursor."""
    cursor_argument: str
    first: object
    """The cursor to send for the first page; None to send none."""
    is_repeatable: bool
    """True if a call may be repeated; see `ToolStrategy`."""

    def request(self, cursor: object) -> ToolRequest:
        more = {} if cursor is None else {self.cursor_argument: cursor}
        return ToolRequest(name=self.tool, arguments={**self.arguments, **more})


@dataclass(frozen=True, slots=True, kw_only=True)
class PollStrategy:
    """No range: a queue tool that is called until it is done."""

    name: ClassVar[str] = "poll"
    reason: str
    tool: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStrategy:
    """HTTP ranges of a URL that the server hands out (SEP-2631)."""

    name: ClassVar[str] = "file"
    reason: str
    uri: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRangeStrategy:
    """HTTP ranges of a URL."""

    name: ClassVar[str] = "http-range"
    reason: str
    url: str


RequestStrategy = ReadStrategy | ToolStrategy
"""Strategies that read each range with one request to the MCP server."""
RangeStrategy = RequestStrategy | CursorStrategy | PollStrategy | FileStrategy | HttpRangeStrategy


# --- recognition of the forms ----------------------------------------------------------------------------


def is_token(text: str | None) -> bool:
    """Return True for a single `scheme://…` token. As a link's description, it is an address to be read."""
    return text is not None and _TOKEN.fullmatch(text) is not None


def is_url(text: str | None) -> bool:
    """Return True for an http or https URL."""
    if text is None or not is_token(text):
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


def _matches(facts: ResourceFacts) -> list[TemplateMatch]:
    return match_templates(
        facts.templates or (),
        uri=facts.uri,
        url=facts.token,
        extra=facts.extra_arguments,
        tool=facts.tool,
    )


def _template(facts: ResourceFacts) -> TemplateStrategy | NotOffered:
    if facts.templates is None:
        return NotOffered(why="the server has not listed its templates", needs="templates")
    matches = _matches(facts)
    encoded = [other for match in matches if (other := match.with_encoded_address()) is not None]
    strategies = [TemplateStrategy(match=match, reason=match.reason) for match in (*matches, *encoded)]
    if strategies:
        return replace(strategies[0], others=tuple(strategies[1:]))
    listed = ", ".join(facts.templates) or "none"
    return NotOffered(
        why=f"no listed template for ranges fits {facts.uri!r} (listed: {listed})",
        unfit=f"the templates {listed}" if facts.templates else "",
    )


def _arguments(facts: ResourceFacts) -> ParameterStrategy | NotOffered:
    if facts.token is not None:
        reason = f"the description is a URL ({facts.token})"
    elif facts.extra_arguments:
        reason = f"extra arguments are given ({', '.join(facts.extra_arguments)})"
    else:
        reason = TRIED
    url: dict[str, object] = {} if facts.token is None else {"url": facts.token}

    def request(start: int, end: int) -> ResourceRequest:
        arguments = {**url, **facts.extra_arguments, "start": start, "end": end}
        return ResourceRequest(uri=facts.uri, arguments=arguments)

    offered = ParameterStrategy(name="arguments", request=request, reason=reason)
    if reason == TRIED and facts.forced is None:
        return NotOffered(why="the description is not a URL", trial=offered)
    return offered


def _query(facts: ResourceFacts) -> ParameterStrategy | NotOffered:
    def request(start: int, end: int) -> ResourceRequest:
        before, hash_sign, fragment = facts.uri.partition("#")
        separator = "&" if "?" in before else "?"
        return ResourceRequest(uri=f"{before}{separator}start={start}&end={end}{hash_sign}{fragment}")

    offered = ParameterStrategy(
        name="query", request=request, reason="no template fits, and the URI takes a query"
    )
    if facts.forced == "query":
        return offered
    trial = replace(offered, reason=TRIED)
    if _matches(facts):
        return NotOffered(why="a template fits", trial=trial)
    if facts.uri.startswith("resource://"):
        return offered
    if not is_url(facts.uri):
        return NotOffered(why="the URI is not a resource:// or web address", trial=trial)
    if facts.is_listed is None:
        return NotOffered(why="the server has not listed its resources", needs="resources")
    return offered if facts.is_listed else NotOffered(why="the server does not list the URI", trial=trial)


def _params(facts: ResourceFacts) -> ParameterStrategy | NotOffered:
    max_bytes = facts.chunk_bytes_max
    reason = TRIED if max_bytes is None else f"the server declares {CHUNK_CAPABILITY} ({max_bytes} bytes)"

    def request(start: int, end: int) -> ResourceRequest:
        length = end - start if max_bytes is None else min(end - start, max_bytes)
        arguments = dict(facts.extra_arguments) or None
        return ResourceRequest(uri=facts.uri, arguments=arguments, more={"offset": start, "length": length})

    offered = ParameterStrategy(name="params", request=request, reason=reason)
    if max_bytes is None and facts.forced != "params":
        return NotOffered(why=f"the server does not declare {CHUNK_CAPABILITY}", trial=offered)
    return offered


def _meta(facts: ResourceFacts) -> ParameterStrategy | NotOffered:
    key = facts.meta_key
    if key is None:
        return NotOffered(why="no _meta key is configured; set meta_key")

    def request(start: int, end: int) -> ResourceRequest:
        arguments = dict(facts.extra_arguments) or None
        return ResourceRequest(uri=facts.uri, arguments=arguments, meta={key: {"start": start, "end": end}})

    return ParameterStrategy(name="meta", request=request, reason=f"meta_key is {key!r}")


def _tool(facts: ResourceFacts) -> ToolStrategy | NotOffered:
    if facts.tools is None:
        return NotOffered(why="the server has not listed its tools", needs="tools")
    for tool in facts.tools:
        is_configured = tool.name == facts.range_tool
        if is_configured or (facts.range_tool is None and _is_reader(tool)):
            why = "range_tool names it" if is_configured else "by its schemas, it reads ranges"
            strategy = _reader(tool, facts, why=why)
            if strategy is not None and is_configured:
                return replace(strategy, is_repeatable=True)
            if strategy is not None and (strategy.is_repeatable or not facts.only_repeatable):
                return strategy
    if facts.range_tool is not None:
        return NotOffered(
            why=f"expected a tool {facts.range_tool!r} (range_tool) with the arguments offset and url or uri,"
            f" the server lists {', '.join(tool.name for tool in facts.tools) or 'none'}"
        )
    if facts.only_repeatable:
        return NotOffered(why="no reader tool declares that its calls can be repeated; set range_tool")
    similar = [tool.name for tool in facts.tools if _is_for_links(tool) and _may_read_pages(tool)]
    return NotOffered(
        why="no tool takes the link and an offset, and returns hasMore or totalBytes; set range_tool",
        unfit=f"the tools {', '.join(similar)} (expected offset, or a cursor, among the arguments and in the"
        " outputSchema hasMore, totalBytes or the next cursor; set range_tool)"
        if similar
        else "",
    )


def _may_read_pages(tool: Tool) -> bool:
    """Return True if the name of an argument or of a returned field suggests that the tool reads pages."""
    names = _properties(tool.input_schema) | _properties(tool.output_schema)
    return not names.isdisjoint({*CURSOR_ARGUMENTS, *DATA_FIELDS, "start", "page", "hasMore", "totalBytes"})


def _is_reader(tool: Tool) -> bool:
    returned = _properties(tool.output_schema)
    return bool({"hasMore", "totalBytes"} & returned) and _is_for_links(tool)


def _reader(tool: Tool, facts: ResourceFacts, *, why: str) -> ToolStrategy | None:
    taken = _properties(tool.input_schema)
    arguments = {**facts.extra_arguments, **_link_arguments(taken, facts)}
    length = next((name for name in LENGTH_ARGUMENTS if name in taken), None)
    if "offset" not in taken or not _required(tool) <= {*arguments, "offset", length}:
        return None
    return ToolStrategy(
        tool=tool.name,
        arguments=arguments,
        length_argument=length,
        is_repeatable=_is_repeatable(tool),
        reason=f"tool {tool.name}: {why}",
    )


def _is_repeatable(tool: Tool) -> bool:
    notes = tool.annotations
    return notes is not None and bool(notes.read_only_hint or notes.idempotent_hint)


def _cursor(facts: ResourceFacts) -> CursorStrategy | NotOffered:
    if facts.tools is None:
        return NotOffered(why="the server has not listed its tools", needs="tools")
    for tool in facts.tools:
        taken, returned = _properties(tool.input_schema), _properties(tool.output_schema)
        is_configured = tool.name == facts.range_tool
        has_pages = not returned.isdisjoint(DATA_FIELDS) and not returned.isdisjoint(CURSOR_FIELDS)
        is_reader = has_pages and facts.range_tool is None and _is_for_links(tool)
        cursor = next((name for name in CURSOR_ARGUMENTS if name in taken), None)
        arguments = {**facts.extra_arguments, **_link_arguments(taken, facts)}
        if cursor is None or not (is_configured or is_reader) or not _required(tool) <= {*arguments, cursor}:
            continue
        is_repeatable = is_configured or _is_repeatable(tool)
        if facts.only_repeatable and not is_repeatable:
            continue
        is_number = tool.input_schema["properties"][cursor].get("type") in {"integer", "number"}
        why = "range_tool names it" if is_configured else "by its schemas, it returns pages with a cursor"
        return CursorStrategy(
            tool=tool.name,
            arguments=arguments,
            cursor_argument=cursor,
            first=(0 if is_number else "") if cursor in _required(tool) else None,
            is_repeatable=is_repeatable,
            reason=f"tool {tool.name}: {why}",
        )
    return NotOffered(why="no tool takes the link and a cursor, and returns both data and the next cursor")


def _poll(facts: ResourceFacts) -> PollStrategy | NotOffered:
    if facts.only_repeatable:
        return NotOffered(why="a queue hands out each chunk once, so it is not read to look at the beginning")
    if facts.tools is None:
        return NotOffered(why="the server has not listed its tools", needs="tools")
    for tool in facts.tools:
        is_configured = tool.name == facts.poll_tool
        is_queue = facts.poll_tool is None and is_queue_schema(tool.output_schema) and _is_for_links(tool)
        arguments = dict(facts.extra_arguments)
        if not facts.is_queue:
            arguments |= _link_arguments(_properties(tool.input_schema), facts)
        if (is_configured or is_queue) and _required(tool) <= set(arguments):
            why = "named as the queue tool" if is_configured else "by its outputSchema, it returns chunks"
            return PollStrategy(tool=tool.name, arguments=arguments, reason=f"tool {tool.name}: {why}")
    if facts.poll_tool is not None:
        return NotOffered(
            why=f"expected a tool {facts.poll_tool!r} (poll_tool) whose required arguments are given, the"
            f" server lists {', '.join(tool.name for tool in facts.tools) or 'none'}; add extra_arguments"
        )
    return NotOffered(why="no tool takes the link and returns chunks until it is done; set poll_tool")


def is_queue_schema(schema: object) -> bool:
    """Return True for the outputSchema of a tool that hands out chunks until it is done."""
    return {"chunks", "done"} <= _properties(schema)


def _file(facts: ResourceFacts) -> FileStrategy | NotOffered:
    if facts.is_file:
        return FileStrategy(uri=facts.uri, reason="the result names it as a file")
    if not facts.offers_files and facts.forced != "file":
        return NotOffered(why="the server does not declare file transfer")
    uri = facts.uri
    if facts.token is not None:
        # The link names a template that reads URLs; the file is the document at the URL.
        if facts.templates is None:
            return NotOffered(why="the server has not listed its templates", needs="templates")
        match = next(iter(_matches(facts)), None)
        uri = match.expand_without_range() if match is not None and match.is_in_query else uri
    return FileStrategy(uri=uri, reason="the server declares file transfer")


def _http_range(facts: ResourceFacts) -> HttpRangeStrategy | NotOffered:
    if facts.url is not None:
        return HttpRangeStrategy(url=facts.url, reason="the result gives a URL")
    if not is_url(facts.uri):
        return NotOffered(why="the URI is not a web address")
    if facts.is_listed is None and facts.forced is None:
        return NotOffered(why="the server has not listed its resources", needs="resources")
    if facts.is_listed and facts.forced is None:
        return NotOffered(why="the server lists the URI as its own resource")
    return HttpRangeStrategy(url=facts.uri, reason="the server does not list the URI, a web address")


def _whole(facts: ResourceFacts) -> WholeStrategy | NotOffered:
    return WholeStrategy(uri=facts.uri, extra=facts.extra_arguments, reason="no form of a range is left")


def _link_arguments(taken: frozenset[str], facts: ResourceFacts) -> dict[str, object]:
    """Return the argument that names the resource to a tool that takes the arguments `taken`, if any."""
    for name in URL_ARGUMENTS:
        if name in taken:
            return {name: facts.token or facts.uri if name == "url" else facts.uri}
    return {}


def _properties(schema: object) -> frozenset[str]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return frozenset(properties) if isinstance(properties, dict) else frozenset()


def _required(tool: Tool) -> set[object]:
    required = tool.input_schema.get("required")
    return {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()


def _is_for_links(tool: Tool) -> bool:
    """Return True for a tool that may be called unconfigured: it takes the link, and does not declare that it
    may be destructive."""
    notes = tool.annotations
    may_destroy = notes is not None and bool(notes.destructive_hint) and not notes.read_only_hint
    return not may_destroy and not _properties(tool.input_schema).isdisjoint(URL_ARGUMENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """An entry of `FORMS`."""

    name: str
    recognise: Callable[[ResourceFacts], RangeStrategy | NotOffered]


FORMS: Final = (
    Form(name="uri-template", recognise=_template),
    Form(name="arguments", recognise=_arguments),
    Form(name="query", recognise=_query),
    Form(name="params", recognise=_params),
    Form(name="meta", recognise=_meta),
    Form(name="tool", recognise=_tool),
    Form(name="cursor", recognise=_cursor),
    Form(name="poll", recognise=_poll),
    Form(name="file", recognise=_file),
    Form(name="http-range", recognise=_http_range),
    Form(name="whole", recognise=_whole),
)
"""All forms, in the order in which they are tried."""

STRATEGY_NAMES: Final = tuple(form.name for form in FORMS)


def recognise(facts: ResourceFacts) -> dict[str, RangeStrategy | NotOffered]:
    """Return the strategy of each form for a resource, or why it does not apply, in the order of `FORMS`.

    If `facts.forced` names a form, the result has only this form.

    Raises `UsageError` if `facts.forced` is unknown or cannot apply whatever the server lists, and if
    templates of several servers behind a gateway fit.
    """
    forced = facts.forced
    if forced is None:
        return {form.name: form.recognise(facts) for form in FORMS}
    if forced not in STRATEGY_NAMES:
        raise UsageError(
            f"range strategy: expected one of {', '.join(STRATEGY_NAMES)}, got {forced!r}; "
            "leave it out to let playhead choose"
        )
    (strategy,) = (form.recognise(facts) for form in FORMS if form.name == forced)
    if isinstance(strategy, NotOffered) and strategy.needs is None:
        raise UsageError(f"range strategy {forced}: {strategy.why}; choose another strategy, or none")
    return {forced: strategy}


def candidate_strategies(facts: ResourceFacts) -> tuple[RangeStrategy, ...]:
    """Return the strategies that apply to a resource, in the order in which they are tried.

    Raises `UsageError` as `recognise` does.
    """
    return tuple(strategy for strategy in recognise(facts).values() if not isinstance(strategy, NotOffered))
