"""The session of one host: an own session with each server, and the servers' requests and notifications.

Nothing of one host reaches another: its servers' questions, log levels and results have connections of their
own. A host of a revision with a handshake has one session until it leaves. Hosts of 2026-07-28 over HTTP have
none in the protocol, where each request stands alone; they share one, and are asked nothing over it.

A server's requests pass within one generation of the protocol, to the host's newest request that the server
is answering, else to the host's own stream. Notifications pass between the generations too.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
import mcp_types as types
import pydantic
import trio
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from starlette.requests import Request

from playhead.client.connector import connect
from playhead.client.hub.server import HubServer, HubTarget, ServerState, ServerStatus
from playhead.client.session.backchannel import Backchannel
from playhead.client.session.elicitation import RefusedError
from playhead.client.session.list_changed import ACKNOWLEDGED, hold_again
from playhead.client.session.session import Session
from playhead.client.transports.server_process import StartedServer
from playhead.config.servers import ServerConfig
from playhead.errors import ConnectError, PlayheadError, RemoteError
from playhead.escaping import escape_line, shortened
from playhead.limits import Limits
from playhead.protocol.messages import INVALID_REQUEST
from playhead.protocol.revisions import REVISIONS, SUBSCRIPTION_META
from playhead.servers.proxy.upstream import Upstream, schemes, wire_error

NOTIFICATIONS_QUEUED: Final = 256
"""Limits the notifications that wait for a slow host. Further ones are dropped: all of them are advisory."""
SUBSCRIBE_SECONDS: Final = 0.5
"""Limits the wait for the servers before a subscription of the host is acknowledged."""
SESSION_HEADER: Final = "mcp-session-id"

_CHANGES: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
"""The notifications of changes, and their names in `subscriptions/listen`."""
_UPDATED: Final = "notifications/resources/updated"
_NOT_PASSED: Final = frozenset({"notifications/cancelled", "notifications/progress", ACKNOWLEDGED})

Context = ServerRequestContext["HostSessions"]


class _Anything(pydantic.RootModel[dict[str, Any]]):
    """The result of a request that passes unread."""


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """A request of the host that a server is answering."""

    session: ServerSession
    request_id: types.RequestId


@dataclass(frozen=True, slots=True, eq=False)
class _Listener:
    """A subscription of a host (`subscriptions/listen`)."""

    wanted: Mapping[str, Any]
    send: trio.MemorySendChannel[tuple[str, dict[str, Any]]]

    def take(self, method: str, params: dict[str, Any]) -> None:
        is_wanted = self.wanted.get(_CHANGES.get(method, "")) is True
        if is_wanted or params.get("uri") in (self.wanted.get("resourceSubscriptions") or ()):
            with suppress(trio.WouldBlock):
                self.send.send_nowait((method, params))


class HostSession:
    """The servers of one host."""

    def __init__(
        self,
        targets: Mapping[str, HubTarget],
        *,
        limits: Limits,
        early: dict[str, StartedServer],
        has_handshake: bool,
        capabilities: Mapping[str, Any],
        is_shared: bool = False,
    ) -> None:
        """Args:
        early: processes that run already. The first connection takes them.
        capabilities: the host's, as JSON; empty for hosts that declare them with each request.
        """
        self._targets = targets
        self._early = early
        self._limits = limits
        self._has_handshake = has_handshake
        self._capabilities = capabilities
        self._is_shared = is_shared
        self.home: ServerSession | None = None
        """The way to the host's own stream; None before the end of the handshake."""
        self.upstreams: tuple[Upstream, ...] = ()
        self.names: dict[tuple[str, str], tuple[Upstream, str]] = {}
        """The server and the server's own name of each listed tool and prompt, by kind and name."""
        self._listeners: list[_Listener] = []
        self._queue, self._queued = trio.open_memory_channel[Any](NOTIFICATIONS_QUEUED)
        self._acknowledging = 0
        """The host's subscriptions that wait for the servers, and with them its further requests."""
        self._acknowledged = trio.lowlevel.ParkingLot()
        self._pending = 0
        """The notifications that have not been passed on yet."""
        self._opened = trio.Event()
        self._leave = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._subscribed: dict[tuple[str, str], trio.CancelScope] = {}
        """The host's subscriptions to resources, by server and URI, if it has a handshake."""

    async def run(self) -> None:
        """Connect to the servers, and stay connected until `leave`."""
        async with trio.open_nursery() as hubs:
            starts = schemes(tuple(self._targets))
            self.upstreams = tuple(
                self._upstream(name, starts[name], target, hubs) for name, target in self._targets.items()
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_notifications)
                self._nursery = nursery
                async with trio.open_nursery() as connecting:
                    for each in self.upstreams:
                        connecting.start_soon(each.server.connect)
                self._opened.set()
                if self._has_handshake:
                    everything = dict.fromkeys(_CHANGES.values(), True)
                    for each in self.upstreams:
                        nursery.start_soon(self._subscribe, each, everything)
                await self._leave.wait()
                nursery.cancel_scope.cancel()
            for each in self.upstreams:
                each.server.close()

    async def wait_opened(self) -> None:
        """Wait until each server is connected or has failed."""
        await self._opened.wait()

    def leave(self) -> None:
        """Begin to disconnect."""
        self._leave.set()

    def _upstream(self, name: str, scheme: str, target: HubTarget, nursery: trio.Nursery) -> Upstream:
        reported = set[str]()

        def changed(state: ServerState) -> None:
            if state.status is ServerStatus.FAILED and state.reason not in reported:
                reported.add(state.reason)  # once: each listing tries again
                sys.stderr.write(f"playhead proxy: {name}: {shortened(escape_line(state.reason), 300)}\n")
                sys.stderr.flush()
            if state.status is ServerStatus.CONNECTED:
                upstream.connected.unpark_all()
            if state.status is ServerStatus.CONNECTED and self._opened.is_set():
                for method in _CHANGES:  # the host may have a list without this server, or an old one
                    self._take(upstream, method, {})

        upstream = Upstream(
            name=name,
            scheme=scheme,
            limits=self._limits,
            server=HubServer(
                name,
                target,
                nursery=nursery,
                connect=lambda target: self._connect(upstream, target),
                changed=changed,
                listed=lambda _server: None,
            ),
        )
        return upstream

    @asynccontextmanager
    async def _connect(self, upstream: Upstream, target: HubTarget) -> AsyncIterator[Session]:
        """Connect in the host's generation of the protocol if the server has it."""

        def connection(mode: str | None, capabilities: Mapping[str, Any]) -> Any:
            backchannel = Backchannel(
                ask=partial(self._ask, upstream),
                on_notification=partial(self._on_notification, upstream),
                capabilities=capabilities,
            )
            server = self._early.pop(upstream.name, target)
            return connect(server, limits=self._limits, mode=mode, backchannel=backchannel)

        is_open = False
        if self._has_handshake and (not isinstance(target, ServerConfig) or target.mode == "auto"):
            try:
                async with connection("legacy", self._capabilities) as session:
                    is_open = True
                    yield session
                    return
            except ConnectError as error:
                if is_open or not isinstance(error.__cause__, RemoteError):
                    raise  # otherwise the server has only the newer generation
        async with connection(None, {}) as session:
            yield session

    # --- what a server asks, and reports -----------------------------------------------------------

    @asynccontextmanager
    async def answering(self, upstream: Upstream, context: Context) -> AsyncIterator[None]:
        """Let the server's requests and notifications go to this request of the host while the body runs."""
        assert context.request_id is not None
        while self._acknowledging and not self._is_shared:  # the request may cause what was subscribed to
            await self._acknowledged.park()
        call = _Call(context.session, context.request_id)
        upstream.calls.append(call)
        try:
            yield
            await self._flush()
        finally:
            upstream.calls.remove(call)

    async def _ask(self, upstream: Upstream, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        revision = upstream.revision
        if revision is not None and revision.has_initialize is not self._has_handshake:
            raise RefusedError(
                f"{method} cannot be passed on: this server speaks MCP {revision.name}, and the host a"
                f" {'older' if self._has_handshake else 'newer'} generation, which asks in another way",
                code=INVALID_REQUEST,
            )
        call = upstream.calls[-1] if upstream.calls else None
        to = self.home if call is None else call.session
        if to is None:
            raise RefusedError(f"{method} cannot be passed on: the host is not ready", code=INVALID_REQUEST)
        related = None if call is None else ServerMessageMetadata(related_request_id=call.request_id)
        request: Any = types.Request[dict[str, Any], str](method=method, params=dict(params))
        try:
            return (await to.send_request(request, _Anything, metadata=related)).root
        except MCPError as error:
            raise RefusedError(error.message, code=error.code) from error
        except (pydantic.ValidationError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            reason = f"{method}: the host left, or returned an invalid result"
            raise RefusedError(reason, code=types.INTERNAL_ERROR) from error

    def _on_notification(self, upstream: Upstream, method: str, params: Mapping[str, Any]) -> None:
        members = {key: value for key, value in params.items() if key != "_meta"}
        meta = params.get("_meta")
        meta = dict(meta) if isinstance(meta, Mapping) else {}
        id = meta.pop(SUBSCRIPTION_META, None)
        if method == ACKNOWLEDGED and str(id).startswith("subscription-") and upstream.subscribing:
            upstream.subscribing.pop(0)()
        if method in _NOT_PASSED or (id is not None and not str(id).startswith("subscription-")):
            return
        if meta:
            members["_meta"] = meta
        if method == _UPDATED and isinstance(members.get("uri"), str):
            members["uri"] = f"{upstream.scheme}{members['uri']}"
        self._take(upstream, method, members)

    def _take(self, upstream: Upstream, method: str, params: dict[str, Any]) -> None:
        for listener in self._listeners:
            listener.take(method, params)
        if not self._has_handshake and (method in _CHANGES or method == _UPDATED):
            return  # such a host gets them in its subscriptions only
        call = upstream.calls[-1] if upstream.calls else None
        if self._is_shared and len(upstream.calls) != 1:
            return  # it may belong to another host
        with suppress(trio.WouldBlock):
            self._queue.send_nowait((call, method, params))
            self._pending += 1

    async def _pass_notifications(self) -> None:
        async for item in self._queued:
            if isinstance(item, trio.Event):
                item.set()
                continue
            call, method, params = item
            to = self.home if call is None else call.session
            if to is not None:
                related = None if call is None else call.request_id
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await to.send_notification(_notification(method, params), related_request_id=related)
            self._pending -= 1

    async def _flush(self) -> None:
        """Wait until the notifications that a server sent before its answer have been passed on."""
        if self._pending:
            passed = trio.Event()
            await self._queue.send(passed)
            await passed.wait()

    # --- subscriptions -----------------------------------------------------------------------------

    async def listen(self, context: Context, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Serve one `subscriptions/listen`, until the host ends it."""
        meta = {SUBSCRIPTION_META: context.request_id}
        send, receive = trio.open_memory_channel[tuple[str, dict[str, Any]]](NOTIFICATIONS_QUEUED)
        listener = _Listener(wanted, send)
        self._listeners.append(listener)
        self._acknowledging += 1
        pass_on = partial(context.session.send_notification, related_request_id=context.request_id)
        try:
            async with aclosing(receive), trio.open_nursery() as nursery:
                waits = [trio.Event() for _ in self.upstreams]
                for upstream, wait in zip(self.upstreams, waits, strict=True):
                    nursery.start_soon(self._stay_subscribed, upstream, wanted, wait, [])
                try:
                    with trio.move_on_after(SUBSCRIBE_SECONDS):
                        for wait in waits:
                            await wait.wait()
                finally:
                    self._acknowledging -= 1
                    self._acknowledged.unpark_all()
                acknowledged = {"notifications": dict(wanted), "_meta": meta}
                await pass_on(_notification(ACKNOWLEDGED, acknowledged))
                async for method, params in receive:
                    await pass_on(_notification(method, {**params, "_meta": meta}))
        finally:
            self._listeners.remove(listener)
        return {"resultType": "complete", "_meta": meta}

    async def subscribe(self, upstream: Upstream, uri: str) -> None:
        """Subscribe to a resource for a host with a handshake, until `unsubscribe`. Raises `MCPError`."""
        if (upstream.name, uri) in self._subscribed:
            return
        wanted = {"resourceSubscriptions": [f"{upstream.scheme}{uri}"]}
        scope = trio.CancelScope()
        assert self._nursery is not None
        error = await self._nursery.start(partial(self._subscribe, upstream, wanted, scope=scope))
        if error is not None:
            scope.cancel()
            raise wire_error(error)
        self._subscribed[upstream.name, uri] = scope

    def unsubscribe(self, upstream: Upstream, uri: str) -> None:
        """End what `subscribe` began, if anything."""
        if (scope := self._subscribed.pop((upstream.name, uri), None)) is not None:
            scope.cancel()

    async def _subscribe(
        self,
        upstream: Upstream,
        wanted: Mapping[str, Any],
        *,
        scope: trio.CancelScope | None = None,
        task_status: trio.TaskStatus[PlayheadError | None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Subscribe with a server, again after each loss, until cancelled. It has started once the server has
        acknowledged or failed, with the error."""
        failures: list[PlayheadError] = []
        with scope or trio.CancelScope():
            async with trio.open_nursery() as nursery:
                acknowledged = trio.Event()
                nursery.start_soon(self._stay_subscribed, upstream, wanted, acknowledged, failures)
                await acknowledged.wait()
                task_status.started(failures[0] if failures else None)

    async def _stay_subscribed(
        self,
        upstream: Upstream,
        wanted: Mapping[str, Any],
        acknowledged: trio.Event,
        failures: list[PlayheadError],
    ) -> None:
        uris = wanted.get("resourceSubscriptions") or ()
        own = [uri[len(upstream.scheme) :] for uri in uris if uri.startswith(upstream.scheme)]

        def subscribed() -> None:
            if acknowledged.is_set():  # updates may have been missed
                for uri in own:
                    self._take(upstream, _UPDATED, {"uri": f"{upstream.scheme}{uri}"})
            acknowledged.set()

        async def hold() -> bool:
            try:
                session = await upstream.session()
                if REVISIONS[session.protocol_version].has_listen:
                    kinds = {key: True for key in _CHANGES.values() if wanted.get(key) is True}
                    upstream.subscribing.append(subscribed)
                    await session.listen({**kinds, **({"resourceSubscriptions": own} if own else {})})
                elif own:  # changes of lists need no subscription in these revisions
                    await session.subscribe(own, subscribed)
                return bool(own) or REVISIONS[session.protocol_version].has_listen
            except PlayheadError as error:
                failures.append(error)
                raise
            finally:
                acknowledged.set()
                if subscribed in upstream.subscribing:
                    upstream.subscribing.remove(subscribed)

        while True:
            await hold_again(hold)
            await upstream.connected.park()


def _notification(method: str, params: dict[str, Any]) -> Any:
    return types.Notification[dict[str, Any], str](method=method, params=params)


@dataclass(slots=True, kw_only=True)
class HostSessions:
    """The hosts of one transport: the only one of a stdio or WebSocket connection, or all those of HTTP."""

    make: Callable[..., HostSession]
    nursery: trio.Nursery
    wait_seconds: float
    _sessions: dict[str | None, HostSession] = field(default_factory=dict)
    _arrived: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)

    async def of(self, context: Context) -> HostSession:
        """Return the session of the host that sent a request. Raises `MCPError` before its handshake."""
        revision = REVISIONS.get(context.protocol_version)
        has_handshake = revision is not None and revision.has_initialize
        key = None
        if isinstance(context.request, Request):
            key = context.request.headers.get(SESSION_HEADER) if has_handshake else None
            has_handshake = key is not None
        if key is not None and key not in self._sessions:
            with trio.move_on_after(self.wait_seconds):  # `notifications/initialized` may be on its way
                while key not in self._sessions:
                    await self._arrived.park()
            if key not in self._sessions:
                raise MCPError(types.INVALID_REQUEST, "expected notifications/initialized first, got none")
        session = self._sessions.get(key) or self._begin(key, context, has_handshake=has_handshake)
        await session.wait_opened()
        return session

    async def keep(self, context: Context) -> None:
        """Keep the session of a host that is initialized, until it leaves. Cancelled then."""
        key = None
        if isinstance(context.request, Request):
            key = context.request.headers.get(SESSION_HEADER)
            if key is None:
                return
        session = self._sessions.get(key) or self._begin(key, context, has_handshake=True)
        session.home = context.session
        self._arrived.unpark_all()
        try:
            await trio.sleep_forever()
        finally:
            if key is not None:
                del self._sessions[key]
                session.leave()

    def _begin(self, key: str | None, context: Context, *, has_handshake: bool) -> HostSession:
        declared: Any = context.session.client_capabilities
        if declared is not None:
            declared = declared.model_dump(by_alias=True, exclude_none=True, mode="json")
        elif context.method == "initialize":
            declared = (context.params or {}).get("capabilities")
        session = self._sessions[key] = self.make(
            has_handshake=has_handshake,
            capabilities=declared if has_handshake and isinstance(declared, dict) else {},
            is_shared=key is None and isinstance(context.request, Request),
        )
        self.nursery.start_soon(session.run)
        return session

    def close(self) -> None:
        """Begin to disconnect from all servers."""
        for session in self._sessions.values():
            session.leave()
