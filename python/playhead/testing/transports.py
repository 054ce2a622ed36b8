"""The laws of clients: a suite that every carrier of ours passes, with the SDK's client as its oracle.

A test gives a factory: called with a lowlevel SDK server and a protocol version, it returns an async context
manager of a client that is connected to that very server object. (For a stdio carrier the child is a relay,
see `peers.relay_command`.) `carrier_client` and `sdk_client` make the clients.

    @pytest.mark.parametrize("check", transports.TRANSPORT_LAWS, ids=lambda check: check.__name__)
    async def test_conformance(check):
        await check(factory)

Each check opens a connection of its own, in the version `mode` (default: the negotiated one). It raises
AssertionError, or trio.TooSlowError if an expected event does not happen.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import mcp_types as types
import trio
from mcp import Client as SdkClient
from mcp.client import Transport
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from playhead.client.session.connection import Connection
from playhead.client.session.handshake import negotiate
from playhead.client.transports.carrier import Carrier
from playhead.errors import ServerError
from playhead.limits import DEFAULT_LIMITS


class Client(Protocol):
    """A connected client."""

    async def read(self, uri: str, *, padding: str = "") -> str:
        """Read a resource with one text; `padding` goes with the request. Raises `ServerError`."""
        ...


Factory = Callable[[Server[Any], str], AbstractAsyncContextManager[Client]]


class TransportLaw(Protocol):
    """A law. `mode` is the protocol version, as for `playhead.connect`."""

    __name__: str

    async def __call__(self, factory: Factory, *, mode: str = "auto") -> None: ...


@dataclass(frozen=True, slots=True)
class _CarrierClient:
    connection: Connection

    async def read(self, uri: str, *, padding: str = "") -> str:
        result = await self.connection.request(
            "resources/read",
            {"uri": uri, "_meta": {"padding": padding}},
            silent_seconds=math.inf,
            total_seconds=math.inf,
        )
        (content,) = result["contents"]
        text: str = content["text"]
        return text


@asynccontextmanager
async def carrier_client(carrier: Carrier, *, mode: str) -> AsyncIterator[Client]:
    """Open our client over `carrier`."""
    connection = Connection(carrier, server="the server", limits=DEFAULT_LIMITS)
    async with connection.opened():
        await negotiate(connection, mode=mode, seconds=DEFAULT_LIMITS.handshake_seconds)
        yield _CarrierClient(connection)


@dataclass(frozen=True, slots=True)
class _SdkClient:
    client: SdkClient

    async def read(self, uri: str, *, padding: str = "") -> str:
        meta: Any = {"padding": padding}
        try:
            result = await self.client.session.read_resource(uri, meta=meta)
        except MCPError as error:
            raise ServerError(
                str(error), code=error.error.code, server_message=error.error.message
            ) from error
        assert isinstance(result, types.ReadResourceResult)
        (content,) = result.contents
        assert isinstance(content, types.TextResourceContents)
        return content.text


@asynccontextmanager
async def sdk_client(transport: Transport, *, mode: str) -> AsyncIterator[Client]:
    """Open the SDK's client over `transport`."""
    async with SdkClient(transport, cache=None, mode=mode) as client:
        yield _SdkClient(client)


PATIENCE_SECONDS = 30.0
"""Limits the wait for an event. Only a failing transport uses it up."""

AWKWARD_TEXT = 'quote " backslash \\ newline \n line separator \u2028 nul \x00 emoji \U0001f3b5 bidi \u202e'


@dataclass(slots=True)
class Peer:
    """The server of a law: a few resources whose reads can be blocked, counted and released."""

    started: int = 0
    cancelled: int = 0
    anyone_started: trio.Event = field(default_factory=trio.Event)
    anyone_cancelled: trio.Event = field(default_factory=trio.Event)
    release: trio.Event = field(default_factory=trio.Event)

    async def read(
        self, context: ServerRequestContext[Any, Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        kind, _, rest = params.uri.partition("://")
        text = ""
        match kind:
            case "echo":
                text = rest
            case "big":
                text = "x" * int(rest)
            case "padding":
                text = str(len(str((params.meta or {}).get("padding", ""))))
            case "awkward":
                text = AWKWARD_TEXT
            case "fail":
                raise MCPError(code=-32050, message=rest)
            case "hold":
                text = await self._hold(rest)
            case _:
                raise AssertionError(f"no such resource: {params.uri}")
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=text)])

    async def _hold(self, text: str) -> str:
        self.started += 1
        self.anyone_started.set()
        try:
            await self.release.wait()
        except trio.Cancelled:
            self.cancelled += 1
            self.anyone_cancelled.set()
            raise
        return text

    def server(self) -> Server[Any]:
        """Return a server that reads from this peer."""
        return Server("conformance", on_read_resource=self.read)


@asynccontextmanager
async def _connected(factory: Factory, peer: Peer, mode: str) -> AsyncIterator[Client]:
    with trio.fail_after(PATIENCE_SECONDS):
        async with factory(peer.server(), mode) as client:
            yield client


async def a_request_is_answered(factory: Factory, *, mode: str = "auto") -> None:
    """A request gets its answer."""
    async with _connected(factory, Peer(), mode) as client:
        assert await client.read("echo://hello") == "hello"


async def answers_find_their_requests(factory: Factory, *, mode: str = "auto") -> None:
    """Sixteen reads in flight; the first is answered last, and each gets its own answer."""
    peer = Peer()
    answers: dict[str, str] = {}

    async def ask(client: Client, uri: str) -> None:
        answers[uri] = await client.read(uri)

    async with _connected(factory, peer, mode) as client, trio.open_nursery() as nursery:
        nursery.start_soon(ask, client, "hold://first")
        await peer.anyone_started.wait()
        async with trio.open_nursery() as others:
            for number in range(15):
                others.start_soon(ask, client, f"echo://{number}")
        assert "hold://first" not in answers
        peer.release.set()
    assert answers == {"hold://first": "first"} | {f"echo://{n}": str(n) for n in range(15)}


async def a_big_answer_arrives_whole(factory: Factory, *, mode: str = "auto") -> None:
    """8 MiB in one message: far more than any pipe or socket buffer holds."""
    async with _connected(factory, Peer(), mode) as client:
        assert len(await client.read(f"big://{8 << 20}")) == 8 << 20


async def a_big_request_arrives_whole(factory: Factory, *, mode: str = "auto") -> None:
    """A request of 1 MiB arrives."""
    async with _connected(factory, Peer(), mode) as client:
        assert await client.read("padding://", padding="y" * (1 << 20)) == str(1 << 20)


async def awkward_text_is_carried_unchanged(factory: Factory, *, mode: str = "auto") -> None:
    """Newlines, line separators, NUL and characters outside the first plane are data, not framing."""
    async with _connected(factory, Peer(), mode) as client:
        assert await client.read("awkward://") == AWKWARD_TEXT


async def an_error_fails_its_own_request_only(factory: Factory, *, mode: str = "auto") -> None:
    """The code and message arrive, and the session continues."""
    async with _connected(factory, Peer(), mode) as client:
        answered: ServerError | None = None
        try:
            await client.read("fail://out of tape")
        except ServerError as error:
            answered = error
        assert answered is not None, "the error answer did not raise"
        assert (answered.code, answered.server_message) == (-32050, "out of tape")
        assert await client.read("echo://on") == "on"


async def a_cancelled_request_is_cancelled_at_the_server(factory: Factory, *, mode: str = "auto") -> None:
    """Cancelling the caller reaches the handler, and the session continues."""
    peer = Peer()
    async with _connected(factory, peer, mode) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.read, "hold://x")
            await peer.anyone_started.wait()
            nursery.cancel_scope.cancel()
        await peer.anyone_cancelled.wait()
        assert peer.cancelled == 1
        assert await client.read("echo://on") == "on"


async def leaving_in_the_middle_of_a_request_ends_it(factory: Factory, *, mode: str = "auto") -> None:
    """A session can be left when it is cancelled while waiting."""
    peer = Peer()
    with trio.CancelScope() as scope:
        async with _connected(factory, peer, mode) as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.read, "hold://x")
            await peer.anyone_started.wait()
            scope.cancel()
    assert scope.cancelled_caught


async def an_exception_of_the_body_comes_out(factory: Factory, *, mode: str = "auto") -> None:
    """Errors of the user's code are not swallowed (task groups may wrap them)."""

    class OfTheBodyError(Exception):
        pass

    caught = False
    try:
        async with _connected(factory, Peer(), mode) as client:
            await client.read("echo://x")
            raise OfTheBodyError  # noqa: TRY301 (from inside the session is the point)
    except* OfTheBodyError:
        caught = True
    assert caught


TRANSPORT_LAWS: tuple[TransportLaw, ...] = (
    a_request_is_answered,
    answers_find_their_requests,
    a_big_answer_arrives_whole,
    a_big_request_arrives_whole,
    awkward_text_is_carried_unchanged,
    an_error_fails_its_own_request_only,
    a_cancelled_request_is_cancelled_at_the_server,
    leaving_in_the_middle_of_a_request_ends_it,
    an_exception_of_the_body_comes_out,
)
"""The laws of the suite."""
