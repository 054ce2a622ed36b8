"""A session with one MCP server: tools, prompts, resources, ranges of resources and streams of them.

Everything goes through `Connection.request`: our own request, our own lenient reading of the answer, a
deadline from the last byte. Reads may be retried (by the stream's planner, which sees `TransportError`); how
tools are called is in `client.calling`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    Implementation,
    ListPromptsRequest,
    ListResourcesRequest,
    ListResourceTemplatesRequest,
    ListToolsRequest,
    Prompt,
    Request,
    Resource,
    ResourceLink,
    ResourceTemplate,
    ServerCapabilities,
    Tool,
)

from playhead.client.calling import Caller
from playhead.client.calls import CallResult, as_media, understood
from playhead.client.changes import ToolChanges
from playhead.client.connection import Connection
from playhead.client.elicitation import Asker
from playhead.client.listing import ListingRequest, ModelT, list_through
from playhead.client.media import ResourceMedia
from playhead.client.opening import Reading, leads_to_the_web, options_of, strategy_for, web_reading
from playhead.client.prompts import PromptResult, prompt_from, prompt_request
from playhead.client.reads import page_from, read_request
from playhead.client.requests import RangedReadRequest, RawRequest
from playhead.client.statistics import SessionStatistics
from playhead.client.supervise import Supervisor
from playhead.client.templates import Templates
from playhead.client.wire import WireFaults
from playhead.config.servers import ServerConfig
from playhead.errors import (
    SessionLostError,
    UsageError,
)
from playhead.limits import Limits
from playhead.results.policy import Policy
from playhead.results.responses import DEFAULT_REGISTRY, ResponseRegistry
from playhead.stream.options import StreamOptions
from playhead.stream.page import Page
from playhead.stream.ranges import ResourceRequest
from playhead.stream.reader import RangeStream, open_stream


class Session:
    """Made by `connect`; usable inside its context, from any number of tasks at once."""

    def __init__(
        self,
        *,
        supervisor: Supervisor,
        connection: Connection,
        name: str,
        config: ServerConfig,
        limits: Limits,
        changes: ToolChanges,
        policy: Policy,
        asker: Asker | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._first = connection.session
        self.handshake: Mapping[str, Any] | None = connection.handshake
        """The result of `initialize` or `server/discover`, as it came; None where the revision was given."""
        self._config = config
        self._limits = limits
        self._changes = changes
        self.policy = policy
        """How results are classified where a call brings no policy."""
        self.name = name
        """The server in messages: its name in the servers file, and where it is."""
        self._requests = 0
        self._templates = Templates()
        self._caller = Caller(
            server=self,
            ask=self._request,
            learn_headers=self._learn_headers,
            asker=asker,
            config=config,
            limits=limits,
        )

    # --- who it is ---------------------------------------------------------------------------------

    @property
    def server_info(self) -> Implementation | None:
        """The server's own name and version; servers of the newest revision need not say."""
        return self._first.server_info

    @property
    def protocol_version(self) -> str:
        return self._first.protocol_version or ""

    @property
    def capabilities(self) -> ServerCapabilities:
        return self._first.server_capabilities or ServerCapabilities()

    def statistics(self) -> SessionStatistics:
        return SessionStatistics(requests=self._requests, reconnects=self._supervisor.reconnects)

    def wire_faults(self) -> WireFaults:
        """What the server has sent beside the protocol so far, on all connections."""
        return self._supervisor.wire.faults()

    # --- how it is ---------------------------------------------------------------------------------

    async def wait_lost(self) -> str:
        """Wait until the connection has ended by itself; gives what is known of why (exit status, stderr).

        A server over HTTP is lost only to a request that doesn't reach it: there is no connection in between.
        Cancelling changes nothing.
        """
        return await self._supervisor.wait_lost()

    async def wait_live(self) -> None:
        """Wait until there is a connection again: the next request makes one. Cancelling changes nothing."""
        await self._supervisor.wait_live()

    # --- listings ----------------------------------------------------------------------------------

    async def list_tools(self) -> list[Tool]:
        """All tools, all pages. Items that aren't tools are left out.

        Raises `LimitError` past `Limits.listed_items` or `Limits.listing_pages`, and what `call_tool` does.
        """
        found = await self._list(ListToolsRequest, "tools", Tool)
        return await self.learn_tools(found)

    async def learn_tools(self, tools: list[Tool]) -> list[Tool]:
        """Know `tools` as the server's, as if `list_tools` had given them; gives those that can be called."""
        found = (await self._supervisor.connection()).usable(tools)
        self._caller.listed(found)
        return found

    async def list_resources(self) -> list[Resource]:
        """All resources, all pages; see `list_tools`."""
        return await self._list(ListResourcesRequest, "resources", Resource)

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """All resource templates, all pages; see `list_tools`."""
        return await self._list(ListResourceTemplatesRequest, "resourceTemplates", ResourceTemplate)

    async def list_prompts(self) -> list[Prompt]:
        """All prompts, all pages; see `list_tools`."""
        return await self._list(ListPromptsRequest, "prompts", Prompt)

    async def _list(self, kind: ListingRequest, key: str, model: type[ModelT]) -> list[ModelT]:
        async def ask(request: Request[Any, Any]) -> dict[str, Any]:
            return await self._request(
                request, silent_seconds=self._limits.page_seconds, total_seconds=self._limits.tool_seconds
            )

        return await list_through(ask, kind, key=key, model=model, limits=self._limits, server=self.name)

    def tool_list_changes(self) -> trio.MemoryReceiveChannel[None]:
        """A channel that gets an item when the tools may have changed: time to `list_tools` again.

        It holds one item, which stands for all changes since the last was taken. An item also comes after a
        connection was lost and renewed, since what was missed can't be known. Each call gives a channel of
        its own; it ends with the session, and closing it earlier costs nothing. In revisions since 2026-07-28
        the first call starts a subscription with the server, in the background. Silent with a server that
        does not tell.
        """
        return self._changes.subscribe()

    # --- tools -------------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - of silence, not of the whole: no cancel scope says that
        on_progress: ProgressFnT | None = None,
        policy: Policy | None = None,
        registry: ResponseRegistry | None = None,
    ) -> CallResult:
        """Call a tool, keep everything it answered, understood or not, and plan what is to happen with it.

        Links whose labels don't say whether they are sound are looked at: `Limits.sniffed_links` (8) small
        reads at most, for at most `Limits.sniff_seconds` (5 s); `policy.sniff_links` switches
        it off. `policy` is taken in place of the session's (`connect`'s, with the server's own
        `trust_structured`), `registry` in place of the four types of structured response.

        `timeout` is in seconds from the last byte or progress (default: the server's own setting, then
        `Limits.tool_seconds`, 60 s); `Limits.tool_total_seconds` (10 min) ends it however much progress
        comes. `on_progress` gets the newest report each time it returns, in a task of this call; what it
        raises ends the call. A result with `isError` is a result. A tool that can only run as a task is run
        as one (client.tasks). Sends `tools/list` in two cases only: before the first call to a server that
        offers tasks, and where a server of the newest revision refuses the call for want of headers (-32020):
        the tool's schema names them.
        What doesn't conform to the tool's `outputSchema`, known once the tools were listed, is among the
        result's findings.

        Raises `UsageError` for a tool outside the servers file's `allowed_tools`, before anything is sent;
        `DeadlineError`, `ConnectionLostError`, `HttpStatusError` or `SessionLostError` where no answer came
        (the tool may have run); `ServerError` for a JSON-RPC error; `ProtocolError` or `LimitError` for an
        answer that can't be used. Cancelling sends `notifications/cancelled`.
        """
        result = await self._caller.call(name, arguments, seconds=timeout, on_progress=on_progress)
        return await understood(
            result,
            policy=policy or self.policy,
            registry=registry or DEFAULT_REGISTRY,
            output_schema=self._caller.output_schema(name),
            streams=self,
            options=self.default_options(),
            limits=self._limits,
            server=self.name,
        )

    # --- prompts -----------------------------------------------------------------------------------

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as in call_tool
    ) -> PromptResult:
        """A prompt's messages, with `arguments` filled in by the server; understood or not, all are kept.

        `timeout` is in seconds from the last byte (default `Limits.page_seconds`, 30 s);
        `Limits.page_total_seconds` (10 min) ends an answer that drips for ever.
        Raises `ServerError` for a prompt that doesn't exist or an argument that is missing, and otherwise
        what `call_tool` does for answers. Cancelling sends `notifications/cancelled`.
        """
        silent_seconds = self._limits.page_seconds if timeout is None else timeout
        result = await self._request(
            prompt_request(name, arguments),
            silent_seconds=silent_seconds,
            total_seconds=max(self._limits.page_total_seconds, silent_seconds),
        )
        return prompt_from(result, limits=self._limits, server=self.name)

    # --- resources ---------------------------------------------------------------------------------

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as in call_tool
    ) -> Page:
        """One plain read of a resource; see `read_range`. Text contents are only counted."""
        return await self._read(read_request(uri, None, None), timeout)

    async def read_range(
        self,
        request: ResourceRequest,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as in call_tool
    ) -> Page:
        """One `resources/read`, its blobs still as base64 text.

        `timeout` is in seconds from the last byte received (default `Limits.page_seconds`, 30 s);
        `Limits.page_total_seconds` (10 min) ends a read that drips for ever.
        Raises `RangePastEndError` where the server says that the range is past the end; `TransportError`
        where nothing, or not all, came (a retry may help; a lost session has been renewed already);
        any other `RemoteError` as the server's answer. Cancelling cancels the request on the wire.
        """
        return await self._read(read_request(request.uri, request.arguments, request.meta), timeout)

    async def _read(self, request: RangedReadRequest, seconds: float | None) -> Page:
        silent_seconds = self._limits.page_seconds if seconds is None else seconds
        result = await self._request(
            request,
            silent_seconds=silent_seconds,
            total_seconds=max(self._limits.page_total_seconds, silent_seconds),
        )
        return page_from(result, limits=self._limits, server=self.name)

    def media(self, what: ResourceLink | ResourceMedia | str) -> ResourceMedia:
        """Something that a player accepts, for a link of a result or a URI of this server."""
        return as_media(what, streams=self)

    @asynccontextmanager
    async def open(
        self, what: ResourceMedia | ResourceLink | str, *, options: StreamOptions | None = None
    ) -> AsyncIterator[RangeStream]:
        """A stream of the resource, read in ranges; leaving the context cancels every read in flight.

        How a range is asked for: `options.strategy`, else the server's `range_strategy`, else what the
        server's templates, the link's description and the configuration offer (stream.ranges).
        A link to the web that the server does not list is read from its origin by HTTP Range, from global
        addresses and `allow_origins` only.
        Raises `UsageError` where the strategy asked for does not fit, `BlockedAddressError` for a link that
        may not be followed.
        """
        media = self.media(what)
        options = options or self.default_options()
        strategy = await strategy_for(media, options, config=self._config, templates=self._templates)

        async def read(start: int, end: int) -> Page:
            return await self.read_range(strategy.request(start, end), timeout=options.timeout)

        async with AsyncExitStack() as stack:
            reading = Reading(read=read, strategy=strategy.name, server=self.name)
            override = options.strategy or self._config.range_strategy
            if leads_to_the_web(media.uri, strategy, override) and not await self._offers(media.uri):
                reading = await stack.enter_async_context(
                    web_reading(media.uri, limits=self._limits, allow_origins=self._config.allow_origins)
                )
            yield await stack.enter_async_context(
                open_stream(
                    reading.read,
                    options=options,
                    limits=self._limits,
                    size_bytes=media.size_bytes,
                    strategy_name=reading.strategy,
                    server_name=reading.server,
                )
            )

    def _may_have_resources(self) -> bool:
        # Empty capabilities say nothing: a server that was connected to without a handshake has them.
        return self.capabilities.resources is not None or not self.capabilities.model_fields_set

    async def _offers(self, uri: str) -> bool:
        """Whether the server lists `uri` among its resources, asked once for each link to the web."""
        if not self._may_have_resources():
            return False
        return any(resource.uri == uri for resource in await self.list_resources())

    def default_options(self) -> StreamOptions:
        """The options of a stream that brings none: the server's settings over the usual defaults."""
        return options_of(self._config, self._limits)

    async def learn_templates(self) -> None:
        """List the templates once, in the background; streams opened afterwards know them.

        A server that says what it has, and names no resources, isn't asked.
        """
        await self._templates.learn(self.list_resource_templates if self._may_have_resources() else None)

    async def _learn_headers(self) -> None:
        connection = await self._supervisor.connection()
        await connection.learn_headers(self._limits)

    # --- anything else -----------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as in call_tool
    ) -> dict[str, Any]:
        """Send any request and give its result as it came, unvalidated: for what has no method of its own.

        `params` go out as they are, nulls too. `timeout` is in seconds from the last byte or progress
        (default `Limits.tool_seconds`); `Limits.tool_total_seconds` ends it in any case. Raises as
        `call_tool`, and never `UsageError` for the method. Cancelling sends `notifications/cancelled`.
        """
        silent_seconds = self._limits.tool_seconds if timeout is None else timeout
        return await self._request(
            RawRequest.of(method, params),
            silent_seconds=silent_seconds,
            total_seconds=max(self._limits.tool_total_seconds, silent_seconds),
        )

    # --- the way out -------------------------------------------------------------------------------

    async def _request(
        self,
        request: Request[Any, Any],
        *,
        silent_seconds: float,
        total_seconds: float,
        on_progress: ProgressFnT | None = None,
    ) -> dict[str, Any]:
        if not silent_seconds > 0:
            raise UsageError(f"a timeout is {silent_seconds}; expected seconds above 0")
        connection = await self._supervisor.connection()
        self._requests += 1
        try:
            return await connection.request(
                request,
                silent_seconds=silent_seconds,
                total_seconds=total_seconds,
                on_progress=on_progress,
            )
        except SessionLostError:
            # Renewed before the caller hears of it, once for all: its retry finds a session.
            await self._supervisor.renew(connection)
            raise
