"""The forms in which one resource can be read.

`stream.strategies` decides from facts which forms apply. `StreamForms` requests the listings that give these
facts, and makes the readers that send each form's requests to the server. A web link that the server does not
list as a resource is read with HTTP Range, from public addresses only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, assert_never

import trio

from playhead.client.call_results.media import ResourceMedia
from playhead.client.session.arrivals import Arrivals
from playhead.client.session.cached_reads import CachedReads
from playhead.client.session.downloads import (
    AUTHORIZE_METHOD,
    Download,
    download_from,
    offers_downloads,
    web_origins,
)
from playhead.client.session.once_reader import OnceReader
from playhead.client.session.resource_updates import ResourceUpdates
from playhead.client.session.shared_reads import SessionReads, SharedReads
from playhead.client.session.template_listing import DESCRIBED_WAIT_SECONDS, WAIT_SECONDS, Templates
from playhead.client.session.tool_calls import SendRequest, ToolCaller
from playhead.config.servers import ServerConfig
from playhead.content.playlists import HLS_MIME
from playhead.errors import PlayheadError, ServerError, naming_descriptor_limit
from playhead.limits import Limits
from playhead.redaction import redacted_url
from playhead.stream.answer import Page, ReadRange
from playhead.stream.cursor_pages import CursorReader
from playhead.stream.live_source import LinkRate
from playhead.stream.negotiation import LateForm, RangeForm, Refusal
from playhead.stream.options import DEFAULT_OPTIONS, ReadCounts, StreamOptions
from playhead.stream.polling import QueueReader
from playhead.stream.probing import Prober
from playhead.stream.result_pages import resource_bytes
from playhead.stream.strategies import (
    CHUNK_CAPABILITY,
    FORMS,
    CursorStrategy,
    Fact,
    FileStrategy,
    HttpRangeStrategy,
    NotOffered,
    PollStrategy,
    RangeStrategy,
    ReadStrategy,
    RequestStrategy,
    ResourceFacts,
    ResourceRequest,
    TemplateStrategy,
    ToolRequest,
    ToolStrategy,
    WholeStrategy,
    is_token,
    is_url,
    recognise,
)

if TYPE_CHECKING:
    from mcp_types import Tool

    from playhead.client.session.http_range_reader import HttpRangeReader
    from playhead.client.transports.http_client import HttpClient


def stream_options(config: ServerConfig, limits: Limits) -> StreamOptions:
    """Return the server's settings, completed by the general defaults. Pages do not grow beyond a page size
    that is set."""
    return StreamOptions(
        page_bytes=config.page_size_bytes or DEFAULT_OPTIONS.page_bytes,
        page_bytes_max=config.page_size_bytes or DEFAULT_OPTIONS.page_bytes_max,
        in_flight=config.in_flight or DEFAULT_OPTIONS.in_flight,
        poll_tool=config.poll_tool,
        timeout=limits.page_seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FormExplanation:
    """A form of a ranged read, and the reason why it applies to a resource or does not."""

    name: str
    is_offered: bool
    reason: str
    is_tried: bool = False
    """True if the form is not announced, and is tried with one small read after the offered ones."""


@dataclass(slots=True, kw_only=True)
class ServerForms:
    """The parts of a session that all of its streams need, and the knowledge about its server's forms."""

    name: str
    """The server's name in messages."""
    handshake: Mapping[str, Any] | None
    capabilities: Mapping[str, Any]
    server_info: Mapping[str, Any] | None
    config: ServerConfig
    limits: Limits
    send: SendRequest
    caller: ToolCaller
    list_tools: Callable[[], Awaitable[Sequence[Tool]]]
    list_raw: Callable[[str], Awaitable[Sequence[Mapping[str, Any]]]]
    """Lists all items of a listing method, such as `resources/list`."""
    reads: SessionReads
    start_soon: Callable[..., None]
    """Starts a task that lives as long as the session."""
    updates: ResourceUpdates
    templates: Templates = field(default_factory=Templates)
    worked: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The name and reason of the form that delivered. The key is the reason of the first template's match or,
    without a template, the directory of the URI (`StreamForms._key`)."""
    bounds: dict[str, Literal["end", "length"]] = field(default_factory=dict)
    """The meaning of the second variable, for templates that needed a probe, by the reason of their match."""
    tools: Sequence[Tool] | None = None
    """The tools, once they are listed."""
    rate: LinkRate = field(default_factory=LinkRate)
    """The rate of the HLS segments that this session's streams have read."""

    @property
    def may_have_resources(self) -> bool:
        # Empty capabilities prove nothing, because without a handshake they are empty too.
        return self.capabilities.get("resources") is not None or not self.capabilities

    @property
    def has_growing_resources(self) -> bool:
        """True if the server declares that its resources without a size may still grow."""
        match self.capabilities:
            case {"experimental": {"resourceGrowing": declared}}:
                return declared is not False
        return False


class StreamForms:
    """The forms of one stream, and their readers."""

    def __init__(
        self, media: ResourceMedia, options: StreamOptions, server: ServerForms, stack: AsyncExitStack
    ) -> None:
        """`stack` is closed with the stream, and closes what the forms have opened."""
        self._media = media
        self._options = options
        self._server = server
        self._limits = server.limits
        self._stack = stack
        self._key = _directory(media.uri)
        self._forced_by = ""
        size_bytes = media.size_bytes if options.size_bytes is None else options.size_bytes
        self._prober = Prober(size_bytes=size_bytes, limits=server.limits, server_name=server.name)
        self.facts = ResourceFacts(uri=media.uri)
        self.arrivals = Arrivals()
        self.counts = ReadCounts()
        self._file_reader: HttpRangeReader | None = None

    @property
    def is_live(self) -> bool:
        """True if the resource still grows, as the option, its link or the server declares it."""
        if self._options.live is not None:
            return self._options.live
        has_size = self._media.size_bytes is not None or self._options.size_bytes is not None
        return self._media.is_live or (self._server.has_growing_resources and not has_size)

    def sha256(self) -> str | None:
        """Return the digest that the tool result announced or, else, that the server gave with the file's
        URL."""
        authorized = None if self._file_reader is None else self._file_reader.file
        digests = (file.sha256 for file in (self._media.file, authorized) if file is not None)
        return next(filter(None, digests), None)

    async def find(self) -> list[RangeForm | LateForm]:
        """Return the forms in the order to try them. The last one is never a `LateForm`.

        Raises `UsageError` if the requested strategy does not apply, and the errors of a listing that the
        first form needs.
        """
        if self._media.mime_type == HLS_MIME and not is_url(self._media.uri):
            return [await self._list_form(self._media.uri)]
        self.facts = await self._first_facts()
        strategies = recognise(self.facts)
        if isinstance(template := strategies.get("uri-template"), TemplateStrategy):
            self._key = template.match.reason
        forms: list[RangeForm | LateForm] = []
        trials: list[ReadStrategy] = []
        for name, strategy in strategies.items():
            if not isinstance(strategy, NotOffered):
                forms += await self._forms(strategy)
            elif strategy.needs is not None:
                forms.append(self._late(name))
            elif strategy.trial is not None:
                trials.append(strategy.trial)
        if self.facts.templates is None:  # not listed yet: try templates late, just before the last form
            forms.insert(-1, forms.pop(0))
        must_settle = self.facts.forced is not None or is_url(self.facts.uri)
        while must_settle and isinstance(first := forms[0], LateForm):
            settled = await first.find()
            if isinstance(settled, Refusal):
                break
            forms[:1] = settled
            if not forms:
                recognise(self.facts)  # raises the reason why the forced form does not apply
        if isinstance(whole := forms[-1], RangeForm):
            forms[-1:-1] = [self._trial(each, await self._form(each), whole) for each in trials]
        worked, _ = self._server.worked.get(self._key, ("", ""))
        if worked == forms[-1].name:
            forms.insert(0, forms[-1])  # it also stays the last
        else:
            forms.sort(key=lambda form: form.name != worked)
        return forms

    async def explain(self) -> tuple[FormExplanation, ...]:
        """Return all forms in the order in which they are tried, each with the reason why it applies or not.

        Requests every listing that a form needs. Raises as `find`.
        """
        self.facts = replace(await self._first_facts(), forced=None)
        for fact in ("templates", "tools", "resources"):
            strategies = recognise(self.facts).values()
            if any(isinstance(it, NotOffered) and it.needs == fact for it in strategies):
                await self._learn(fact)
        explained = [
            FormExplanation(name=name, is_offered=False, reason=it.why, is_tried=it.trial is not None)
            if isinstance(it, NotOffered)
            else FormExplanation(name=name, is_offered=True, reason=it.reason)
            for name, it in recognise(self.facts).items()
        ]

        def order(it: FormExplanation) -> tuple[bool, bool, bool]:
            return not (it.is_offered or it.is_tried), it.name == "whole", it.is_tried

        return tuple(sorted(explained, key=order))

    def remark(self, is_missing: bool) -> str:
        """Return the end of the error message if all forms are refused: the templates and tools that do not
        fit and, if the server does not know a link that its tool returned (`is_missing`), the likely
        cause."""
        strategies = [] if self._forced_by else [form.recognise(self.facts) for form in FORMS]
        unfit = [it.unfit for it in strategies if isinstance(it, NotOffered) and it.unfit]
        forgot = (
            f"; tool {self.facts.tool} returned this link, and the server does not know it: behind a gateway"
            " that starts a server for each request (as FastMCP's proxy of stdio servers does) the server has"
            " forgotten it; run it over HTTP behind the gateway, or connect to it without"
        )
        listed = f"; listed and not fitting: {'; '.join(unfit)}" if unfit else ""
        return listed + (forgot if is_missing and self.facts.tool is not None else "")

    async def _first_facts(self) -> ResourceFacts:
        """Return the facts that are known without another request."""
        media, options, config = self._media, self._options, self._server.config
        forced = options.strategy or config.range_strategy
        if forced is not None:
            self._forced_by = "--strategy" if options.strategy else "range_strategy"
        is_file = media.file is not None and options.strategy is None
        if is_file:
            forced, self._forced_by = "file", ""  # its URI means nothing to the other forms
        queue_arguments = media.queue_arguments
        if queue_arguments is not None:
            forced, self._forced_by = "poll", ""  # a queue has no URI
        templates: tuple[str, ...] | None = None if forced == "file" else ()
        if forced == "uri-template":
            templates = await self._server.templates.listed()
        elif forced is None:
            within_seconds = DESCRIBED_WAIT_SECONDS if is_token(media.description) else WAIT_SECONDS
            templates = await self._server.templates.known(within_seconds=within_seconds)
        capabilities, tools = self._server.capabilities, self._server.tools
        has_tools = capabilities.get("tools") is not None
        if tools is not None:
            tools = self._allowed(tools)
        return ResourceFacts(
            uri=media.uri,
            description=media.description,
            tool=media.tool,
            templates=templates,
            tools=tools if has_tools else (),
            is_listed=None if self._server.may_have_resources and is_url(media.uri) else False,
            chunk_bytes_max=chunk_bytes_max(capabilities),
            offers_files=offers_downloads(self._server.handshake),
            is_file=is_file,
            is_queue=queue_arguments is not None,
            only_repeatable=options.only_repeatable,
            extra_arguments=options.extra_arguments or config.extra_arguments
            if queue_arguments is None
            else queue_arguments,
            meta_key=options.meta_key or config.meta_key,
            range_tool=options.range_tool or config.range_tool,
            poll_tool=media.tool if queue_arguments is not None else options.poll_tool or config.poll_tool,
            forced=forced,
        )

    def _late(self, name: str) -> LateForm:
        async def find() -> Sequence[RangeForm | LateForm]:
            (entry,) = (form for form in FORMS if form.name == name)
            strategy = entry.recognise(self.facts)
            while isinstance(strategy, NotOffered) and strategy.needs is not None:
                await self._learn(strategy.needs)
                strategy = entry.recognise(self.facts)
            return () if isinstance(strategy, NotOffered) else await self._forms(strategy)

        return LateForm(name=name, find=find)

    async def _forms(self, strategy: RangeStrategy) -> list[RangeForm | LateForm]:
        """Return the form of `strategy` or, for a template, the forms of all templates that fit."""
        if isinstance(strategy, HttpRangeStrategy):
            return [await self._web_form(strategy)]
        if not isinstance(strategy, TemplateStrategy):
            return [await self._form(strategy)]
        _, worked = self._server.worked.get(self._key, ("", ""))
        fitting = [strategy, *strategy.others]
        fitting.sort(key=lambda each: -len(each.reason) if worked.startswith(each.reason) else 0)
        return [
            await self._form(each) if each.match.variables.kind in {"end", "length"} else self._probed(each)
            for each in fitting
        ]

    async def _web_form(self, strategy: HttpRangeStrategy) -> LateForm:
        from playhead.client.live.forms import web_form  # as `_origin_reader`

        reader = await self._origin_reader(strategy.url)
        return web_form(
            reader,
            partial(self._form, strategy, read=reader),
            options=self._options,
            limits=self._limits,
            rate=self._server.rate,
            server_name=redacted_url(strategy.url),
            stack=self._stack,
        )

    async def _list_form(self, uri: str) -> RangeForm:
        """Return the form of an HLS playlist that is a resource. Its segments are URLs."""
        from playhead.client.live.forms import open_hls

        async def read_list() -> bytes:
            self.counts.server_reads += 1
            result = await self._server.send(
                "resources/read",
                {"uri": uri},
                silent_seconds=self._options.timeout,
                total_seconds=math.inf,
                arrivals=self.arrivals,
            )
            return resource_bytes(result, limits=self._limits, server=self._server.name)

        return await open_hls(
            await self._web_client(),
            uri,
            await read_list(),
            options=self._options,
            limits=self._limits,
            rate=self._server.rate,
            arrivals=self.arrivals,
            read_list=read_list,
            stack=self._stack,
        )

    def _trial(self, strategy: ReadStrategy, form: RangeForm, whole: RangeForm) -> LateForm:
        async def find() -> Sequence[RangeForm] | Refusal:
            tried = await self._prober.try_form(form, whole=whole)
            return tried if isinstance(tried, Refusal) else [tried]

        return LateForm(name=strategy.name, find=find)

    def _probed(self, strategy: TemplateStrategy) -> LateForm:
        """Return the form of a template whose variables have a meaning that only probes can tell."""
        match, known = strategy.match, self._server.bounds

        async def read(first: int, second: int) -> Page:
            result = await self._send_read(strategy.raw(first, second))
            return strategy.page(result, start=0, limits=self._limits, server=self._server.name)

        async def find() -> Sequence[RangeForm] | Refusal:
            variables = match.variables
            try:
                if variables.kind == "page":
                    has_size = variables.second is not None
                    pages = await self._prober.learn_pages(read, has_size=has_size)
                    return [replace(await self._form(strategy, read=pages), page_bytes=pages.step)]
                if strategy.reason not in known:
                    known[strategy.reason] = await self._prober.learn_bound(read)
            except PlayheadError as error:
                return Refusal(error=error.with_traceback(None))
            bound = replace(variables, kind=known[strategy.reason])
            learned = f"{strategy.reason}, whose {variables.second} is the {bound.kind} by two small reads"
            settled = replace(strategy, match=replace(match, variables=bound), reason=learned)
            return [await self._form(settled)]

        return LateForm(name=strategy.name, find=find)

    async def _learn(self, fact: Fact) -> None:
        match fact:
            case "templates":
                self.facts = replace(self.facts, templates=await self._server.templates.listed())
            case "tools":
                tools: Sequence[Tool] = ()
                seconds = WAIT_SECONDS if self.facts.forced is None else math.inf
                with trio.move_on_after(seconds):
                    try:
                        tools = await self._server.list_tools()
                    except ServerError:
                        tools = ()
                    self._server.tools = tools
                self.facts = replace(self.facts, tools=self._allowed(tools))
            case "resources":
                listed: Sequence[Mapping[str, Any]] = ()
                with suppress(ServerError):
                    listed = await self._server.list_raw("resources/list")
                is_listed = any(resource.get("uri") == self.facts.uri for resource in listed)
                self.facts = replace(self.facts, is_listed=is_listed)
            case _:
                assert_never(fact)

    def _allowed(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        allowed = self._server.config.allowed_tools
        return tuple(tool for tool in tools if allowed is None or tool.name in allowed)

    # --- reading ---------------------------------------------------------------------------------------

    async def _form(self, strategy: RangeStrategy, read: ReadRange | None = None) -> RangeForm:
        reason = f"set by {self._forced_by}" if self._forced_by else strategy.reason
        if self._server.worked.get(self._key, ("", ""))[0] == strategy.name:
            reason += "; it has worked before"
        read = read or await self._reader(strategy)
        cached = self._cached(strategy, read)
        return RangeForm(
            name=strategy.name,
            read=cached or read,
            on_stored=None if cached is None else cached.stored,
            on_end=None if cached is None else cached.ended,
            start_soon=self._server.start_soon if isinstance(read, SharedReads) else None,
            waits_for_others=lambda: cached is not None and cached.waits_for_others,
            reason=reason,
            follow_growth=partial(self._server.updates.follow, self._media.uri)
            if isinstance(strategy, ReadStrategy)
            else None,
            is_queue=isinstance(strategy, CursorStrategy | PollStrategy),
            on_delivered=partial(
                self._server.worked.__setitem__, self._key, (strategy.name, strategy.reason)
            ),
        )

    def _cached(self, strategy: RangeStrategy, read: ReadRange) -> CachedReads | None:
        """Return a reader that looks into the page cache before it calls `read`. None without a page cache,
        and for a form that does not read ranges, or whose reads may have effects."""
        queues = CursorStrategy | PollStrategy | WholeStrategy
        if self._server.reads.cache is None or self.is_live:
            return None
        if isinstance(strategy, queues) or isinstance(read, OnceReader):
            return None
        media, info, facts = self._media, self._server.server_info, self.facts
        resource: object = _identity(strategy)
        if isinstance(strategy, ReadStrategy):
            # The form is not part of the key, because it varies: a busy server may list its templates too
            # late.
            resource = ["read", media.uri, facts.token, dict(facts.extra_arguments), media.tool]
        cached = CachedReads(
            read,
            session=self._server.reads,
            server=None if info is None else [info.get("name"), info.get("version")],
            resource=resource,
            validator=media.validator,
            size_bytes=media.size_bytes if self._options.size_bytes is None else self._options.size_bytes,
            mime_type=media.mime_type,
            counts=self.counts,
            start_soon=self._server.start_soon,
            server_name=self._server.name,
        )
        self._stack.push_async_callback(cached.aclose)
        return cached

    async def _reader(self, strategy: RangeStrategy) -> ReadRange:
        """Return the reader of ranges in the form of `strategy`."""
        match strategy:
            case CursorStrategy():
                return CursorReader(
                    lambda cursor: self._send_read(strategy.request(cursor)),
                    first=strategy.first,
                    is_repeatable=strategy.is_repeatable,
                    tool=strategy.tool,
                    limits=self._limits,
                    server=self._server.name,
                )
            case PollStrategy():
                request = ToolRequest(name=strategy.tool, arguments=dict(strategy.arguments))
                return QueueReader(
                    partial(self._send_read, request),
                    tool=strategy.tool,
                    limits=self._limits,
                    server=self._server.name,
                )
            case HttpRangeStrategy():
                return await self._origin_reader(strategy.url)
            case ToolStrategy(is_repeatable=False):
                read = partial(self._read, strategy)
                return OnceReader(read, timeout_seconds=self._options.timeout)
            case FileStrategy():
                authorize = partial(self._authorize, strategy.uri)
                self._file_reader = await self._origin_reader(authorize)
                return self._file_reader
            case ToolStrategy():
                return partial(self._read, strategy)
            case _:
                return SharedReads(
                    partial(self._read, strategy),
                    session=self._server.reads,
                    resource=_identity(strategy),
                    arrivals=self.arrivals,
                )

    def _send_read(
        self, request: ResourceRequest | ToolRequest, arrivals: Arrivals | None = None
    ) -> Awaitable[dict[str, Any]]:
        """Send a read. `StreamOptions.timeout` limits its silence; the total time has no limit here."""
        seconds, arrivals = self._options.timeout, arrivals or self.arrivals
        if isinstance(request, ToolRequest):
            return self._server.caller.call(
                request.name, request.arguments, seconds=seconds, on_progress=None, arrivals=arrivals
            )
        self.counts.server_reads += 1
        return self._server.send(
            "resources/read",
            request.params(),
            silent_seconds=seconds,
            total_seconds=math.inf,
            arrivals=arrivals,
        )

    async def _read(
        self, strategy: RequestStrategy, start: int, end: int, arrivals: Arrivals | None = None
    ) -> Page:
        result = await self._send_read(strategy.request(start, end), arrivals)
        return strategy.page(result, start=start, limits=self._limits, server=self._server.name)

    async def _authorize(self, uri: str) -> Download:
        seconds = self._options.timeout
        total_seconds = max(self._limits.tool_total_seconds, seconds)
        result = await self._server.send(
            AUTHORIZE_METHOD, {"uri": uri}, silent_seconds=seconds, total_seconds=total_seconds
        )
        return download_from(result, uri=uri, server=self._server.name)

    async def _origin_reader(self, authorize: str | Callable[[], Awaitable[Download]]) -> HttpRangeReader:
        """Return a reader of a URL. Raises `BlockedAddressError` for a URL that may not be fetched."""
        client = await self._web_client()
        with naming_descriptor_limit():
            from playhead.client.session.http_range_reader import PLAY_BYTES, SAVE_BYTES, HttpRangeReader

        reader = HttpRangeReader(
            client,
            authorize,
            allow_origins=web_origins(self._server.config),
            run_bytes=PLAY_BYTES if self._options.profile == "play" else SAVE_BYTES,
            arrivals=self.arrivals,
        )
        return await self._stack.enter_async_context(aclosing(reader))

    async def _web_client(self) -> HttpClient:
        # Imported here, because the HTTP client is needed only for URLs outside of MCP.
        with naming_descriptor_limit():
            from playhead.client.transports.http_client import guarded_client

        limits = replace(self._limits, page_seconds=self._options.timeout)
        client = guarded_client(allow_origins=web_origins(self._server.config), limits=limits)
        return await self._stack.enter_async_context(client)


def _identity(strategy: RangeStrategy) -> Hashable:
    """Return a key that is the same for all reads of a resource in one form."""
    match strategy:
        case HttpRangeStrategy():
            resource: object = strategy.url
        case FileStrategy():
            resource = strategy.uri
        case CursorStrategy() | PollStrategy():
            resource = [strategy.tool, dict(strategy.arguments)]
        case _:
            resource = asdict(strategy.request(0, 1))
    return strategy.name, json.dumps(resource, sort_keys=True, default=str)


def chunk_bytes_max(capabilities: Mapping[str, Any]) -> int | None:
    """Return the longest range of the form `params`, if the server declares it."""
    match capabilities:
        case {"experimental": {**declared}}:
            declaration = declared.get(CHUNK_CAPABILITY)
        case _:
            return None
    max_bytes = declaration.get("maxChunkBytes") if isinstance(declaration, dict) else None
    if isinstance(max_bytes, int) and not isinstance(max_bytes, bool) and max_bytes > 0:
        return max_bytes
    return None


def _directory(uri: str) -> str:
    """Return a URI up to its last slash. Resources that share it are assumed to be read in the same form."""
    return uri.partition("?")[0].rpartition("/")[0]
