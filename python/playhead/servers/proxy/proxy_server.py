"""The proxy server: other servers' tools, resources and prompts, with their audio on a player.

Requests pass to the servers and answers pass back unchanged, but for results with audio: the player gets the
audio, and the host gets a line of text in its place. With several servers, tools and prompts have the names
that the hub gives them, and each URI starts with the name of its server and a `+`, so that a read finds it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any, Final

import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette

from playhead._core import check_base64
from playhead.client.hub.server import HubTarget
from playhead.client.session.requests import OnProgress
from playhead.client.session.session import Session
from playhead.client.transports.server_process import StartedServer
from playhead.config.tools import ApprovalPolicy
from playhead.errors import Base64Error, PlayheadError, ServerError
from playhead.playback.player_tools import PLAYER_TOOLS
from playhead.protocol import messages
from playhead.servers.access import Access
from playhead.servers.http import base_url, bind, serve_app, serve_until_sigterm, tls_context
from playhead.servers.http_sessions import streamable_http_app
from playhead.servers.late_blob import LateBlob
from playhead.servers.proxy import ProxyOptions
from playhead.servers.proxy.call_permission import CallPermission
from playhead.servers.proxy.host_session import Context, HostSession, HostSessions
from playhead.servers.proxy.media_port import MediaPort
from playhead.servers.proxy.media_table import MediaEntry, MediaTable
from playhead.servers.proxy.relay import Relay
from playhead.servers.proxy.result_audio import ResultAudio, with_addresses
from playhead.servers.proxy.upstream import LISTS, Upstream, wire_error, without_unmet_schema
from playhead.servers.ranged_resource import RESOURCE_NOT_FOUND, ranged_resource
from playhead.servers.stdio import serve_stdio
from playhead.servers.websocket import websocket_routes
from playhead.stream.source import Playable

MCP_PATH: Final = "/mcp"
PLAYER_PREFIX: Final = "player__"

_PASSED_CAPABILITIES: Final = ("completions", "logging", "prompts", "resources", "tools")
_COMPLETE: Final = {"resultType": "complete"}
_UNSHARED: Final = {**_COMPLETE, "ttlMs": 0, "cacheScope": "private"}
"""The members that results have since 2026-07-28, for servers of older revisions."""
_OWN_META: Final = frozenset(
    {"progressToken", "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientInfo"}
)
"""The members of a request's `_meta` that are the proxy's own on the way to a server."""


@dataclass(slots=True, kw_only=True)
class ProxyServer:
    """The handlers of the proxy, and what they use. One player is shared by all its hosts."""

    targets: Mapping[str, HubTarget]
    audio: ResultAudio | None
    options: ProxyOptions
    permission: CallPermission
    early: dict[str, StartedServer] = field(default_factory=dict)
    relay: Relay | None = None
    observe: Callable[[str, str, Mapping[str, Any]], None] = lambda _server, _tool, _result: None
    """Called with each result of a tool, as the host gets it."""
    _servers: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._servers = tuple(self.targets)

    def server(self) -> Server[HostSessions]:
        """Return a server of the SDK, for any transport."""
        server = Server("playhead-proxy", version=version("playhead"), lifespan=self._hosts)
        add = server.add_request_handler
        for method in LISTS:
            add(method, types.PaginatedRequestParams, self._list)
        add("tools/call", types.CallToolRequestParams, self._call_tool)
        add("prompts/get", types.GetPromptRequestParams, self._get_prompt)
        add("resources/read", types.ReadResourceRequestParams, self._read)
        add("resources/subscribe", types.SubscribeRequestParams, self._subscribe)
        add("resources/unsubscribe", types.UnsubscribeRequestParams, self._subscribe)
        add("completion/complete", types.CompleteRequestParams, self._complete)
        add("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        add("subscriptions/listen", types.SubscriptionsListenRequestParams, self._listen)
        notifications = server.add_notification_handler
        notifications("notifications/initialized", types.NotificationParams, self._keep)
        notifications("notifications/roots/list_changed", types.NotificationParams, self._roots_changed)
        server.middleware[:] = [self._declare]  # without the SDK's spans, which cost each request
        return server

    @asynccontextmanager
    async def _hosts(self, _server: object) -> AsyncIterator[HostSessions]:
        async with trio.open_nursery() as nursery:
            make = partial(HostSession, self.targets, limits=self.options.limits, early=self.early)
            hosts = HostSessions(
                make=make, nursery=nursery, wait_seconds=self.options.limits.handshake_seconds
            )
            try:
                yield hosts
            finally:
                hosts.close()

    # --- the handshake -----------------------------------------------------------------------------

    async def _declare(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Put the servers' capabilities and instructions into the result of the handshake."""
        result = await call_next(ctx)
        if ctx.method not in ("initialize", "server/discover") or not isinstance(result, dict):
            return result
        host = await ctx.lifespan_context.of(ctx)
        capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
        if self.relay is not None:
            capabilities["resources"] = {}
        instructions: list[str] = []
        for upstream in host.upstreams:
            for name, value in upstream.capabilities.items():
                if name in _PASSED_CAPABILITIES and isinstance(value, dict):
                    true = {key: member for key, member in value.items() if member}
                    capabilities[name] = {**capabilities.get(name, {}), **true}
            session = upstream.server.session
            text = (session.handshake or {}).get("instructions") if session is not None else None
            if isinstance(text, str) and text:
                instructions.append(f"{upstream.name}: {text}" if upstream.scheme else text)
        about = {"instructions": "\n\n".join(instructions)} if instructions else {}
        return {**result, "capabilities": capabilities, **about}

    async def _keep(self, context: Context, _params: object) -> None:
        await context.lifespan_context.keep(context)

    async def _roots_changed(self, context: Context, _params: object) -> None:
        host = await context.lifespan_context.of(context)
        for upstream in host.upstreams:
            if upstream.server.session is not None:
                await upstream.server.session.notify("notifications/roots/list_changed")

    # --- listings ----------------------------------------------------------------------------------

    async def _list(self, context: Context, _params: object) -> dict[str, Any]:
        host = await context.lifespan_context.of(context)
        capability, member = LISTS[context.method]
        has_own = capability == "tools" or (capability == "resources" and self.relay is not None)
        if not has_own and not any(each.offers(capability) for each in host.upstreams):
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", context.method)
        return {**_UNSHARED, member: await self._listed(host, context.method)}

    async def _listed(self, host: HostSession, method: str) -> list[dict[str, Any]]:
        member, items = LISTS[method][1], []
        for upstream in host.upstreams:
            items += [self._offered(host, upstream, member, item) for item in await upstream.items(method)]
        if member == "tools" and self.audio is not None:
            items += [
                {
                    "name": PLAYER_PREFIX + tool.name,
                    "description": tool.description,
                    "inputSchema": dict(tool.parameters),
                }
                for tool in PLAYER_TOOLS.values()
            ]
        return items

    def _offered(
        self, host: HostSession, upstream: Upstream, member: str, item: dict[str, Any]
    ) -> dict[str, Any]:
        """Return a listed item under its name or URI in the proxy."""
        if member in ("tools", "prompts"):
            name = str(item.get("name"))
            shown = upstream.shown_name(name, self._servers)
            host.names[member, shown] = upstream, name
            plays = member == "tools" and self.audio is not None and not self.audio.keeps(upstream.name)
            item = without_unmet_schema(item) if plays else item
            return {**item, "name": shown}
        key = "uriTemplate" if member == "resourceTemplates" else "uri"
        return {**item, key: f"{upstream.scheme}{item.get(key)}"}

    async def _named(self, host: HostSession, kind: str, name: str) -> tuple[Upstream, str]:
        """Return the server and the own name of a tool or prompt. Raises `MCPError` if it is unknown."""
        if len(host.upstreams) == 1:
            return host.upstreams[0], name
        if (kind, name) not in host.names:
            await self._listed(host, f"{kind}/list")
        if (kind, name) not in host.names:
            raise MCPError(
                types.INVALID_PARAMS, f"expected the name of one of the listed {kind}, got {name!r:.200}"
            )
        return host.names[kind, name]

    def _addressed(self, host: HostSession, uri: str) -> tuple[Upstream, str]:
        """Return the server and the server's own form of a URI. Raises `MCPError` if it names no server."""
        for upstream in host.upstreams:
            if uri.startswith(upstream.scheme):
                return upstream, uri[len(upstream.scheme) :]
        starts = ", ".join(each.scheme for each in host.upstreams)
        raise MCPError(
            types.INVALID_PARAMS, f"expected a URI that starts with one of {starts}, got {uri!r:.80}"
        )

    # --- resources, prompts, completions, log levels -----------------------------------------------

    async def _read(self, context: Context, _typed: object) -> dict[str, Any]:
        host = await context.lifespan_context.of(context)
        params = _params(context)
        upstream, uri = self._addressed(host, str(params["uri"]))
        result = await self._pass(host, upstream, context, {**params, "uri": uri})
        return {**_UNSHARED, **_with_late_blob(context, upstream.moved(result, "contents"))}

    async def _get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> dict[str, Any]:
        host = await context.lifespan_context.of(context)
        upstream, name = await self._named(host, "prompts", params.name)
        result = await self._pass(host, upstream, context, {**_params(context), "name": name})
        return {**_COMPLETE, **upstream.moved(result, "messages")}

    async def _complete(self, context: Context, _parsed: object) -> dict[str, Any]:
        host = await context.lifespan_context.of(context)
        params = _params(context)
        ref = dict(params.get("ref") or {})
        if "uri" in ref:
            upstream, ref["uri"] = self._addressed(host, ref["uri"])
        else:
            upstream, ref["name"] = await self._named(host, "prompts", str(ref.get("name")))
        return {**_COMPLETE, **await self._pass(host, upstream, context, {**params, "ref": ref})}

    async def _subscribe(self, context: Context, _typed: object) -> dict[str, Any]:
        host = await context.lifespan_context.of(context)
        params = _params(context)
        upstream, uri = self._addressed(host, str(params["uri"]))
        if context.method == "resources/subscribe":
            await host.subscribe(upstream, uri)
        else:
            host.unsubscribe(upstream, uri)
        return {}

    async def _set_level(self, context: Context, _level: object) -> dict[str, Any]:
        host = await context.lifespan_context.of(context)
        for upstream in host.upstreams:
            if "logging" in upstream.capabilities:
                await self._pass(host, upstream, context, _params(context))
        return {}

    async def _listen(self, context: Context, _params: object) -> dict[str, Any]:
        host = await context.lifespan_context.of(context)
        wanted = (context.params or {}).get("notifications")
        return await host.listen(context, wanted if isinstance(wanted, Mapping) else {})

    async def _pass(
        self, host: HostSession, upstream: Upstream, context: Context, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Send a request of the host to a server, and return its result."""
        async with host.answering(upstream, context):
            return await upstream.ask(context.method, params, on_progress=_report(context))

    # --- tools -------------------------------------------------------------------------------------

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        tool, audio = params.name.removeprefix(PLAYER_PREFIX), self.audio
        if params.name.startswith(PLAYER_PREFIX) and tool in PLAYER_TOOLS and audio is not None:
            return _COMPLETE | await audio.control(tool, params.arguments or {})
        host = await context.lifespan_context.of(context)
        upstream, name = await self._named(host, "tools", params.name)
        members = _params(context)
        fields = await self._tool(upstream, name)
        refusal = await self.permission.check(context, upstream.name, fields, members)
        if refusal is not None:
            return refusal
        given = {key: value for key, value in members.items() if key not in ("name", "arguments")}
        plays = audio is not None and not audio.keeps(upstream.name)
        early: list[str] = []
        async with audio.quiet() if audio is not None else nullcontext(lambda: None) as end_quiet:

            async def play(media: Playable) -> None:
                assert audio is not None
                end_quiet()
                await audio.play((media,), after=early)
                early.append(media.uri or "")

            try:
                async with host.answering(upstream, context):
                    session = await upstream.session()
                    result = await session.call_tool(
                        name,
                        params.arguments,
                        on_progress=_report(context),
                        on_media=play if plays else None,
                        members=given,
                    )
            except PlayheadError as error:
                raise wire_error(error) from error
            raw = messages.plain(dict(result.raw))
            if raw.get("resultType") == "input_required":
                self.permission.keep(upstream.name, fields, members, raw)
                return raw
            if audio is not None:
                raw = audio.with_heard(await audio.removed(upstream, result))
            elif self.relay is not None and result.media and not result.is_error:
                raw = await with_addresses(raw, self.relay.addresses(upstream, result.media))
            raw = _COMPLETE | upstream.moved(raw, "content")
            self.observe(upstream.name, name, raw)
            return raw

    async def _tool(self, upstream: Upstream, name: str) -> Mapping[str, Any]:
        """Return a tool as listed, if a rule may depend on that."""
        policy = self.permission.policy
        may_depend = len({policy.action(upstream.name, name, destructive=hint) for hint in (True, False)}) > 1
        if may_depend and name not in upstream.tools:
            await upstream.items("tools/list")
        return upstream.tools.get(name, {"name": name})


def _params(context: Context) -> dict[str, Any]:
    """Return the parameters of a request for a server."""
    params = dict(context.params or {})
    meta = params.pop("_meta", None)
    if isinstance(meta, Mapping) and (kept := {k: v for k, v in meta.items() if k not in _OWN_META}):
        params["_meta"] = kept
    return params


def _with_late_blob(context: Context, result: dict[str, Any]) -> dict[str, Any]:
    """Leave the blob of a page out of a result for HTTP, where it is put in last, unless it is not base64."""
    late = LateBlob.of(context)
    match result.get("contents"):
        case [{"blob": str(blob)} as contents] if late is not None:
            with suppress(Base64Error):
                check_base64(blob)
                return {**result, "contents": [{**contents, "blob": late.leave(blob)}]}
    return result


def _report(context: Context) -> OnProgress | None:
    """Return the function that reports progress to the host, if it asks for that."""
    meta = (context.params or {}).get("_meta")
    if not isinstance(meta, Mapping) or "progressToken" not in meta:
        return None
    report: Callable[[float, float | None, str | None], Awaitable[None]] = context.session.report_progress
    return report


@asynccontextmanager
async def open_proxy(
    targets: Mapping[str, HubTarget],
    audio: ResultAudio | None,
    options: ProxyOptions,
    *,
    policy: ApprovalPolicy | None = None,
    early: Mapping[str, StartedServer] | None = None,
) -> AsyncIterator[Server[HostSessions]]:
    """Open the proxy as an SDK server. It connects to the servers for each host, and once it has one.

    `policy` decides about calls (default: as `ApprovalPolicy()`). `early` are processes of servers that run
    already. With `options.media_port` the media port is open too, and its address is printed to stderr.

    Raises `UsageError` if the media port or the state directory cannot be used.
    """
    permission = CallPermission(policy=ApprovalPolicy() if policy is None else policy)
    proxy = ProxyServer(
        targets=targets, audio=audio, options=options, permission=permission, early=dict(early or {})
    )
    server = proxy.server()
    if options.media_port is None:
        await trio.lowlevel.checkpoint()
        yield server
        return
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(_serve_media, proxy, server))
        sys.stderr.write(f"playhead proxy: the page is at {url}\n")
        sys.stderr.flush()
        yield server
        nursery.cancel_scope.cancel()


async def _serve_media(
    proxy: ProxyServer, server: Server[HostSessions], *, task_status: trio.TaskStatus[str]
) -> None:
    """Serve the media port until cancelled; the task status is the address of the page."""
    options = proxy.options
    assert options.media_port is not None
    assert options.state_directory is not None
    table = await trio.to_thread.run_sync(MediaTable, options.state_directory / "proxy")
    tls = tls_context(options.tls_certificate, options.tls_key)
    with bind(options.host, options.media_port) as sock:
        async with trio.open_nursery() as nursery:
            own: list[HostSession] = []

            async def session(entry: MediaEntry) -> Session:
                if not own:
                    own.append(
                        HostSession(
                            proxy.targets,
                            limits=options.limits,
                            early={},
                            has_handshake=False,
                            capabilities={},
                            is_shared=True,
                        )
                    )
                    nursery.start_soon(own[0].run)
                await own[0].wait_opened()
                for each in own[0].upstreams:
                    if (each.name, each.identity) == (entry.server, entry.identity):
                        return await each.session()
                raise ServerError(
                    f"the server {entry.server!r} of this address is no longer behind the proxy",
                    code=RESOURCE_NOT_FOUND,
                    data={"server": entry.server},
                )

            base = base_url(sock, scheme="http" if tls is None else "https")
            relay = Relay(table=table, session=session, nursery=nursery, base_url=base)
            media = ranged_resource(
                server,
                "playhead-media://{address}",
                relay.read,
                title="Audio that a tool returned, by its address",
                mime_type="application/octet-stream",
                whole_bytes=0,
            )
            port = MediaPort(player=None if proxy.audio is None else proxy.audio.player, media=media)
            proxy.relay, proxy.observe = relay, port.note
            if proxy.audio is not None:
                proxy.audio.addresses = relay.addresses
            access = Access.for_host(options.host, web_origins=options.web_origins)
            await nursery.start(partial(serve_app, access.protect(port.app()), sock, tls=tls))
            task_status.started(f"{base}/?token={port.token}")
            try:
                await trio.sleep_forever()
            finally:
                relay.close()


async def serve(
    targets: Mapping[str, HubTarget],
    audio: ResultAudio | None,
    options: ProxyOptions,
    *,
    policy: ApprovalPolicy | None = None,
    early: Mapping[str, StartedServer] | None = None,
    task_status: trio.TaskStatus[str | None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the proxy until stdin ends or SIGTERM; the task status is its URL, None over stdio.

    Raises `UsageError`.
    """
    access = Access.for_host(options.host, web_origins=options.web_origins, token=options.token)
    tls = tls_context(options.tls_certificate, options.tls_key)
    async with open_proxy(targets, audio, options, policy=policy, early=early) as server:
        if options.transport == "stdio":
            await serve_stdio(server, limits=options.limits, task_status=task_status)
            return
        scheme = options.transport if tls is None else f"{options.transport}s"
        with bind(options.host, options.port) as sock:
            url = base_url(sock, scheme=scheme) + MCP_PATH
            if options.transport == "ws":
                app = Starlette(routes=[*websocket_routes(server, MCP_PATH)])
            else:
                app = streamable_http_app(server, MCP_PATH, sessions=options.sessions, reports=True)
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(serve_until_sigterm, access.protect(app), sock, tls=tls))
                sys.stderr.write(f"playhead proxy: {url}\n")
                sys.stderr.flush()
                task_status.started(url)
