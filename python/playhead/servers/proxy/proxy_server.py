"""The proxy server: other servers' tools, resources and prompts, with their audio on a player.

Requests pass to the servers and answers pass back unchanged, but for results with audio: the player gets the
audio, and the host gets a line of text in its place. With several servers, tools and prompts have the names
that the hub gives them, and each URI starts with the name of its server and a `+`, so that a read finds it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from typing import Any, Final

import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette

from playhead.client.call_results.call_result import CallResult
from playhead.client.connector import Target, connect
from playhead.client.hub.catalog import model_name
from playhead.client.session.session import Session
from playhead.config.servers import ServerConfig
from playhead.content import ABSENT
from playhead.errors import PlayheadError, ServerError
from playhead.playback.player import Player
from playhead.playback.player_tools import PLAYER_TOOLS
from playhead.protocol import messages
from playhead.results.model_text import text_for_model
from playhead.results.plan import PlayAudio, ReportUnknown, SendText, ShowImage
from playhead.servers.access import Access
from playhead.servers.http import base_url, bind, serve_until_sigterm, tls_context
from playhead.servers.http_sessions import streamable_http_app
from playhead.servers.proxy import ProxyOptions
from playhead.servers.stdio import serve_stdio
from playhead.servers.websocket import websocket_routes

MCP_PATH: Final = "/mcp"
PLAYER_PREFIX: Final = "player__"
ADDRESS_META: Final = "playhead/audio"
HEARD_META: Final = "playhead/heard_seconds"

_Context = ServerRequestContext[dict[str, Any]]
_DISALLOWED: Final = re.compile(r"[^a-z0-9-]+")
_STRING_RULES: Final = re.compile(r'"(contentEncoding|const|enum|format|maxLength|minLength|pattern)":')
"""Matches the keywords of a JSON Schema that restrict strings."""
_COMPLETE: Final = {"resultType": "complete"}
_UNSHARED: Final = {**_COMPLETE, "ttlMs": 0, "cacheScope": "private"}
"""The members that results have since 2026-07-28, for servers of older revisions."""
_LISTS: Final = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resources", "resourceTemplates"),
}
"""The listing methods, each with the capability that it needs and the member of its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A server behind the proxy."""

    name: str
    session: Session
    scheme: str = ""
    """The start of its URIs in the proxy, such as `music+`; empty if it is the only server."""

    allowed_tools: Collection[str] | None = None
    """The only tools that the servers file allows; None allows all."""

    def offers(self, capability: str) -> bool:
        """Return whether the server has a capability, or had no handshake in which to declare it."""
        if self.session.handshake is None:
            return True
        return capability in (self.session.handshake.get("capabilities") or {})


@dataclass(slots=True, kw_only=True)
class ProxyServer:
    """The handlers of the proxy, and what they use. One player is shared by all its hosts."""

    upstreams: Sequence[Upstream]
    player: Player | None
    options: ProxyOptions
    _names: dict[tuple[str, str], tuple[Upstream, str]] = field(default_factory=dict)
    """The server and the server's own name of each listed tool and prompt, by kind and name."""
    _calls: int = 0
    """The calls in flight that duck or pause the audio."""
    _paused: bool = False
    """True if a player tool has stopped or paused the audio since the last result."""
    _heard: float = 0.0
    """The seconds heard before that."""
    _turn: trio.Lock = field(default_factory=trio.Lock)

    def server(self) -> Server[dict[str, Any]]:
        """Return a server of the SDK, for any transport."""
        server: Server[dict[str, Any]] = Server("playhead-proxy", version=version("playhead"))
        add = server.add_request_handler
        add("tools/list", types.PaginatedRequestParams, self._list)
        add("tools/call", types.CallToolRequestParams, self._call_tool)
        if self._any("prompts"):
            add("prompts/list", types.PaginatedRequestParams, self._list)
            add("prompts/get", types.GetPromptRequestParams, self._get_prompt)
        if self._any("resources"):
            add("resources/list", types.PaginatedRequestParams, self._list)
            add("resources/templates/list", types.PaginatedRequestParams, self._list)
            add("resources/read", types.ReadResourceRequestParams, self._read)
        if self._any("completions"):
            add("completion/complete", types.CompleteRequestParams, self._complete)
        return server

    def _any(self, capability: str) -> bool:
        return any(each.offers(capability) for each in self.upstreams)

    # --- listings ----------------------------------------------------------------------------------

    async def _list(self, context: _Context, _params: object) -> dict[str, Any]:
        capability, member = _LISTS[context.method]
        items = [
            self._offered(upstream, member, item)
            for upstream in self.upstreams
            if upstream.offers(capability)
            for item in await self._items(upstream, context.method, member)
        ]
        if member == "tools" and self.player is not None:
            items += [
                {
                    "name": PLAYER_PREFIX + tool.name,
                    "description": tool.description,
                    "inputSchema": dict(tool.parameters),
                }
                for tool in PLAYER_TOOLS.values()
            ]
        return {**_UNSHARED, member: items}

    async def _items(self, upstream: Upstream, method: str, member: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        cursor = None
        if member == "tools":  # the session learns from its own listing which headers a call needs
            try:
                tools = await upstream.session.list_tool_fields()
            except PlayheadError as error:
                raise _error(error) from error
            allowed = upstream.allowed_tools
            return [tool for tool in tools if allowed is None or tool.get("name") in allowed]
        for _page in range(self.options.limits.listing_pages):
            page = await _ask(upstream, method, {} if cursor is None else {"cursor": cursor})
            listed = page.get(member)
            items += [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
            if not isinstance(cursor := page.get("nextCursor"), str):
                break
        return items[: self.options.limits.listed_items]

    def _offered(self, upstream: Upstream, member: str, item: dict[str, Any]) -> dict[str, Any]:
        """Return a listed item under its name or URI in the proxy."""
        if member in ("tools", "prompts"):
            name = str(item.get("name"))
            servers = [each.name for each in self.upstreams]
            shown = model_name(upstream.name, name, servers=servers) if upstream.scheme else name
            self._names[member, shown] = upstream, name
            item = {**item, "name": shown}
            plays = self.player is not None and upstream.name not in self.options.keep_audio
            if plays and _STRING_RULES.search(json.dumps(item.get("outputSchema"))):
                # A line in place of base64 is a string, but may not follow these rules.
                del item["outputSchema"]
            return item
        key = "uriTemplate" if member == "resourceTemplates" else "uri"
        return {**item, key: f"{upstream.scheme}{item.get(key)}"}

    async def _named(self, kind: str, method: str, name: str) -> tuple[Upstream, str]:
        """Return the server and the own name of a tool or prompt. Raises `MCPError` if it is unknown."""
        if len(self.upstreams) == 1:
            return self.upstreams[0], name
        if (kind, name) not in self._names:
            for upstream in self.upstreams:
                if upstream.offers(kind):
                    for item in await self._items(upstream, method, kind):
                        self._offered(upstream, kind, item)
        if (kind, name) not in self._names:
            raise MCPError(
                types.INVALID_PARAMS, f"expected the name of one of the listed {kind}, got {name!r}"
            )
        return self._names[kind, name]

    def _addressed(self, uri: str) -> tuple[Upstream, str]:
        """Return the server and the server's own form of a URI. Raises `MCPError` if it names no server."""
        for upstream in self.upstreams:
            if uri.startswith(upstream.scheme):
                return upstream, uri[len(upstream.scheme) :]
        schemes = ", ".join(each.scheme for each in self.upstreams)
        raise MCPError(
            types.INVALID_PARAMS, f"expected a URI that starts with one of {schemes}, got {uri!r:.80}"
        )

    # --- resources, prompts, completions -----------------------------------------------------------

    async def _read(self, context: _Context, params: types.ReadResourceRequestParams) -> dict[str, Any]:
        upstream, uri = self._addressed(str(params.uri))
        result = await _ask(upstream, "resources/read", {**_params(context), "uri": uri})
        return {**_UNSHARED, **_with_scheme(upstream, result, "contents")}

    async def _get_prompt(self, context: _Context, params: types.GetPromptRequestParams) -> dict[str, Any]:
        upstream, name = await self._named("prompts", "prompts/list", params.name)
        return {**_COMPLETE, **await _ask(upstream, "prompts/get", {**_params(context), "name": name})}

    async def _complete(self, context: _Context, _parsed: object) -> dict[str, Any]:
        params = _params(context)
        ref = dict(params.get("ref") or {})
        if "uri" in ref:
            upstream, ref["uri"] = self._addressed(ref["uri"])
        else:
            upstream, ref["name"] = await self._named("prompts", "prompts/list", str(ref.get("name")))
        return {**_COMPLETE, **await _ask(upstream, "completion/complete", {**params, "ref": ref})}

    # --- tools -------------------------------------------------------------------------------------

    async def _call_tool(self, context: _Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        tool = params.name.removeprefix(PLAYER_PREFIX)
        if params.name.startswith(PLAYER_PREFIX) and tool in PLAYER_TOOLS and self.player is not None:
            return await self._control(self.player, tool, params.arguments or {})
        upstream, name = await self._named("tools", "tools/list", params.name)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            await context.session.report_progress(progress, total, message)

        async with self._quiet():
            try:
                result = await upstream.session.call_tool(name, params.arguments, on_progress=report)
            except PlayheadError as error:
                raise _error(error) from error
            return _COMPLETE | self._with_heard(await self._without_audio(upstream, result))

    @asynccontextmanager
    async def _quiet(self) -> AsyncIterator[None]:
        """Duck or pause the audio while the body runs, and while any other call does."""
        player, how = self.player, self.options.on_call
        self._calls += 1
        if player is not None and how == "duck":
            player.duck()
        elif player is not None and how == "pause":
            player.hold("call")
        try:
            yield
        finally:
            self._calls -= 1
            if player is not None and not self._calls:
                if how == "duck":
                    player.unduck()
                elif how == "pause":
                    player.release("call")

    async def _control(self, player: Player, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        async with self._turn:
            heard = player.snapshot().heard_seconds
            response = await PLAYER_TOOLS[tool].call(player, arguments)
        content = [
            {"type": "text", "text": block.text} for block in response.content() if block.type == "text"
        ]
        result: dict[str, Any] = {"content": content, "isError": not response.success, **_COMPLETE}
        if response.success and tool in ("pause", "stop"):
            self._paused = True
            now = player.snapshot().heard_seconds if tool == "pause" else heard
            result["_meta"] = {HEARD_META: now}
            content.append({"type": "text", "text": f"[{now:.1f} s heard]"})
            self._heard = now
        return result

    def _with_heard(self, result: dict[str, Any]) -> dict[str, Any]:
        """Add the seconds that were heard before the last pause or stop, once."""
        if not self._paused:
            return result
        self._paused = False
        note = {"type": "text", "text": f"[the audio was stopped after {self._heard:.1f} s heard]"}
        meta = {**(result.get("_meta") or {}), HEARD_META: self._heard}
        return {**result, "content": [*result.get("content", ()), note], "_meta": meta}

    async def _without_audio(self, upstream: Upstream, result: CallResult) -> dict[str, Any]:
        """Give the audio of a result to the player, and return the result with text in its place."""
        raw = messages.plain(dict(result.raw))
        if self.player is None or result.is_error or upstream.name in self.options.keep_audio:
            return _with_scheme(upstream, raw, "content")
        media = result.media
        if not media:
            return _with_scheme(upstream, raw, "content")
        playing = True
        try:
            async with self._turn:
                await self.player.play(media)
        except PlayheadError as error:
            playing = False
            sys.stderr.write(f"playhead proxy: cannot play {media[0].title!r:.80}: {error}\n")
        content: list[Any] = []
        for item in result.plan.dispositions:
            block = item.block.raw if item.block is not None else None
            is_link = isinstance(block, Mapping) and block.get("type") == "resource_link"
            keeps = isinstance(item, ShowImage | ReportUnknown) or (
                is_link and (not isinstance(item, PlayAudio) or upstream.name in self.options.keep_links)
            )
            if keeps and block is not None:
                content.append(block)
                continue
            alone = replace(result.plan, dispositions=(item,), candidates=(), structured=ABSENT)
            limit = self.options.limits.model_text_chars
            text = text_for_model(alone, limit_chars=limit, playing=playing).text
            kept = dict(block) if isinstance(block, Mapping) and isinstance(item, SendText) else {}
            content.append({**kept, "type": "text", "text": text} if "resource" not in kept else block)
        raw["content"] = content
        if result.plan.structured is not ABSENT:
            raw["structuredContent"] = result.plan.structured
        addresses = [uri for each in media if (uri := each.uri) and not uri.startswith("data:")]
        if addresses:
            addresses = [upstream.scheme + each for each in addresses]
            raw["_meta"] = {**(raw.get("_meta") or {}), ADDRESS_META: addresses}
        return _with_scheme(upstream, raw, "content")


def _params(context: _Context) -> dict[str, Any]:
    """Return the parameters of a request without `_meta`, whose progress token is the host's own."""
    return {key: value for key, value in (context.params or {}).items() if key != "_meta"}


async def _ask(upstream: Upstream, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return await upstream.session.request(method, params)
    except PlayheadError as error:
        raise _error(error) from error


def _error(error: PlayheadError) -> MCPError:
    """Return a server's error with its code and data; other failures are internal errors."""
    if isinstance(error, ServerError):
        return MCPError(error.code, error.server_message or str(error), error.data)
    return MCPError(types.INTERNAL_ERROR, str(error))


def _with_scheme(upstream: Upstream, result: dict[str, Any], member: str) -> dict[str, Any]:
    """Put the server's scheme before each URI in the blocks of a result."""
    blocks = result.get(member)
    if not upstream.scheme or not isinstance(blocks, list):
        return result

    def moved(block: object) -> object:
        if not isinstance(block, dict):
            return block
        if isinstance(block.get("resource"), dict):
            return {**block, "resource": moved(block["resource"])}
        return {**block, "uri": f"{upstream.scheme}{block['uri']}"} if "uri" in block else block

    return {**result, member: [moved(block) for block in blocks]}


def upstreams_of(sessions: Mapping[str, Session]) -> tuple[Upstream, ...]:
    """Return the servers behind the proxy, each with the start of its URIs."""
    if len(sessions) == 1:
        return tuple(Upstream(name=name, session=session) for name, session in sessions.items())
    upstreams: list[Upstream] = []
    for number, (name, session) in enumerate(sessions.items(), start=1):
        scheme = _DISALLOWED.sub("-", name.lower()).strip("-")[:20]
        scheme = scheme if scheme[:1].isalpha() else f"s-{scheme}"
        if any(each.scheme == f"{scheme}+" for each in upstreams):
            scheme = f"{scheme}-{number}"
        upstreams.append(Upstream(name=name, session=session, scheme=f"{scheme}+"))
    return tuple(upstreams)


@asynccontextmanager
async def open_proxy(
    targets: Mapping[str, Target], player: Player | None, options: ProxyOptions
) -> AsyncIterator[Server[dict[str, Any]]]:
    """Connect to the servers, and open the proxy as an SDK server. Leaving the context disconnects.

    Raises `ConfigError` and `ConnectError` as `connect`.
    """
    async with AsyncExitStack() as stack:
        sessions = {
            name: await stack.enter_async_context(connect(target, limits=options.limits))
            for name, target in targets.items()
        }
        upstreams = [
            replace(each, allowed_tools=target.allowed_tools) if isinstance(target, ServerConfig) else each
            for each, target in zip(upstreams_of(sessions), targets.values(), strict=True)
        ]
        yield ProxyServer(upstreams=upstreams, player=player, options=options).server()


async def serve(
    targets: Mapping[str, Target],
    player: Player | None,
    options: ProxyOptions,
    *,
    task_status: trio.TaskStatus[str | None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the proxy until stdin ends or SIGTERM; the task status is its URL, None over stdio.

    Raises `UsageError`, `ConfigError` and `ConnectError`.
    """
    access = Access.for_host(options.host, web_origins=options.web_origins, token=options.token)
    tls = tls_context(options.tls_certificate, options.tls_key)
    async with open_proxy(targets, player, options) as server:
        if options.transport == "stdio":
            await serve_stdio(server, limits=options.limits, task_status=task_status)
            return
        scheme = options.transport if tls is None else f"{options.transport}s"
        with bind(options.host, options.port) as sock:
            url = base_url(sock, scheme=scheme) + MCP_PATH
            if options.transport == "ws":
                app = Starlette(routes=[*websocket_routes(server, MCP_PATH)])
            else:
                app = streamable_http_app(server, MCP_PATH, sessions=options.sessions)
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(serve_until_sigterm, access.protect(app), sock, tls=tls))
                sys.stderr.write(f"playhead proxy: {url}\n")
                sys.stderr.flush()
                task_status.started(url)
