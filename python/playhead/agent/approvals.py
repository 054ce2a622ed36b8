"""Who may let a call run: a rule, an approval given for exactly this call, or somebody who is asked now.

Nothing that a model or a server writes is compared with a rule or an approval except the names of the server
(the user's) and of the tool, and the arguments that will be sent. An approval is bound to these three; the
arguments by the SHA-256 of their canonical JSON, so that a call with any other argument is another call.

`Ledger` decides and knows no clock; `Approvals` asks, and is what a conversation holds.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, assert_never, get_args

import trio

from playhead.client.hub_tools import HubTool
from playhead.config.tools.approvals import Action, ApprovalPolicy, ApprovalRule
from playhead.errors import UsageError

__all__ = [
    "Action",
    "Allowed",
    "Approval",
    "ApprovalPolicy",
    "ApprovalRequest",
    "ApprovalRule",
    "Approvals",
    "Ask",
    "CallKey",
    "Denied",
    "Ledger",
    "ToolHints",
    "Verdict",
    "call_key",
    "request_for",
]

Scope = Literal["once", "conversation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolHints:
    """What a server says about its tool; None where it says nothing. It may lie."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """What somebody is asked. Show texts of it escaped: the tool's name and description are the server's, the
    arguments are the model's."""

    server: str
    """Its name in the servers file."""
    tool: str
    """The tool's own name."""
    description: str | None
    arguments: Mapping[str, Any]
    """As they will be sent. A callback gets a copy: changing it changes nothing."""
    hints: ToolHints = ToolHints()


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """An answer. Raises `UsageError` for an expiry that is not above 0 and finite, or an unknown scope."""

    allow: bool
    scope: Scope = "once"
    """`once` is for one call; `conversation` for every call of this server and tool with these arguments,
    and with `allow=False` it means: don't ask about this call again."""
    expires_seconds: float | None = 3600.0
    """From the moment of the answer. An hour, so that a conversation that was left open overnight asks
    again; None holds until the conversation ends."""

    def __post_init__(self) -> None:
        if self.scope not in get_args(Scope):
            raise UsageError(f"Approval.scope: expected 'once' or 'conversation', came {self.scope!r}")
        expires = self.expires_seconds
        if expires is not None and not (math.isfinite(expires) and expires > 0):
            raise UsageError(
                f"Approval.expires_seconds: expected a number above 0, or None, came {expires!r}"
            )


Ask = Callable[[ApprovalRequest], Awaitable[Approval]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    by: Literal["rule", "approval"]
    """`approval`: given before, or when asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    reason: str
    """For the model. Holds no text of an exception, which could hold a secret."""
    error: Exception | None = None
    """What the callback raised."""


Verdict = Allowed | Denied

DECLINED = "declined by the user"
FORBIDDEN = "not allowed: a rule of the user's denies this tool"
NOBODY = "not allowed: this call needs an approval, and there is nobody to ask"
ASKING_FAILED = "not allowed: this call needs an approval, and asking for it failed"
UNREADABLE = "not allowed: this call needs an approval, and its arguments are no JSON that could be approved"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKey:
    """What an approval is bound to."""

    server: str
    tool: str
    arguments_sha256: str


def call_key(server: str, tool: str, arguments: Mapping[str, Any]) -> CallKey:
    """The key of a call. Raises `UsageError` for arguments that are no JSON, or nested past Python's limit.

    The canonical form sorts the keys of objects and knows no spaces; `1` and `1.0` differ.
    """
    return _key(server, tool, _canonical(arguments))


def request_for(tool: HubTool, arguments: Mapping[str, Any]) -> ApprovalRequest:
    """What to ask about a call of a hub's tool."""
    said = tool.tool.annotations
    hints = ToolHints()
    if said is not None:
        hints = ToolHints(
            read_only=said.read_only_hint,
            destructive=said.destructive_hint,
            idempotent=said.idempotent_hint,
            open_world=said.open_world_hint,
        )
    return ApprovalRequest(
        server=tool.server,
        tool=tool.tool.name,
        description=tool.description,
        arguments=arguments,
        hints=hints,
    )


@dataclass(frozen=True, slots=True)
class _Standing:
    allow: bool
    until: float


class Ledger:
    """The approvals that were given and not used up. Times are seconds of one clock, whichever."""

    def __init__(self) -> None:
        self._once: dict[CallKey, list[float]] = {}
        self._standing: dict[CallKey, _Standing] = {}

    def grant(self, key: CallKey, approval: Approval, *, now: float) -> None:
        """Keep an answer; it takes back what an earlier one said otherwise. A single refusal isn't kept."""
        self._forget_expired(now)
        until = math.inf if approval.expires_seconds is None else now + approval.expires_seconds
        if approval.scope == "conversation":
            self._standing[key] = _Standing(approval.allow is True, until)
        elif approval.allow is True:
            self._once.setdefault(key, []).append(until)
            if key in self._standing and not self._standing[key].allow:
                del self._standing[key]
        elif key in self._standing and self._standing[key].allow:
            del self._standing[key]
        if approval.allow is not True:
            self._once.pop(key, None)

    def take(self, key: CallKey, *, now: float) -> bool | None:
        """Whether the call may run by what was given: None where nothing was. A single use is used up."""
        self._forget_expired(now)
        standing = self._standing.get(key)
        if standing is not None:
            return standing.allow
        uses = self._once.get(key)
        if not uses:
            return None
        uses.remove(min(uses))
        if not uses:
            del self._once[key]
        return True

    def _forget_expired(self, now: float) -> None:
        self._standing = {key: kept for key, kept in self._standing.items() if now < kept.until}
        kept = {key: [until for until in uses if now < until] for key, uses in self._once.items()}
        self._once = {key: uses for key, uses in kept.items() if uses}


@dataclass(slots=True)
class _Asking:
    """One question at a time for one key; `waiting` counts who holds or wants the lock."""

    lock: trio.Lock = field(default_factory=trio.Lock)
    waiting: int = 0


class Approvals:
    """The approvals of one conversation. Keep it for as long as the conversation lasts; start a new one with
    the next.

    `ask` is awaited for each call that needs an answer, several at once for different calls (a terminal
    prompt takes a lock of its own). Without it, what would be asked is denied. `clock` gives seconds that
    only grow; by default trio's, which stands still while the machine sleeps.
    """

    def __init__(
        self,
        policy: ApprovalPolicy | None = None,
        *,
        ask: Ask | None = None,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self._policy = ApprovalPolicy() if policy is None else policy
        self._ask = ask
        self._clock = clock
        self._ledger = Ledger()
        self._asking: dict[CallKey, _Asking] = {}

    @property
    def policy(self) -> ApprovalPolicy:
        return self._policy

    def grant(self, server: str, tool: str, arguments: Mapping[str, Any], approval: Approval) -> None:
        """Give an answer before the question. It can't lift a rule that denies. Raises `UsageError` as
        `call_key` does."""
        self._ledger.grant(call_key(server, tool, arguments), approval, now=self._clock())

    async def check(
        self,
        request: ApprovalRequest,
        *,
        on_pending: Callable[[], Awaitable[None]] | None = None,
    ) -> Verdict:
        """Whether this call may run, now and once. `on_pending` is awaited before somebody is asked.

        What `ask` raises denies (`Denied.error`), and so does an answer that is no `Approval`. Two calls with
        the same key are asked about one after the other: an answer for the conversation serves both, one for
        a single use serves one. When cancelled, nothing is allowed or kept, and the next in line is asked.
        Raises what `on_pending` raises.
        """
        action = self._policy.action(
            request.server, request.tool, destructive=request.hints.destructive is True
        )
        match action:
            case "allow":
                return Allowed(by="rule")
            case "deny":
                return Denied(reason=FORBIDDEN)
            case "ask":
                return await self._approved(request, on_pending)
            case _:
                assert_never(action)

    async def _approved(
        self, request: ApprovalRequest, on_pending: Callable[[], Awaitable[None]] | None
    ) -> Verdict:
        try:
            canonical = _canonical(request.arguments)
        except UsageError as error:
            return Denied(reason=UNREADABLE, error=error)
        key = _key(request.server, request.tool, canonical)
        # What was hashed, and a copy: nobody can change it between the question and the call.
        asked = replace(request, arguments=json.loads(canonical))
        asking = self._asking.setdefault(key, _Asking())
        asking.waiting += 1
        try:
            async with asking.lock:
                given = self._ledger.take(key, now=self._clock())
                if given is not None:
                    return Allowed(by="approval") if given else Denied(reason=DECLINED)
                if self._ask is None:
                    return Denied(reason=NOBODY)
                if on_pending is not None:
                    await on_pending()
                return await self._answer(self._ask, asked, key)
        finally:
            asking.waiting -= 1
            if not asking.waiting:
                del self._asking[key]

    async def _answer(self, ask: Ask, request: ApprovalRequest, key: CallKey) -> Verdict:
        try:
            approval = await ask(request)
        except Exception as error:  # noqa: BLE001 - a user's callback; whatever it raises, the call doesn't run
            return Denied(reason=ASKING_FAILED, error=error)
        if not isinstance(approval, Approval):
            came = type(approval).__name__
            return Denied(
                reason=ASKING_FAILED, error=UsageError(f"the ask callback: expected an Approval, came {came}")
            )
        if approval.scope == "conversation":
            self._ledger.grant(key, approval, now=self._clock())
        # A single use is this one: it is used up here, and never kept.
        return Allowed(by="approval") if approval.allow is True else Denied(reason=DECLINED)


def _key(server: str, tool: str, canonical: str) -> CallKey:
    digest = hashlib.sha256(canonical.encode("ascii")).hexdigest()
    return CallKey(server=server, tool=tool, arguments_sha256=digest)


def _canonical(arguments: Mapping[str, Any]) -> str:
    try:
        return json.dumps(arguments, sort_keys=True, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"the arguments of a call: expected JSON, came what can't be written ({error})"
        ) from error


def _plain(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__}")
