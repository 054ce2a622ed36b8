"""Streamable HTTP: requests that a client of ours never sends, and the bytes of ordinary answers.

A session of its own is opened with plain HTTP requests, so that nothing here disturbs the session of the
check. Servers of OAuth are left out: their tokens belong to the session.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import httpx2
import trio

from playhead.check.probes.asking import excerpt
from playhead.check.probes.connection import NO_REVISION
from playhead.check.results import TestDraft, TestResult
from playhead.check.target import RATE_LIMITED, STILL_RATE_LIMITED, Target
from playhead.config.servers import ServerConfig, is_websocket
from playhead.limits import DEFAULT_LIMITS, KIB
from playhead.net_guard import is_loopback
from playhead.protocol.exchange import Exchange
from playhead.protocol.revisions import CLIENT_INFO, REVISIONS
from playhead.redacted_request import redact_query

FOREIGN_ORIGIN: Final = "https://attacker.example"
"""Names a web page that a user happens to visit, and whose name resolves to this machine (DNS rebinding)."""
_BODY_BYTES: Final = 256 * KIB
_RESUMED_SECONDS: Final = 1.0
"""Limits the wait for messages on a resumed stream, which may stay open."""
_REST_SECONDS: Final = 0.3
"""Limits the wait for the end of a stream after the awaited answer."""
_LEAST_ID_CHARS: Final = 16
"""A shorter session id has less than 96 bits, even in base64."""
_STACK: Final = re.compile(
    r"Traceback \(most recent call last\)|^\s+at \S.{0,300}[:(]\d+(?::\d+)?\)?$|goroutine \d+ \[|\bat"
    r" [\w.$]+\([\w]+\.java:\d+\)"
    r'|File "[^"]{1,300}", line \d+|(?:&nbsp;|\s)at [\w.<>]+ \(?(?:file|node|/)[^)\s]{1,300}:\d+:\d+',
    re.MULTILINE,
)
_METADATA: Final = re.compile(r'resource_metadata="?([^",\s]+)"?')


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    """One HTTP answer, or the reason why there is none."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_whole: bool = True
    """False if the body was not read to its end."""
    failure: str = ""

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def words(self) -> str:
        """The answer, for a message."""
        if self.failure:
            return f"no answer ({self.failure})"
        shown = " ".join(self.text.split())[:120]
        return f"HTTP {self.status}{f': {shown}' if shown else ''}"

    @property
    def is_ok(self) -> bool:
        """True for a JSON-RPC result in a successful answer."""
        return 200 <= self.status < 300 and any("result" in it for it in self.messages())

    @property
    def is_limited(self) -> bool:
        """True if the server limits the rate of requests."""
        return self.status == 429 or RATE_LIMITED.search(self.text[:2_000]) is not None

    @property
    def is_refused(self) -> bool:
        return 400 <= self.status < 500

    def messages(self) -> list[dict[str, Any]]:
        """Return the JSON-RPC messages of the body."""
        texts = (
            [event.data for event in _events(self.text)] if self.kind == "text/event-stream" else [self.text]
        )
        found: list[dict[str, Any]] = []
        for text in texts:
            try:
                value = json.loads(text) if text.strip() else None
            except (ValueError, RecursionError):
                continue
            found += [it for it in (value if isinstance(value, list) else [value]) if isinstance(it, dict)]
        return found


@dataclass(slots=True)
class _SseEvent:
    data: str = ""
    id: str | None = None
    name: str = ""


def _events(text: str) -> list[_SseEvent]:
    """Parse server-sent events; the last one may lack its end."""
    events: list[_SseEvent] = []
    for block in re.split(r"\r\n\r\n|\n\n|\r\r", text.removeprefix("\ufeff")):
        event = _SseEvent()
        lines = [line for line in re.split(r"\r\n|\n|\r", block) if line and not line.startswith(":")]
        for line in lines:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match name:
                case "data":
                    event.data = f"{event.data}\n{value}" if event.data else value
                case "id":
                    event.id = value
                case "event":
                    event.name = value
        if lines:
            events.append(event)
    return events


def framing_problem(text: str, *, is_whole: bool) -> str | None:
    """Return what is wrong with a stream of server-sent events, if anything. `is_whole` is true if it has
    ended."""
    fields = [
        line.partition(":")[0]
        for line in re.split(r"\r\n|\n|\r", text.removeprefix("\ufeff"))
        if line and not line.startswith(":")
    ]
    wrong = next((name for name in fields if name not in ("data", "event", "id", "retry")), None)
    if wrong is not None:
        return f"expected lines that begin with data, event, id or retry, got {wrong[:60]!r}"
    if is_whole and text and not re.search(r"(?:\r\n|\n|\r)(?:\r\n|\n|\r)$", text):
        return "expected a blank line after the last event, which clients drop without; got the end"
    for event in _events(text)[: None if is_whole else -1]:
        if event.data and event.name in ("", "message"):
            try:
                json.loads(event.data)
            except (ValueError, RecursionError):
                return f"expected JSON as the data of each event, got {event.data[:80]!r}"
    return None


@dataclass(slots=True, kw_only=True)
class _Http:
    """A session of plain HTTP requests."""

    client: httpx2.AsyncClient
    url: str
    exchange: Exchange
    fixed: Mapping[str, str]
    """The headers of the servers file."""
    seconds: float
    session: str | None = None
    bodies: list[_Reply] = field(default_factory=list)
    """The answers to requests that are wrong."""

    async def send(
        self,
        verb: str,
        content: bytes | None = None,
        *,
        headers: Mapping[str, str | None] | None = None,
        awaited: int | str | None = None,
        seconds: float | None = None,
    ) -> _Reply:
        """Send a request. A header that is None is left out; a stream is read until the answer to
        `awaited`."""
        sent: dict[str, str | None] = {
            "accept": "text/event-stream" if verb == "GET" else "application/json, text/event-stream",
            **({"content-type": "application/json"} if content is not None else {}),
            **({"mcp-session-id": self.session} if self.session is not None else {}),
            **self.fixed,
            **(headers or {}),
        }
        kept = {name: value for name, value in sent.items() if value is not None}
        reply = _Reply(failure=f"none in {self.seconds:g} s")
        with trio.move_on_after(self.seconds if seconds is None else seconds) as scope:
            try:
                request = self.client.build_request(verb, self.url, content=content, headers=kept)
                redact_query(request)
                async with aclosing(await self.client.send(request, stream=True)) as response:
                    reply = _Reply(status=response.status_code, headers=response.headers, is_whole=False)
                    if verb == "GET" and awaited is None and reply.status == 200:
                        return reply  # a stream that stays open
                    body = bytearray()
                    async for chunk in response.aiter_bytes():
                        body += chunk
                        reply = replace(reply, body=bytes(body))
                        if len(body) > _BODY_BYTES:
                            return reply
                        if awaited is not None and any(it.get("id") == awaited for it in reply.messages()):
                            scope.deadline = min(scope.deadline, trio.current_time() + _REST_SECONDS)
                    return replace(reply, is_whole=True)
            except (httpx2.HTTPError, OSError) as error:
                return _Reply(failure=type(error).__name__)
        return reply

    async def ask(
        self, *, accept: str | None = None, headers: Mapping[str, str | None] | None = None
    ) -> tuple[_Reply, int | str]:
        """Send a request that every server answers. Return the reply, and the request's id."""
        method = "ping" if self.exchange.revision.has_initialize else "server/discover"
        outgoing = self.exchange.request(method, {})
        more = {name.decode(): value.decode() for name, value in self.exchange.headers(outgoing)}
        chosen = {**more, **({"accept": accept} if accept is not None else {}), **(headers or {})}
        reply = await self.send("POST", outgoing.data, headers=chosen, awaited=outgoing.id)
        self.exchange.cancel(outgoing.id)
        return reply, outgoing.id

    def plain_headers(self) -> dict[str, str]:
        """Return the headers of a notification, GET or DELETE."""
        return {name.decode(): value.decode() for name, value in self.exchange.headers(None)}

    async def initialize(self) -> _Reply:
        """Open a session, if the revision has sessions."""
        self.session = None
        params = {
            "protocolVersion": self.exchange.revision.name,
            "capabilities": {},
            "clientInfo": CLIENT_INFO,
        }
        outgoing = self.exchange.request("initialize", params)
        reply = await self.send("POST", outgoing.data, awaited=outgoing.id)
        self.exchange.cancel(outgoing.id)
        self.session = reply.headers.get("mcp-session-id")
        return reply


async def probe_http(target: Target) -> None:
    """Judge a server's HTTP, on a session of its own."""
    server = target.server
    if (
        not isinstance(server, ServerConfig)
        or server.url is None
        or is_websocket(server.url)
        or server.auth is not None
    ):
        return
    revision = REVISIONS.get(target.protocol_version)
    if revision is None:
        return
    async with _opened(server, server.url, target.options.timeout_seconds) as http:
        http.exchange.revision = revision
        if revision.has_initialize:
            first = await http.initialize()
            if not first.is_ok:
                with target.test("http", "a session of its own") as draft:
                    draft.skipped("http.content-type", f"the server gave no other session: {first.words}")
                return
            await _probe_notification(target, http)
        with target.test("http", "an ordinary request") as draft:
            usual, usual_id = await http.ask()
            if not usual.is_ok:
                draft.undecided = f"an ordinary request was not answered with a result: {usual.words}"
                return
            _judge_usual(draft, usual)
        await _probe_accept(target, http)
        await _probe_origin(target, http, server.url)
        await _probe_versions(target, http)
        await _probe_malformed(target, http)
        await _probe_get(target, http)
        if revision.has_initialize:
            if revision.has_resumption and usual.kind == "text/event-stream":
                await _probe_resumption(target, http, usual, usual_id)
            if http.session is not None:
                await _probe_sessions(target, http)
        _judge_bodies(target, http)
        if "authorization" in {name.lower() for name in server.headers}:
            reply, _ = await http.ask(headers={**dict.fromkeys(server.headers), "authorization": None})
            if reply.status == 401:
                target.on_test(await _authorization_test(http, reply))


@asynccontextmanager
async def _opened(server: ServerConfig, url: str, seconds: float) -> AsyncIterator[_Http]:
    async with httpx2.AsyncClient(
        verify=server.tls_verify, follow_redirects=False, trust_env=False
    ) as client:
        exchange = Exchange(DEFAULT_LIMITS)
        yield _Http(client=client, url=url, exchange=exchange, fixed=dict(server.headers), seconds=seconds)


def _require(draft: TestDraft, reply: _Reply, row: str, condition: bool, message: str) -> None:
    """Require `condition` of `reply`. It proves nothing if the server limits the rate of requests."""
    draft.void = STILL_RATE_LIMITED if reply.is_limited else draft.void
    draft.require(row, condition, message)


async def _probe_notification(target: Target, http: _Http) -> None:
    with target.test("http", "a notification") as draft:
        data = http.exchange.notify("notifications/initialized")
        reply = await http.send("POST", data, headers=http.plain_headers())
        _require(
            draft,
            reply,
            "http.notification",
            reply.status == 202 and not reply.body.strip(),
            f"expected HTTP 202 without a body, got {reply.words}",
        )


def _judge_usual(draft: TestDraft, reply: _Reply) -> None:
    draft.require(
        "http.content-type",
        reply.kind in ("application/json", "text/event-stream"),
        f"expected application/json or text/event-stream, got"
        f" {reply.headers.get('content-type', 'no content type')!r}",
    )
    if reply.kind == "text/event-stream":
        problem = framing_problem(reply.text, is_whole=reply.is_whole)
        draft.require("http.sse-framing", problem is None, problem or "")


async def _probe_accept(target: Target, http: _Http) -> None:
    accept = "text/event-stream;q=0.9, application/json"
    with target.test("http", "another order of Accept", input={"Accept": accept}) as draft:
        reply, _ = await http.ask(accept=accept)
        why = f"expected the same answer for the same types in another order, got {reply.words}"
        _require(draft, reply, "http.accept", reply.is_ok, why)


async def _probe_origin(target: Target, http: _Http, url: str) -> None:
    if not is_loopback(url):
        with target.test("http", "a foreign origin") as draft:
            draft.skipped("http.origin", "the server does not run here, where a web page could reach it")
        return
    for row, title, header in (
        ("http.origin", "a foreign Origin", {"origin": FOREIGN_ORIGIN}),
        ("http.host", "a foreign Host", {"host": FOREIGN_ORIGIN.removeprefix("https://")}),
    ):
        with target.test("http", title, input=header) as draft:
            reply, _ = await http.ask(headers=header)
            http.bodies.append(reply)
            why = (
                f"expected a refusal (HTTP 403), got {reply.words}: a web page could use this server by"
                f" DNS rebinding"
            )
            _require(draft, reply, row, not 200 <= reply.status < 300, why)


async def _probe_versions(target: Target, http: _Http) -> None:
    if http.exchange.revision.name < "2025-06-18":
        return  # the header is newer
    with target.test(
        "http", "an unknown MCP-Protocol-Version", input={"MCP-Protocol-Version": NO_REVISION}
    ) as draft:
        reply, _ = await http.ask(headers={"mcp-protocol-version": NO_REVISION})
        http.bodies.append(reply)
        _require(
            draft,
            reply,
            "http.protocol-version",
            reply.status == 400,
            f"expected HTTP 400, got {reply.words}",
        )


async def _probe_malformed(target: Target, http: _Http) -> None:
    with target.test("http", "a body that is not JSON") as draft:
        reply = await http.send("POST", b'{"jsonrpc": "2.0", "id": 1, "method"', headers=http.plain_headers())
        http.bodies.append(reply)
        is_error = any("error" in message for message in reply.messages())
        _require(
            draft,
            reply,
            "http.malformed",
            reply.is_refused or (200 <= reply.status < 300 and is_error),
            f"expected HTTP 400, got {reply.words}",
        )


async def _probe_get(target: Target, http: _Http) -> None:
    with target.test("http", "GET") as draft:
        reply = await http.send("GET", headers=http.plain_headers())
        http.bodies.append(reply)
        is_stream = reply.status == 200 and reply.kind == "text/event-stream"
        why = (
            f"expected a stream of events, or HTTP 405, got {reply.kind or 'no content type'} in"
            f" {reply.words}"
        )
        _require(draft, reply, "http.get", is_stream or reply.status == 405, why)


async def _probe_resumption(target: Target, http: _Http, usual: _Reply, usual_id: int | str) -> None:
    first = [event.id for event in _events(usual.text) if event.id]
    if not first:
        return
    with target.test("http", "the ids of events") as draft:
        other, _ = await http.ask()
        second = [event.id for event in _events(other.text) if event.id]
        all_ids = [*first, *second]
        twice = next((it for it in all_ids if all_ids.count(it) > 1), None)
        why = f"expected each id of an event once per session, got {twice!r} again"
        draft.require("http.event-ids", twice is None, why)
        headers = {**http.plain_headers(), "last-event-id": first[0]}
        reply = await http.send("GET", headers=headers, awaited=usual_id, seconds=_RESUMED_SECONDS)
        http.bodies.append(reply)
        foreign = [
            it["id"] for it in reply.messages() if "id" in it and "method" not in it and it["id"] != usual_id
        ]
        _require(
            draft,
            reply,
            "http.resumption",
            not foreign and reply.status < 500,
            f"expected the rest of the stream of request {usual_id}, or a refusal, got"
            f" {f'the answer to request {foreign[0]}' if foreign else reply.words}",
        )


async def _probe_sessions(target: Target, http: _Http) -> None:
    session = http.session
    assert session is not None
    with target.test("http", "the ids of sessions") as draft:
        await http.initialize()
        other, http.session = http.session, session
        is_visible = all(0x21 <= ord(char) <= 0x7E for char in session)
        why = f"expected visible ASCII, got {session[:60]!r}"
        draft.require("http.session-characters", is_visible, why)
        problem = _guessable(session, other)
        draft.require("http.session-guessable", problem is None, problem or "")
        draft.output = excerpt([f"{len(session)} characters"])
    with target.test("http", "an unknown session") as draft:
        reply, _ = await http.ask(headers={"mcp-session-id": "playhead-check-no-such-session"})
        http.bodies.append(reply)
        why = f"expected HTTP 404 for an unknown Mcp-Session-Id, got {reply.words}"
        _require(draft, reply, "http.session-unknown", reply.is_refused, why)
    with target.test("http", "no session") as draft:
        reply, _ = await http.ask(headers={"mcp-session-id": None})
        http.bodies.append(reply)
        if reply.is_ok:
            draft.skipped("http.session-required", "the server does not require its session id")
        else:
            why = f"expected HTTP 400 for a request without its Mcp-Session-Id, got {reply.words}"
            _require(draft, reply, "http.session-required", reply.is_refused, why)
    with target.test("http", "a session that was deleted") as draft:
        reply = await http.send("DELETE", headers=http.plain_headers())
        if not 200 <= reply.status < 300:
            http.bodies.append(reply)
            why = (
                f"expected HTTP 200 or 204, or 405 from a server whose clients can't end sessions, got"
                f" {reply.words}"
            )
            _require(draft, reply, "http.session-delete", reply.status in (405, 501), why)
            return
        draft.passed("http.session-delete")
        after, _ = await http.ask()
        http.bodies.append(after)
        _require(
            draft, after, "http.session-ended", after.status == 404, f"expected HTTP 404, got {after.words}"
        )


def _guessable(first: str, second: str | None) -> str | None:
    """Return why the ids of two sessions in a row can be guessed, or None."""
    if first == second:
        return "expected another id for each session, got the same one twice"
    if len(first) < _LEAST_ID_CHARS:
        return f"expected an id that can't be guessed, such as a UUID, got {len(first)} characters: {first!r}"
    if second is not None and len(first) == len(second):
        differing = sum(a != b for a, b in zip(first, second, strict=True))
        if differing <= 4:
            return (
                f"expected ids that can't be guessed, got two in a row that differ in {differing} characters"
            )
    return None


def _judge_bodies(target: Target, http: _Http) -> None:
    with target.test("http", "the bodies of errors") as draft:
        traced = next((reply for reply in http.bodies if _STACK.search(reply.text)), None)
        why = "" if traced is None else f"expected an error without a stack trace, got {traced.words}"
        draft.require("http.error-body", traced is None, why)


# --- authorization ------------------------------------------------------------------------------------------


async def probe_authorization(server: ServerConfig, seconds: float) -> TestResult | None:
    """Judge the 401 of a server that can't be used without authorization; None if it does not answer with
    one."""
    if server.url is None or is_websocket(server.url):
        return None
    async with _opened(server, server.url, seconds) as http:
        http.exchange.revision = REVISIONS["2025-11-25"]
        reply = await http.initialize()
        return await _authorization_test(http, reply) if reply.status == 401 else None


async def _authorization_test(http: _Http, reply: _Reply) -> TestResult:
    draft = TestDraft(subject="http", title="authorization")
    draft.output = excerpt(dict(reply.headers))
    challenge = reply.headers.get("www-authenticate", "")
    draft.require(
        "http.challenge",
        bool(challenge),
        "expected WWW-Authenticate in the HTTP 401, with resource_metadata; got none",
    )
    if (match := _METADATA.search(challenge)) is not None:
        problem = await _metadata_problem(http, match[1])
        draft.require("http.authorization", problem is None, problem or "")
    return draft.done()


async def _metadata_problem(http: _Http, url: str) -> str | None:
    place = httpx2.URL(url)
    own = httpx2.URL(http.url)
    if (place.scheme, place.host, place.port) != (own.scheme, own.host, own.port):
        return None  # another origin is not asked
    plain = replace(http, url=url, session=None, fixed={})
    reply = await plain.send("GET", headers={"accept": "application/json"}, awaited="none")
    try:
        metadata = json.loads(reply.body) if reply.status == 200 else None
    except (ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        return f"expected the metadata that the 401 names (RFC 9728) at {url}, got {reply.words}"
    missing = [name for name in ("resource", "authorization_servers") if not metadata.get(name)]
    return f"expected {' and '.join(missing)} in the metadata at {url}, got none" if missing else None
