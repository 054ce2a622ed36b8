"""The conversation with a server: one state machine that judges every message by the capabilities.

One `Conversation` follows one connection. It is fed with each message in either direction, in the order in
which this side saw them, and records the rows of the catalogue that a message keeps or breaks in
`Observations`. It knows no clock and no stream. Where the order is not certain (HTTP has several streams, and
messages cross), it gives the server the benefit of the doubt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from playhead.content.findings import kind_of
from playhead.limits import MIB
from playhead.protocol.revisions import REVISIONS

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Orders the levels of log messages (RFC 5424), the least severe first."""
MOST_COMPLETIONS: Final = 100
_PARSED_BYTES: Final = MIB
"""Longer messages are results with media, which the probes judge."""
_REMEMBERED: Final = 4_096
_IDENTITIES: Final[Mapping[str, tuple[str, str, str]]] = {
    "tools/list": ("tools", "name", "tools"),
    "prompts/list": ("prompts", "name", "prompts"),
    "resources/list": ("resources", "uri", "resources"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", "resources"),
}
"""Maps each listing to its key, the identity of an item and the capability."""
_ASKED_CAPABILITIES: Final = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}

Key = tuple[type, object]
"""An id or a progress token with its type: 7 is not "7"."""


@dataclass(slots=True)
class Observation:
    """One row, as far as a server's messages show it."""

    broken: int = 0
    first: str = ""
    """The message of the first violation."""


@dataclass(slots=True)
class Observations:
    """The rows that the messages of one server have kept or broken, on all its connections."""

    rows: dict[str, Observation] = field(default_factory=dict)
    conversations: list[Conversation] = field(default_factory=list)

    def witness(self, *, in_order: bool) -> Callable[[Literal["sent", "received"], bytes], None]:
        """Follow one more connection. `in_order` is true if all its messages arrive on one stream."""
        conversation = Conversation(self, in_order=in_order)
        self.conversations.append(conversation)
        return conversation.witness

    def require(self, row: str, condition: bool, message: Callable[[], str]) -> bool:
        """Record that a message keeps `row`, or breaks it with `message`."""
        observation = self.rows.setdefault(row, Observation())
        if not condition:
            observation.broken += 1
            observation.first = observation.first or message()
        return condition


@dataclass(slots=True)
class _Request:
    method: str
    params: Mapping[str, Any]
    number: int
    """The number of messages before it."""


@dataclass(slots=True)
class _Listing:
    names: set[str]
    began: int
    """The number of messages before its first request."""


@dataclass(slots=True)
class _Change:
    capability: str
    began: int
    message: str
    is_lost: bool
    """True if tools disappeared, which a model may still call."""


class Conversation:
    """The messages of one connection: bytes by `witness`, or decoded ones by `sent` and `received`."""

    def __init__(self, observations: Observations, *, in_order: bool = True) -> None:
        self._require = observations.require
        self._in_order = in_order
        self._count = 0
        self._revision = ""
        self._capabilities: Mapping[str, Any] | None = None
        """The server's; None before the handshake, or without one."""
        self._client: Mapping[str, Any] = {}
        self._has_handshake = False
        self._is_initialized = False
        self._in_flight: dict[Key, _Request] = {}
        self._tokens: dict[Key, float | None] = {}
        """The progress tokens in use, with the newest progress."""
        self._over: dict[Key, bool] = {}
        """The tokens of ended requests: true if answered, false if cancelled."""
        self._level: str | None = None
        self._level_since = 0
        """The number of messages before the first request that the level applies to."""
        self._subscribed: dict[str, bool] = {}
        """Each URI that was ever subscribed to; false once an unsubscription was answered."""
        self._open_listings: dict[tuple[str, str], _Listing] = {}
        self._listings: dict[str, _Listing] = {}
        self._changes: list[_Change] = []
        self._announced: dict[str, int] = {}
        """The number of messages before the last `list_changed`, by capability."""

    # --- messages ------------------------------------------------------------------------------------

    def witness(self, direction: Literal["sent", "received"], data: bytes) -> None:
        """Take one message as bytes. One that is not JSON is another check's."""
        if len(data) > _PARSED_BYTES:
            return
        try:
            value = json.loads(bytes(data))
        except (ValueError, RecursionError):
            return
        for message in value if isinstance(value, list) else [value]:
            if isinstance(message, dict):
                (self.sent if direction == "sent" else self.received)(message)

    def sent(self, message: Mapping[str, Any]) -> None:
        """Take a message of this client's."""
        self._count += 1
        method, params = message.get("method"), _object(message.get("params"))
        if method == "notifications/initialized":
            self._is_initialized = True
        elif method == "notifications/cancelled":
            if (request := self._in_flight.pop(_key(params.get("requestId")), None)) is not None:
                self._end(request, is_answered=False)
        elif isinstance(method, str) and "id" in message:
            self._ask(_key(message["id"]), _Request(method, params, self._count))

    def _ask(self, id: Key, request: _Request) -> None:
        self._in_flight[id] = request
        meta = _object(request.params.get("_meta"))
        if "progressToken" in meta:
            self._tokens[_key(meta["progressToken"])] = None
        if request.method == "initialize":
            self._has_handshake = True
            self._client = _object(request.params.get("capabilities"))
        elif request.method == "resources/subscribe":
            self._subscribed[str(request.params.get("uri"))] = True
        if self._level is not None and not self._level_since:
            self._level_since = self._count

    def received(self, message: Mapping[str, Any]) -> None:
        """Take a message of the server's."""
        self._count += 1
        method = message.get("method")
        if not isinstance(method, str):
            self._on_answer(message)
        elif "id" in message:
            self._on_question(method)
        else:
            self._on_notification(method, _object(message.get("params")))

    def _on_answer(self, message: Mapping[str, Any]) -> None:
        error = message.get("error")
        if isinstance(error, dict):
            self._require(
                "wire.error-codes",
                error.get("code") != 0,
                lambda: f"expected an error code such as -32603, got 0: {str(error.get('message'))[:200]}",
            )
        request = self._in_flight.pop(_key(message.get("id")), None)
        if request is None:
            return
        self._end(request, is_answered=True)
        if isinstance(result := message.get("result"), dict):
            self._on_result(request, result)

    def _end(self, request: _Request, *, is_answered: bool) -> None:
        meta = _object(request.params.get("_meta"))
        if "progressToken" in meta:
            token = _key(meta["progressToken"])
            self._tokens.pop(token, None)
            self._over[token] = is_answered
            if len(self._over) > _REMEMBERED:
                del self._over[next(iter(self._over))]

    def _on_result(self, request: _Request, result: Mapping[str, Any]) -> None:
        match request.method:
            case "initialize":
                self._revision = str(result.get("protocolVersion"))
                self._capabilities = _object(result.get("capabilities"))
            case "server/discover":
                self._revision = "2026-07-28"
                self._capabilities = _object(result.get("capabilities"))
                self._has_handshake = self._is_initialized = True
            case "logging/setLevel":
                self._level, self._level_since = str(request.params.get("level")), 0
            case "resources/unsubscribe":
                self._subscribed[str(request.params.get("uri"))] = False
            case "completion/complete":
                self._on_completion(result)
            case method if method in _IDENTITIES:
                self._on_page(request, result)

    # --- what a server may send unasked --------------------------------------------------------------

    def _declares(self, *path: str) -> bool:
        """Return True if the server declares a capability, or if nothing is known of its capabilities."""
        value: Any = self._capabilities
        if value is None:
            return True
        for name in path[:-1]:
            value = _object(value.get(name))
        return value.get(path[-1]) not in (None, False)

    def _on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        match method.removeprefix("notifications/"):
            case "progress":
                self._on_progress(params)
            case "message":
                self._on_log(params)
            case "resources/updated":
                self._on_updated(params)
            case "tools/list_changed" | "resources/list_changed" | "prompts/list_changed" as name:
                capability = name.partition("/")[0]
                self._announced[capability] = self._count
                self._require(
                    "lists.declared",
                    self._declares(capability, "listChanged"),
                    lambda: f"expected {method} only from a server that declares {capability}.listChanged",
                )

    def _on_progress(self, params: Mapping[str, Any]) -> None:
        token, progress = params.get("progressToken"), params.get("progress")
        wrong = [
            f"{name} {'missing' if name not in params else kind_of(params[name])}"
            for name, is_valid in (
                ("progressToken", isinstance(token, str | int) and not isinstance(token, bool)),
                ("progress", _is_number(progress)),
                ("total", "total" not in params or _is_number(params["total"])),
                ("message", "message" not in params or isinstance(params["message"], str)),
            )
            if not is_valid
        ]
        if not self._require(
            "progress.shape",
            not wrong,
            lambda: f"expected a token, a number and an optional total and message, got {', '.join(wrong)}",
        ):
            return
        key = _key(token)
        if key in self._over and key not in self._tokens:
            is_late = self._over[key] and self._in_order
            why = f"expected no progress of token {token!r} after the answer to its request, got {progress}"
            self._require("progress.ends", not is_late, lambda: why)
            return
        similar = [known for _, known in self._tokens if str(known) == str(token)]
        if not self._require(
            "progress.token",
            key in self._tokens,
            lambda: (
                f"expected the token as it was sent, {similar[0]!r}, got {token!r}"
                if similar
                else f"expected the token of a request in flight, got {token!r}"
            ),
        ):
            return
        before = self._tokens[key]
        assert isinstance(progress, int | float)
        self._require(
            "progress.increases",
            before is None or progress > before,
            lambda: f"expected progress above {before}, got {progress}",
        )
        self._tokens[key] = progress

    def _on_log(self, params: Mapping[str, Any]) -> None:
        level = params.get("level")
        self._require(
            "logging.shape",
            level in LEVELS and "data" in params and isinstance(params.get("logger", ""), str),
            lambda: (
                f"expected one of the levels {', '.join(LEVELS)}, data, and an optional logger (a string);"
                f" got the level {level!r:.40}, and {', '.join(map(str, params)) or 'nothing'}"
            ),
        )
        self._require(
            "logging.declared",
            self._declares("logging"),
            lambda: "expected log messages only from a server that declares the capability logging",
        )
        if self._level in LEVELS and level in LEVELS and self._level_since:
            least = self._level
            self._require(
                "logging.threshold",
                LEVELS.index(level) >= LEVELS.index(least),
                lambda: (
                    f"expected messages of the level {least} or above, as set, got one of the level {level}"
                ),
            )

    def _on_updated(self, params: Mapping[str, Any]) -> None:
        uri = params.get("uri")
        if self._require(
            "subscriptions.declared",
            self._declares("resources", "subscribe"),
            lambda: (
                "expected notifications/resources/updated only from a server that declares"
                " resources.subscribe"
            ),
        ) and not _is_modern(self._revision):
            self._require(
                "subscriptions.wanted",
                isinstance(uri, str)
                and any(wanted and uri.startswith(known) for known, wanted in self._subscribed.items()),
                lambda: f"expected updates of subscribed resources only, got one of {uri!r:.200}",
            )

    def _on_question(self, method: str) -> None:
        asks = REVISIONS[self._revision].asks if self._revision in REVISIONS else None
        if method == "ping" or not self._has_handshake:
            return
        capability = _ASKED_CAPABILITIES.get(method)
        if self._require(
            "client.requests-known",
            asks is None or method in asks or method.startswith("tasks/"),
            lambda: f"expected a request that MCP {self._revision} lets a server make, got {method!r:.80}",
        ):
            self._require(
                "client.requests-declared",
                capability is None or capability in self._client,
                lambda: f"expected no {method}, since this client does not declare {capability}",
            )
        self._require(
            "client.requests-early",
            self._is_initialized,
            lambda: f"expected only pings and log messages before notifications/initialized, got {method}",
        )

    # --- results -------------------------------------------------------------------------------------

    def _on_completion(self, result: Mapping[str, Any]) -> None:
        completion = result.get("completion")
        values = completion.get("values") if isinstance(completion, dict) else None
        is_shaped = isinstance(values, list) and all(isinstance(value, str) for value in values)
        if isinstance(completion, dict):
            total, more = completion.get("total", 0), completion.get("hasMore", False)
            is_shaped = is_shaped and _is_number(total) and isinstance(more, bool)
        self._require(
            "completion.declared",
            self._declares("completions") or self._revision == "2024-11-05",
            lambda: "expected the handshake to declare completions, since completion/complete is answered",
        )
        if self._require(
            "completion.shape",
            is_shaped,
            lambda: f"expected completion.values to be an array of strings, got {str(result)[:200]}",
        ):
            assert isinstance(values, list)
            self._require(
                "completion.values",
                len(values) <= MOST_COMPLETIONS,
                lambda: f"expected at most {MOST_COMPLETIONS} values, got {len(values)}",
            )

    def _on_page(self, request: _Request, result: Mapping[str, Any]) -> None:
        method = request.method
        key, identity, capability = _IDENTITIES[method]
        following = result.get("nextCursor")
        self._require(
            "lists.null-cursor",
            following is not None or "nextCursor" not in result,
            lambda: f"expected the last page of {method} to have no nextCursor, got null",
        )
        items = result.get(key)
        names = {
            item[identity]
            for item in (items if isinstance(items, list) else ())
            if isinstance(item, dict) and isinstance(item.get(identity), str)
        }
        cursor = request.params.get("cursor")
        if cursor is None:
            listing = _Listing(names, request.number)
        else:
            begun = self._open_listings.pop((method, str(cursor)), None)
            if begun is None:
                return
            listing = _Listing(begun.names | names, begun.began)
        if following is not None:
            self._open_listings[method, str(following)] = listing
            return
        before = self._listings.get(method)
        self._listings[method] = listing
        if before is not None and before.names != listing.names and not _is_modern(self._revision):
            gone, new = sorted(before.names - listing.names), sorted(listing.names - before.names)
            parts = [
                f"{word} {', '.join(names[:3])}"
                for word, names in (("without", gone), ("with", new))
                if names
            ]
            message = f"expected notifications/{capability}/list_changed, got {method} {' and '.join(parts)}"
            self._changes.append(_Change(capability, before.began, message, bool(gone) and key == "tools"))

    def conclude(self) -> None:
        """Judge what can be judged at the end only: changes of listings that were never announced."""
        for listed, (_, _, capability) in _IDENTITIES.items():
            if listed in self._listings and self._declares(capability, "listChanged"):
                self._require("lists.announced", True, str)
        for change in self._changes:
            if change.is_lost or self._declares(change.capability, "listChanged"):
                is_announced = self._announced.get(change.capability, -1) > change.began
                self._require("lists.announced", is_announced, change.message.strip)
        self._changes.clear()


def broken_rows(observations: Observations) -> Iterator[tuple[str, str]]:
    """Conclude every conversation, and yield each row that applied with its first violation, if any."""
    for conversation in observations.conversations:
        conversation.conclude()
    for row, observation in sorted(observations.rows.items()):
        more = f" ({observation.broken} times)" if observation.broken > 1 else ""
        yield row, observation.first + more


def _is_modern(revision: str) -> bool:
    return revision in REVISIONS and not REVISIONS[revision].has_initialize


def _key(value: object) -> Key:
    """Make an id or token comparable with its type. JSON has one kind of number, so 1.0 is 1."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return type(value), value if isinstance(value, int | str | float) else str(value)


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
