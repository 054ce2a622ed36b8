"""A session with one MCP server: its tools, prompts and resources, and streams of resources.

All requests go through `Connection.request`, whose deadline runs from the last byte, and results are read
leniently. `stream` retries reads that failed with `TransportError`; tool_calls.py has the rules for calls.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import trio

from playhead.cache import BLOCK_BYTES
from playhead.client.call_results.call_result import CallResult, as_media, classify_result, linked
from playhead.client.call_results.media import Head, ResourceMedia
from playhead.client.session.arrivals import Arrivals
from playhead.client.session.connection import COURTESY_SECONDS, Connection, delivering
from playhead.client.session.downloads import web_origins
from playhead.client.session.elicitation import WITH_INPUT, Elicitor, params_with_input
from playhead.client.session.list_changed import ToolListChanges
from playhead.client.session.local_files import LocalFile
from playhead.client.session.requests import (
    OnProgress,
    PromptResult,
    SendOptions,
    list_all,
    prompt_from,
    typed,
)
from playhead.client.session.shared_reads import SessionReads
from playhead.client.session.streams import (
    FormExplanation,
    ServerForms,
    StreamForms,
    stream_options,
)
from playhead.client.session.supervisor import Supervisor
from playhead.client.session.tool_calls import ToolCaller
from playhead.concurrency import require_trio
from playhead.config.servers import ServerConfig
from playhead.content.audio import is_audio
from playhead.content.blocks import parse_block
from playhead.content.playlists import is_playlist
from playhead.errors import (
    PlayheadError,
    ProtocolError,
    SessionLostError,
    UsageError,
    naming_descriptor_limit,
)
from playhead.limits import Limits
from playhead.net_guard import is_loopback
from playhead.protocol import messages
from playhead.protocol.faults import ProtocolFaults
from playhead.protocol.revisions import ToolHeaders
from playhead.protocol.tool_headers import usable_tools
from playhead.results.candidates import is_url, local_path
from playhead.results.plan import Policy
from playhead.results.responses import DEFAULT_REGISTRY, ResponseRegistry
from playhead.stream.answer import Page
from playhead.stream.options import StreamOptions
from playhead.stream.reader import RangeStream, open_forms, open_stream
from playhead.stream.result_pages import page_of_contents
from playhead.stream.strategies import ResourceRequest

if TYPE_CHECKING:
    from mcp_types import (
        Implementation,
        Prompt,
        Resource,
        ResourceLink,
        ResourceTemplate,
        ServerCapabilities,
        Tool,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatistics:
    """A snapshot of the counts of a session."""

    requests: int
    reconnects: int


class Session:
    """A session made by `connect`; usable inside its context, from any number of tasks at once."""

    def __init__(
        self,
        *,
        supervisor: Supervisor,
        connection: Connection,
        name: str,
        config: ServerConfig,
        limits: Limits,
        changes: ToolListChanges,
        policy: Policy,
        elicitor: Elicitor | None = None,
        reads: SessionReads | None = None,
    ) -> None:
        self._supervisor = supervisor
        self.handshake: Mapping[str, Any] | None = connection.handshake
        """The raw result of `initialize` or `server/discover`; None if the revision was given."""
        self._revision = connection.exchange.revision
        self._server_info = connection.server_info
        self._capabilities = connection.capabilities
        self._config = config
        self._limits = limits
        self._changes = changes
        self.policy = policy
        """The default policy for classifying results."""
        self.name = name
        """The server's name in messages: its name in the servers file, and its address."""
        self._requests = 0
        self._subscriptions = 0
        self._reads = reads or SessionReads(cache=None, server=None, credentials=None)
        self._elicitor = elicitor
        self._tool_headers: ToolHeaders = {}
        self._caller = ToolCaller(
            name=name,
            capabilities=self._capabilities,
            revision=self._revision,
            send=self._request,
            list_tools=self.list_tool_fields,
            config=config,
            limits=limits,
        )
        self._forms = ServerForms(
            name=name,
            handshake=self.handshake,
            capabilities=self._capabilities,
            server_info=self._server_info,
            config=config,
            limits=limits,
            send=self._request,
            caller=self._caller,
            list_tools=self.list_tools,
            list_raw=self._list,
            reads=self._reads,
            start_soon=supervisor.start_soon,
            updates=supervisor.updates,
        )

    # --- identity ----------------------------------------------------------------------------------

    @property
    def server_info(self) -> Implementation | None:
        """The server's own name and version; optional since revision 2026-07-28."""
        from mcp_types import Implementation

        return next(iter(typed(Implementation, [self._server_info or {}])), None)

    @property
    def server_name(self) -> str:
        """The name that the server reports, else `name`."""
        reported = (self._server_info or {}).get("name")
        return reported if isinstance(reported, str) else self.name

    @property
    def protocol_version(self) -> str:
        return self._revision.name

    @property
    def capabilities(self) -> ServerCapabilities:
        """The server's capabilities. Raises `ProtocolError` if they are invalid."""
        from mcp_types import ServerCapabilities

        for valid in typed(ServerCapabilities, [self._capabilities]):
            return valid
        raise ProtocolError(f"{self.name} declared invalid capabilities; Session.handshake has them as sent")

    def statistics(self) -> SessionStatistics:
        return SessionStatistics(requests=self._requests, reconnects=self._supervisor.reconnects)

    def protocol_faults(self) -> ProtocolFaults:
        """Protocol faults of the server so far, on all connections."""
        return self._supervisor.faults()

    def may_share(self, stream: RangeStream) -> bool:
        """Return whether other sessions with this server and these credentials may have the bytes of a
        stream that has delivered some, if its link names their version. See `cacheScope` of the protocol."""
        return self._reads.may_leave(stream.statistics().cache_scope)

    # --- liveness ----------------------------------------------------------------------------------

    async def wait_lost(self) -> str:
        """Wait until the connection has ended by itself. Return the reason if known (exit status, stderr).

        HTTP holds no connection between requests, so the loss of the server is noticed by a request that
        fails to reach it. Cancelling changes nothing.
        """
        return await self._supervisor.wait_lost()

    async def wait_connected(self) -> None:
        """Wait until there is a connection again. The next request opens one. Cancelling changes nothing."""
        await self._supervisor.wait_connected()

    # --- listings ----------------------------------------------------------------------------------

    async def list_tools(self) -> list[Tool]:
        """List all tools, from all pages. Invalid items are left out.

        Raises `LimitError` past `Limits.listed_items` or `Limits.listing_pages`, and otherwise as
        `call_tool`.
        """
        from mcp_types import Tool

        self._forms.tools = tools = typed(Tool, await self.list_tool_fields())
        return tools

    async def list_tool_fields(self) -> list[dict[str, Any]]:
        """List all tools as JSON, without the SDK's types, whose import takes 0.2 s. Raises as
        `list_tools`."""
        return self._usable(await self._list("tools/list"))

    async def set_tools(self, tools: list[Tool]) -> list[Tool]:
        """Use `tools` as if `list_tools` had returned them. Return those that can be called."""
        raw = [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools]
        names = {tool["name"] for tool in self._usable(raw)}
        self._forms.tools = usable = [tool for tool in tools if tool.name in names]
        return usable

    async def list_resources(self) -> list[Resource]:
        """List all resources; see `list_tools`."""
        from mcp_types import Resource

        return typed(Resource, await self._list("resources/list"))

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """List all resource templates; see `list_tools`."""
        from mcp_types import ResourceTemplate

        return typed(ResourceTemplate, await self._list("resources/templates/list"))

    async def list_prompts(self) -> list[Prompt]:
        """List all prompts; see `list_tools`."""
        from mcp_types import Prompt

        return typed(Prompt, await self._list("prompts/list"))

    async def _list(self, method: str) -> list[dict[str, Any]]:
        send = partial(
            self._request,
            silent_seconds=self._limits.page_seconds,
            total_seconds=self._limits.tool_seconds,
        )
        return await list_all(send, method, limits=self._limits, server=self.name)

    def _usable(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the tools that can be called, and store the properties of all. `tools` is the whole list."""
        if self._revision.has_routing_headers:
            tools, self._tool_headers = usable_tools(tools)
        self._caller.listed(tools)
        return tools

    def tool_list_changes(self) -> trio.MemoryReceiveChannel[None]:
        """Return a channel that receives an item when the tools may have changed, and should be listed again.

        The channel holds one item, which stands for all changes since the last one was received. A renewed
        connection sends an item too, because changes may have been missed. Each call makes a new channel,
        which ends with the session, or when it is closed. Since revision 2026-07-28 the first call subscribes
        to the server's notifications, in the background. A server without notifications sends nothing.
        """
        return self._changes.subscribe()

    # --- tools -------------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - limits silence, which no cancel scope does
        on_progress: OnProgress | None = None,
        on_media: Callable[[ResourceMedia], Awaitable[None]] | None = None,
        policy: Policy | None = None,
        registry: ResponseRegistry | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> CallResult:
        """Call a tool and classify its result; every block is preserved, valid or not.

        If its labels do not tell whether a link is audio, its first bytes are read; so are those of URLs and
        paths in text or `structuredContent`. That costs at most `Limits.candidates` (16) small reads and
        `Limits.sniff_seconds` (5 s); `policy.sniff_links` turns it off. `policy` replaces the session's
        (`connect`'s, with the server's own `trust_structured`), and `registry` the four types of structured
        response.

        `timeout` is in seconds from the last byte or progress report (default: the server's own setting, then
        `Limits.tool_seconds`, 60 s); `Limits.tool_total_seconds` (10 min) ends the call despite progress.
        `on_progress` is awaited with the reports, one call at a time, in a task of this call, and with the
        newest ones if it is slow; if it raises, the call ends with its exception. `on_media` is awaited
        likewise, with the audio that the server names while the call goes on (`_meta["playhead/link"]` of a
        report; at most `Limits.candidates`), which can be played at once. The result's `media` has it again,
        under the same URI, and `late_media` has the rest. A result with `isError` is returned, not raised. A
        tool that can only run as a task runs as one. `members` are
        sent with the call, such as `_meta`; with them, a server's request for input is returned in `raw`, for
        the program to answer in another call.

        `tools/list` is sent in two cases only: before the first call to a server that offers tasks, and if a
        server of the newest revision refuses the call because of missing headers (-32020), which the tool's
        schema names. Once the tools were listed, deviations from the tool's `outputSchema` are among the
        result's findings.

        Raises `UsageError`, before anything is sent, for a tool outside the servers file's `allowed_tools`
        and for `arguments` that are not a mapping with string keys; `DeadlineError`, `ConnectionLostError`,
        `HttpStatusError` or `SessionLostError` if no answer arrived (the tool may have run); `ServerError`
        for a JSON-RPC error; `ProtocolError` or `LimitError` for an unusable answer. Cancelling sends
        `notifications/cancelled`.
        """
        early = set[str]()
        async with AsyncExitStack() as stack:
            on_link = None
            if on_media is not None:
                delivery = delivering(on_media, capacity=self._limits.candidates)
                passed = await stack.enter_async_context(delivery)
                on_link = partial(self._on_link, passed.send, name, early)
            result = await self._caller.call(
                name,
                arguments,
                seconds=timeout,
                on_progress=on_progress,
                on_link=on_link,
                members=members,
            )
        raw = result
        if result.get("resultType") == "input_required":  # with `members` only: a result without content
            result = {"content": []}
        classified = await classify_result(
            result,
            policy=policy or self.policy,
            registry=registry or DEFAULT_REGISTRY,
            output_schema=self._caller.output_schema(name),
            streams=self,
            options=self.default_options(),
            limits=self._limits,
            server=self.name,
            tool=name,
            early_uris=frozenset(early),
        )
        return classified if raw is result else replace(classified, raw=raw)

    def _on_link(
        self,
        on_media: Callable[[ResourceMedia], None],
        tool: str,
        early: set[str],
        link: object,
    ) -> None:
        """Pass a link to audio on, the first time that the call's progress names it."""
        fields = parse_block(link).fields or {}
        if fields.get("type") != "resource_link" or len(early) == self._limits.candidates:
            return
        media = linked(fields, streams=self, tool=tool)
        may_play = is_audio(media.mime_type, media.uri) is not False or is_playlist(
            media.mime_type, media.uri
        )
        if may_play and media.uri not in early:
            early.add(media.uri)
            on_media(media)

    # --- prompts -----------------------------------------------------------------------------------

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as in call_tool
    ) -> PromptResult:
        """Get the messages of a prompt, with `arguments` filled in by the server; all blocks are preserved.

        `timeout` is in seconds from the last byte (default `Limits.page_seconds`, 30 s);
        `Limits.page_total_seconds` (10 min) ends an answer that drips for ever. Raises `ServerError` for an
        unknown prompt or a missing argument, and otherwise as `call_tool`. Cancelling sends
        `notifications/cancelled`.
        """
        silent_seconds = self._limits.page_seconds if timeout is None else timeout
        params = {"name": name} if arguments is None else {"name": name, "arguments": dict(arguments)}
        result = await self._request(
            "prompts/get",
            params,
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
        """Read a resource without a range; see `read_range`. Text contents are only counted."""
        return await self.read_range(ResourceRequest(uri=uri), timeout=timeout)

    async def read_range(
        self,
        request: ResourceRequest,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as in call_tool
        arrivals: Arrivals | None = None,
    ) -> Page:
        """Send one `resources/read`. The page's blobs stay base64.

        `timeout` is in seconds from the last byte received (default `Limits.page_seconds`, 30 s). Without
        `arrivals`, `Limits.page_total_seconds` (10 min) ends a read that drips for ever. Raises
        `RangePastEndError` if the server says that the range is past the end, `TransportError` if the answer
        is missing or incomplete (a retry may help; a lost session has been renewed already), and any other
        `RemoteError` as the server's answer. Cancelling cancels the request on the wire. `arrivals` is
        notified of the bytes of the answer.
        """
        silent_seconds = self._limits.page_seconds if timeout is None else timeout
        # A stream passes `arrivals`: its own patience limits the read, and does not run out while bytes
        # arrive.
        total_seconds = max(self._limits.page_total_seconds, silent_seconds) if arrivals is None else math.inf
        result = await self._request(
            "resources/read",
            request.params(),
            silent_seconds=silent_seconds,
            total_seconds=total_seconds,
            arrivals=arrivals,
        )
        messages.plain(result, but_main=True)
        return page_of_contents(result, limits=self._limits, server=self.name)

    def media(self, what: ResourceLink | ResourceMedia | str) -> ResourceMedia:
        """Make a playable item from a link in a result, or from a URI of this server."""
        return as_media(what, streams=self)

    def queue(self, tool: str, arguments: Mapping[str, object] | None = None) -> ResourceMedia:
        """Make a playable item from the chunks that a queue tool hands out for `arguments`.

        Once the item is opened, the tool is called until it is done, while its chunks play (the strategy
        `poll`). It can be opened only once, because a queue hands out each chunk once.
        """
        return ResourceMedia(
            uri=f"tool:{tool}", title=tool, tool=tool, queue_arguments=dict(arguments or {}), streams=self
        )

    @asynccontextmanager
    async def open(
        self, what: ResourceMedia | ResourceLink | str, *, options: StreamOptions | None = None
    ) -> AsyncIterator[RangeStream]:
        """Open a stream of the resource, read in ranges. Leaving the context cancels every read in flight.

        The form of a ranged read is `options.strategy`, else the server's `range_strategy`, else the first
        one that works of those that the server's templates, the link's description and the configuration
        offer (stream.strategies). A web link that the server does not list is read from its origin with HTTP
        Range, from global addresses and `allow_origins` only. A file (SEP-2631) is read from these and from
        the server's own origin, over https unless `allow_origins` allows http. The stream raises
        `DigestError` at its end if the bytes do not have the announced digest.

        Raises `UsageError` if the requested strategy does not fit, or if the URI fits several servers behind
        a gateway and the name of its tool (`ResourceMedia.tool`) does not tell which. Raises
        `BlockedAddressError` for a link that may not be followed.
        """
        media = self.media(what)
        options = options or self.default_options()
        async with AsyncExitStack() as stack:
            if media.is_local:
                file = await LocalFile.open(local_path(media.uri), self._allow_paths())
                await stack.enter_async_context(aclosing(file))
                stream = open_stream(file, options=options, size_bytes=file.size_bytes, strategy_name="local")
                yield await stack.enter_async_context(stream)
                return
            forms = StreamForms(media, options, self._forms, stack)
            stream = open_forms(
                await forms.find(),
                options=options,
                limits=self._limits,
                size_bytes=media.size_bytes,
                server_name=self.name,
                last_received=forms.arrivals.last_received,
                sha256=forms.sha256,
                counts=forms.counts,
                grid_bytes=0 if self._reads.cache is None else BLOCK_BYTES,
                remark=forms.remark,
                is_live=forms.is_live,
            )
            # Left before what the forms open on `stack` as they are tried.
            async with stream as opened:
                yield opened

    async def read_text(self, uri: str) -> str:
        """Read the text of a resource; empty if it has none. Raises as `request`."""
        contents = (await self.request("resources/read", {"uri": uri})).get("contents")
        items = contents if isinstance(contents, list) else []
        texts = (item.get("text") for item in items if isinstance(item, dict))
        return "".join(text for text in texts if isinstance(text, str))

    async def head(self, address: str, n_bytes: int) -> Head:
        """Read the first bytes of a URL, with one ranged GET, or of a local file. `address` is a URL or a
        path.

        Neither the server's headers nor its credentials are sent. Raises `BlockedAddressError` for an address
        that is not allowed, `UsageError` for a file that can't be read, and otherwise as `fetch_range`.
        """
        if not is_url(address):
            async with aclosing(await LocalFile.open(address, self._allow_paths())) as file:
                return Head(await file.read(0, n_bytes), None, file.size_bytes)
        with naming_descriptor_limit():  # imported here: only URLs outside of MCP need the HTTP client
            from playhead.client.session.http_range import fetch_range
            from playhead.client.transports.http_client import guarded_client
        origins = web_origins(self._config)
        async with guarded_client(allow_origins=origins, limits=self._limits) as client:
            answer = await fetch_range(client, address, 0, n_bytes, limits=self._limits)
        return Head(answer.body, answer.mime_type, answer.total_bytes)

    def _allow_paths(self) -> tuple[str, ...]:
        """Return the directories of `allow_paths`; none if the server runs on another machine."""
        is_here = self._config.url is None or is_loopback(self._config.url)
        return self._config.allow_paths if is_here else ()

    async def explain_forms(
        self, what: ResourceMedia | ResourceLink | str, *, options: StreamOptions | None = None
    ) -> tuple[FormExplanation, ...]:
        """Explain which forms of a ranged read apply to a resource, in the order in which `open` tries them.

        Requests the listings that decide about them, and reads nothing. Raises as `list_tools`.
        """
        async with AsyncExitStack() as stack:
            options = options or self.default_options()
            return await StreamForms(self.media(what), options, self._forms, stack).explain()

    def default_options(self) -> StreamOptions:
        """Return the default options of streams: the server's settings, completed by the general defaults."""
        return stream_options(self._config, self._limits)

    async def learn_templates(self) -> None:
        """List the templates, for the streams opened later. Run it in a background task, once.

        Nothing is sent to a server whose capabilities do not include resources.
        """
        await self._forms.templates.learn(self._template_uris if self._forms.may_have_resources else None)

    async def _template_uris(self) -> list[str]:
        listed = await self._list("resources/templates/list")
        return [uri for template in listed if isinstance(uri := template.get("uriTemplate"), str)]

    # --- other requests ----------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as in call_tool
        on_progress: OnProgress | None = None,
    ) -> dict[str, Any]:
        """Send any request, also of a method without a function here, and return its raw, unvalidated result.

        `params` are sent as they are, including nulls. `timeout` is in seconds from the last byte or progress
        (default `Limits.tool_seconds`); `Limits.tool_total_seconds` ends it in any case. `on_progress` is as
        in `call_tool`. Raises as `call_tool`, but never `UsageError` for the method. Cancelling sends
        `notifications/cancelled`.
        """
        silent_seconds = self._limits.tool_seconds if timeout is None else timeout
        result = await self._request(
            method,
            params or {},
            rounds=None,
            silent_seconds=silent_seconds,
            total_seconds=max(self._limits.tool_total_seconds, silent_seconds),
            on_progress=on_progress,
        )
        return messages.plain(result)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification. A failure to send it is not reported. Raises as `request` if there is no
        connection."""
        connection = await self._supervisor.connection()
        await connection.notify(method, params)

    async def listen(self, notifications: Mapping[str, Any]) -> None:
        """Subscribe to notifications (`subscriptions/listen`, since 2026-07-28) until the server ends it.

        They go to the `backchannel` of `connect`. Raises as `request`, without its deadlines. Cancelling
        ends the subscription.
        """
        connection = await self._supervisor.connection()
        self._subscriptions += 1
        await connection.listen(f"subscription-{self._subscriptions}", {"notifications": dict(notifications)})

    async def subscribe(self, uris: Sequence[str], subscribed: Callable[[], None]) -> None:
        """Subscribe to resources (`resources/subscribe`, before 2026-07-28) until the connection ends.

        `subscribed` is called once the server has answered. The notifications go to the `backchannel` of
        `connect`. Raises as `request`. Cancelling unsubscribes.
        """
        connection = await self._supervisor.connection()
        done: list[str] = []
        try:
            for uri in uris:
                await self.request("resources/subscribe", {"uri": uri})
                done.append(uri)
            subscribed()
            await connection.wait_ended()
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(COURTESY_SECONDS), suppress(PlayheadError):
                for uri in done if not connection.ended else ():
                    await self.request("resources/unsubscribe", {"uri": uri})

    async def _request(
        self,
        method: str,
        params: Mapping[str, Any],
        rounds: int | None = 0,
        **options: Unpack[SendOptions],
    ) -> dict[str, Any]:
        """Send a request over the live connection, which is renewed if the server has lost its session.

        If the server requires input, the request is sent again with it. `rounds` counts how often that has
        happened; None returns such an answer to the caller instead.
        """
        require_trio("Session")
        if not options["silent_seconds"] > 0:
            raise UsageError(f"expected a timeout above 0 seconds, got {options['silent_seconds']}")
        connection = await self._supervisor.connection()
        if method == "tools/call":
            connection.exchange.tool_headers = self._tool_headers
        self._requests += 1
        try:
            result = await connection.request(method, params, **options)
        except SessionLostError:
            # Renew before raising, once for all callers, so that a retry finds a session.
            await self._supervisor.renew(connection)
            raise
        if result.get("resultType") != "input_required" or method not in WITH_INPUT or rounds is None:
            return result
        params = await params_with_input(
            params,
            result,
            method=method,
            rounds=rounds + 1,
            elicitor=self._elicitor,
            limits=self._limits,
            server=self.name,
        )
        return await self._request(method, params, rounds + 1, **options)
