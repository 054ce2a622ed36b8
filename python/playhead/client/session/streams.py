"""Find the forms in which a resource can be read, and read it in them: requests to the server, or the web.

`stream.strategies` recognises the forms; here are the requests that it needs to know, and the I/O of each
form. A web link that the server does not list as a resource is read with HTTP Range, under the same planner
and end rules, and from public addresses only. Finding a form and reading in it share this file, because both
need the options, the facts and the server of one stream.
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
from playhead.client.session.downloads import (
    AUTHORIZE_METHOD,
    Download,
    download_from,
    offers_downloads,
    web_origins,
)
from playhead.client.session.once_reader import OnceReader
from playhead.client.session.shared_reads import Arrivals, CachedReads, SessionReads, SharedReads
from playhead.client.session.tool_calls import SendRequest, ToolCaller
from playhead.config.servers import ServerConfig
from playhead.errors import PlayheadError, ServerError, naming_descriptor_limit
from playhead.limits import Limits
from playhead.stream.answer import Page, ReadRange
from playhead.stream.cursor_pages import CursorReader
from playhead.stream.negotiation import LateForm, RangeForm, Refusal
from playhead.stream.options import DEFAULT_OPTIONS, ReadCounts, StreamOptions
from playhead.stream.polling import QueueReader
from playhead.stream.probing import Prober
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

WAIT_SECONDS = 2.0
"""Limit for opening a stream to wait for a listing in progress. The listing is sent before anything else, so
only a stream opened right after connecting waits at all, for about a round trip."""

DESCRIBED_WAIT_SECONDS = 1.0
"""The same for a link whose description is a URL: most servers accept that as `arguments`, but one that
offers only a template does not, and would fail at once."""


class Templates:
    """The resource templates of a server, listed once in the background, never on the path of a page."""

    def __init__(self) -> None:
        self._found: tuple[str, ...] = ()
        self._error: PlayheadError | None = None
        self._settled = trio.Event()

    async def learn(self, listing: Callable[[], Awaitable[Sequence[str]]] | None) -> None:
        """Run `listing` once; None for a server that declares no resources.

        Its error is remembered for `listed`.
        """
        try:
            if listing is not None:
                self._found = tuple(await listing())
        except PlayheadError as error:
            self._error = error.with_traceback(None)
        finally:
            self._settled.set()

    async def known(self, *, within_seconds: float) -> tuple[str, ...] | None:
        """Return the templates; None if they are still being listed after `within_seconds`.

        A failed listing is empty: a stream then uses another form, or fails with its own error.
        """
        with trio.move_on_after(within_seconds):
            await self._settled.wait()
        return self._found if self._settled.is_set() else None

    async def listed(self) -> tuple[str, ...]:
        """Return the templates once they are listed, for a caller that needs them.

        The listing has its own deadline. Raises its error if it failed.
        """
        await self._settled.wait()
        if self._error is not None:
            raise self._error
        return self._found


def stream_options(config: ServerConfig, limits: Limits) -> StreamOptions:
    """The server's settings over the general defaults. A page size is a limit: pages do not grow beyond
    it."""
    return StreamOptions(
        page_bytes=config.page_size_bytes or DEFAULT_OPTIONS.page_bytes,
        page_bytes_max=config.page_size_bytes or DEFAULT_OPTIONS.page_bytes_max,
        in_flight=config.in_flight or DEFAULT_OPTIONS.in_flight,
        poll_tool=config.poll_tool,
        timeout=limits.page_seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FormExplanation:
    """A form of a ranged read, and why it applies to a resource or does not."""

    name: str
    is_offered: bool
    reason: str
    is_tried: bool = False
    """Nothing says that the server takes the form; it is tried with one small read, after those that are
    offered."""


@dataclass(slots=True, kw_only=True)
class ServerForms:
    """The means of a session to read in any form, and what it has learned about its server's forms."""

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
    """Lists by the method's name."""
    reads: SessionReads
    start_soon: Callable[..., None]
    """Starts a task that lives as long as the session."""
    templates: Templates = field(default_factory=Templates)
    worked: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The form that delivered and why it applied, by the reason of the first template's match, or by the
    directory of the URIs."""
    bounds: dict[str, Literal["end", "length"]] = field(default_factory=dict)
    """The meaning of a guessed variable, by the reason of the template's match."""
    tools: Sequence[Tool] | None = None
    """The listed tools, once somebody has listed them."""

    @property
    def may_have_resources(self) -> bool:
        # Empty capabilities mean nothing: a server connected without a handshake has them.
        return self.capabilities.get("resources") is not None or not self.capabilities


class StreamForms:
    """The forms of one stream, with what reads them."""

    def __init__(
        self, media: ResourceMedia, options: StreamOptions, server: ServerForms, stack: AsyncExitStack
    ) -> None:
        """`stack` is left when the stream is closed: it owns what a form opens."""
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

    def sha256(self) -> str | None:
        """The digest that the result announced, or the server with the first URL."""
        described = None if self._file_reader is None else self._file_reader.file
        found = (file.sha256 for file in (self._media.file, described) if file is not None)
        return next(filter(None, found), None)

    async def find(self) -> list[RangeForm | LateForm]:
        """Return the forms in the order to try them; the last is known.

        Raises `UsageError` if the requested strategy does not apply, and what listing raises if it is needed
        for the first form.
        """
        self.facts = await self._first_facts()
        found = recognise(self.facts)
        if isinstance(template := found.get("uri-template"), TemplateStrategy):
            self._key = template.match.reason
        forms: list[RangeForm | LateForm] = []
        trials: list[ReadStrategy] = []
        for name, strategy in found.items():
            if not isinstance(strategy, NotOffered):
                forms += await self._forms(strategy)
            elif strategy.needs is not None:
                forms.append(self._late(name))
            elif strategy.trial is not None:
                trials.append(strategy.trial)
        if self.facts.templates is None:  # a second chance, before the last resort
            forms.insert(-1, forms.pop(0))
        is_asked_first = self.facts.forced is not None or is_url(self.facts.uri)
        while is_asked_first and isinstance(first := forms[0], LateForm):
            settled = await first.find()
            if isinstance(settled, Refusal):
                break
            forms[:1] = settled
            if not forms:
                recognise(self.facts)  # the forced form: raises why it does not apply
        if isinstance(whole := forms[-1], RangeForm):
            forms[-1:-1] = [self._trial(each, await self._form(each), whole) for each in trials]
        worked, _ = self._server.worked.get(self._key, ("", ""))
        if worked == forms[-1].name:
            forms.insert(0, forms[-1])  # the last form stays one that is known
        else:
            forms.sort(key=lambda form: form.name != worked)
        return forms

    async def explain(self) -> tuple[FormExplanation, ...]:
        """Return all forms in the order in which they are tried, each with the reason why it applies or not.

        Requests every listing that decides about one. Raises as `find`.
        """
        self.facts = replace(await self._first_facts(), forced=None)
        for fact in ("templates", "tools", "resources"):
            found = recognise(self.facts).values()
            if any(isinstance(it, NotOffered) and it.needs == fact for it in found):
                await self._learn(fact)
        explained = [
            FormExplanation(name=name, is_offered=False, reason=it.why, is_tried=it.trial is not None)
            if isinstance(it, NotOffered)
            else FormExplanation(name=name, is_offered=True, reason=it.reason)
            for name, it in recognise(self.facts).items()
        ]

        def turn(it: FormExplanation) -> tuple[bool, bool, bool]:
            return not (it.is_offered or it.is_tried), it.name == "whole", it.is_tried

        return tuple(sorted(explained, key=turn))

    def remark(self, is_missing: bool) -> str:
        """Return what the server lists and does not fit, and that it forgot its own link if it did."""
        found = {form.name: form.recognise(self.facts) for form in FORMS} if not self._forced_by else {}
        unfit = [it.unfit for it in found.values() if isinstance(it, NotOffered) and it.unfit]
        forgot = (
            f"; tool {self.facts.tool} returned this link, and the server does not know it: behind a gateway"
            " that starts a server for each request (as FastMCP's proxy of stdio servers does) the server has"
            " forgotten it; run it over HTTP behind the gateway, or connect to it without"
        )
        listed = f"; listed and not fitting: {'; '.join(unfit)}" if unfit else ""
        return listed + (forgot if is_missing and self.facts.tool is not None else "")

    async def _first_facts(self) -> ResourceFacts:
        """The facts that need no request of their own."""
        media, options, config = self._media, self._options, self._server.config
        forced = options.strategy or config.range_strategy
        self._forced_by = "" if forced is None else "--strategy" if options.strategy else "range_strategy"
        is_file = media.file is not None and options.strategy is None
        if is_file:
            forced, self._forced_by = "file", ""  # no other form knows its URI
        queue_arguments = media.queue_arguments
        if queue_arguments is not None:
            forced, self._forced_by = "poll", ""  # nor that of a queue
        offered: tuple[str, ...] | None = None if forced == "file" else ()
        if forced == "uri-template":
            offered = await self._server.templates.listed()
        elif forced is None:
            within_seconds = DESCRIBED_WAIT_SECONDS if is_token(media.description) else WAIT_SECONDS
            offered = await self._server.templates.known(within_seconds=within_seconds)
        capabilities, tools = self._server.capabilities, self._server.tools
        has_tools = capabilities.get("tools") is not None
        if tools is not None:
            tools = self._allowed(tools)
        return ResourceFacts(
            uri=media.uri,
            description=media.description,
            tool=media.tool,
            templates=offered,
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
            found = entry.recognise(self.facts)
            while isinstance(found, NotOffered) and found.needs is not None:
                await self._learn(found.needs)
                found = entry.recognise(self.facts)
            return () if isinstance(found, NotOffered) else await self._forms(found)

        return LateForm(name=name, find=find)

    async def _forms(self, strategy: RangeStrategy) -> list[RangeForm | LateForm]:
        """Return the form of `strategy`, and those of other templates that fit."""
        if not isinstance(strategy, TemplateStrategy):
            return [await self._form(strategy)]
        _, worked = self._server.worked.get(self._key, ("", ""))
        fitting = [strategy, *strategy.others]
        fitting.sort(key=lambda each: -len(each.reason) if worked.startswith(each.reason) else 0)
        return [
            await self._form(each) if each.match.variables.kind in {"end", "length"} else self._probed(each)
            for each in fitting
        ]

    def _trial(self, strategy: ReadStrategy, form: RangeForm, whole: RangeForm) -> LateForm:
        async def find() -> Sequence[RangeForm] | Refusal:
            tried = await self._prober.try_form(form, whole=whole)
            return tried if isinstance(tried, Refusal) else [tried]

        return LateForm(name=strategy.name, find=find)

    def _probed(self, strategy: TemplateStrategy) -> LateForm:
        """The form of a template of which only probes tell what its variables mean."""
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
            is_queue=isinstance(strategy, CursorStrategy | PollStrategy),
            on_delivered=partial(
                self._server.worked.__setitem__, self._key, (strategy.name, strategy.reason)
            ),
        )

    def _cached(self, strategy: RangeStrategy, read: ReadRange) -> CachedReads | None:
        """Let `read` look into the page cache first; None without one, and for a form whose reads are not of
        ranges, or may have effects."""
        queues = CursorStrategy | PollStrategy | WholeStrategy
        if self._server.reads.cache is None or isinstance(strategy, queues) or isinstance(read, OnceReader):
            return None
        media, info, facts = self._media, self._server.server_info, self.facts
        resource: object = _identity(strategy)
        if isinstance(strategy, ReadStrategy):
            # Not the form: a busy server lists its templates late, and is then read in another one.
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
        """Return what reads ranges in the form of `strategy`."""
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
        """Send a read; its patience decides for how long it is awaited, as long as bytes arrive."""
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
        """Raises `BlockedAddressError` for a URL that may not be fetched."""
        origins = web_origins(self._server.config)
        # The HTTP client is loaded for a URL outside of MCP only.
        with naming_descriptor_limit():
            from playhead.client.session.http_range_reader import PLAY_BYTES, SAVE_BYTES, HttpRangeReader
            from playhead.client.transports.http_client import guarded_client

        limits = replace(self._limits, page_seconds=self._options.timeout)
        client = await self._stack.enter_async_context(guarded_client(allow_origins=origins, limits=limits))
        reader = HttpRangeReader(
            client,
            authorize,
            allow_origins=origins,
            run_bytes=PLAY_BYTES if self._options.profile == "play" else SAVE_BYTES,
            arrivals=self.arrivals,
        )
        return await self._stack.enter_async_context(aclosing(reader))


def _identity(strategy: RangeStrategy) -> Hashable:
    """Return the part that all reads of a resource in one form have in common."""
    match strategy:
        case HttpRangeStrategy():
            about: object = strategy.url
        case FileStrategy():
            about = strategy.uri
        case CursorStrategy() | PollStrategy():
            about = [strategy.tool, dict(strategy.arguments)]
        case _:
            about = asdict(strategy.request(0, 1))
    return strategy.name, json.dumps(about, sort_keys=True, default=str)


def chunk_bytes_max(capabilities: Mapping[str, Any]) -> int | None:
    """The longest range of the form `params`, if the server declares it."""
    match capabilities:
        case {"experimental": {**declared}}:
            declaration = declared.get(CHUNK_CAPABILITY)
        case _:
            return None
    most = declaration.get("maxChunkBytes") if isinstance(declaration, dict) else None
    return most if isinstance(most, int) and not isinstance(most, bool) and most > 0 else None


def _directory(uri: str) -> str:
    """The part of a URI that resources read in the same form share: up to its last slash."""
    return uri.partition("?")[0].rpartition("/")[0]
