"""Approvals: a rule, a stored approval of exactly this call, or the user allows or denies a call.

Rules and approvals match only the server's name (chosen by the user), the tool's name, and the arguments that
will be sent; nothing else that a model or a server writes matters. An approval is for one combination of
these three, with the arguments as the SHA-256 of their canonical JSON: a call with any other argument is
another call.

`ApprovalLedger` stores the answers, and knows no clock. `Approvals` asks, and belongs to one conversation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, assert_never, get_args

import trio

from playhead.client.hub.catalog import HubTool
from playhead.config.tools.call_key import CallKey, allowing_rule, call_key, canonical, key_of
from playhead.config.tools.config import Action, ApprovalPolicy, ApprovalRule
from playhead.errors import UsageError

__all__ = ["Action", "ApprovalPolicy", "ApprovalRule"]

Scope = Literal["once", "conversation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolHints:
    """A server's claims about its tool, which may be false; None without a claim."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """The question about one call. Escape its strings before you show them: the server chose the tool's name
    and description, the model chose the arguments."""

    server: str
    """The server's name in the servers file."""
    tool: str
    """The tool's own name."""
    description: str | None
    arguments: Mapping[str, Any]
    """A copy of the call's arguments. Changing it has no effect."""
    hints: ToolHints = ToolHints()


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """An answer. Raises `UsageError` for an unknown scope, or an expiry that is not positive and finite."""

    allow: bool
    scope: Scope = "once"
    """`once` covers one call; `conversation` covers every call of this server and tool with these arguments.
    With `allow=False`, `conversation` means: don't ask about this call again."""
    expires_seconds: float | None = 3600.0
    """The time after which the answer no longer counts. An hour by default, so that a conversation left open
    overnight asks again. None lasts until the conversation ends."""

    def __post_init__(self) -> None:
        if self.scope not in get_args(Scope):
            raise UsageError(f"Approval.scope: expected 'once' or 'conversation', got {self.scope!r}")
        expires = self.expires_seconds
        if expires is not None and not (math.isfinite(expires) and expires > 0):
            raise UsageError(f"Approval.expires_seconds: expected a number above 0, or None, got {expires!r}")


Ask = Callable[[ApprovalRequest], Awaitable[Approval]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    by: Literal["rule", "approval"]
    """`approval`: a person allowed the call, now or earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    reason: str
    """The reason that the model reads. It never quotes an exception, which could hold a secret."""
    error: Exception | None = None
    """The exception of the callback, if any."""


Verdict = Allowed | Denied

DECLINED = "declined by the user"
FORBIDDEN = "not allowed: a rule of the user denies this tool"
NOBODY = "not allowed: this call needs approval, and there is nobody to ask; to allow it, {remedy}"
ASKING_FAILED = "not allowed: this call needs approval, and asking for it failed"
UNREADABLE = "not allowed: this call needs approval, and its arguments are not valid JSON"


def _remedy(request: ApprovalRequest) -> str:
    return allowing_rule(request.server, request.tool)


def request_for(tool: HubTool, arguments: Mapping[str, Any]) -> ApprovalRequest:
    """Make the question about a call of a hub's tool."""
    annotations = tool.annotations
    hints = ToolHints()
    if annotations is not None:
        hints = ToolHints(
            read_only=annotations.read_only_hint,
            destructive=annotations.destructive_hint,
            idempotent=annotations.idempotent_hint,
            open_world=annotations.open_world_hint,
        )
    return ApprovalRequest(
        server=tool.server,
        tool=tool.tool.name,
        description=tool.description,
        arguments=arguments,
        hints=hints,
    )


@dataclass(frozen=True, slots=True)
class _ConversationAnswer:
    """An answer that holds for the whole conversation."""

    allow: bool
    until: float


class ApprovalLedger:
    """The approvals that are still valid. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._single_uses: dict[CallKey, list[float]] = {}
        self._for_conversation: dict[CallKey, _ConversationAnswer] = {}

    def grant(self, key: CallKey, approval: Approval, *, now: float) -> None:
        """Store an answer; it overrides earlier ones. A single refusal isn't stored."""
        self._forget_expired(now)
        until = math.inf if approval.expires_seconds is None else now + approval.expires_seconds
        allow = approval.allow is True
        if not allow:
            self._single_uses.pop(key, None)
        if approval.scope == "conversation":
            self._for_conversation[key] = _ConversationAnswer(allow, until)
            return
        if key in self._for_conversation and self._for_conversation[key].allow is not allow:
            del self._for_conversation[key]
        if allow:
            self._single_uses.setdefault(key, []).append(until)

    def take(self, key: CallKey, *, now: float) -> bool | None:
        """Return the stored answer about a call, or None. A single-use approval is consumed."""
        self._forget_expired(now)
        standing = self._for_conversation.get(key)
        if standing is not None:
            return standing.allow
        uses = self._single_uses.get(key)
        if not uses:
            return None
        uses.remove(min(uses))
        if not uses:
            del self._single_uses[key]
        return True

    def _forget_expired(self, now: float) -> None:
        self._for_conversation = {
            key: grant for key, grant in self._for_conversation.items() if now < grant.until
        }
        unexpired = {key: [until for until in uses if now < until] for key, uses in self._single_uses.items()}
        self._single_uses = {key: uses for key, uses in unexpired.items() if uses}


class Approvals:
    """The approvals of one conversation. Reuse it for all of the conversation's turns; make a new one for the
    next conversation.

    `ask` is awaited for each call that needs an answer, concurrently for different calls (a terminal prompt
    takes a lock of its own). Without it, calls that need an answer are denied, with the `remedy`. `clock`
    returns monotonic seconds. The default is trio's clock, which stops while the machine sleeps.
    """

    def __init__(
        self,
        policy: ApprovalPolicy | None = None,
        *,
        ask: Ask | None = None,
        clock: Callable[[], float] = trio.current_time,
        remedy: Callable[[ApprovalRequest], str] = _remedy,
    ) -> None:
        self._policy = ApprovalPolicy() if policy is None else policy
        self._ask = ask
        self._clock = clock
        self._remedy = remedy
        self._ledger = ApprovalLedger()
        self._asking: dict[CallKey, trio.Lock] = {}
        """The locks of open questions, one per key, so that each question is asked once at a time."""

    @property
    def policy(self) -> ApprovalPolicy:
        return self._policy

    def grant(self, server: str, tool: str, arguments: Mapping[str, Any], approval: Approval) -> None:
        """Give an answer in advance. It can't override a rule that denies. Raises `UsageError` as `call_key`
        does."""
        self._ledger.grant(call_key(server, tool, arguments), approval, now=self._clock())

    async def check(
        self,
        request: ApprovalRequest,
        *,
        on_pending: Callable[[], Awaitable[None]] | None = None,
    ) -> Verdict:
        """Decide if this call may run, now and once. `on_pending` is awaited before asking.

        An exception of `ask` denies the call (`Denied.error`), and so does an answer that isn't an
        `Approval`. Questions about two calls with the same key are asked one after the other. An answer for
        the conversation covers both, one for a single use covers one. After cancellation nothing is allowed
        or stored, and the next in line is asked. Raises what `on_pending` raises.
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
                return await self._ask_unless_known(request, on_pending)
            case _:
                assert_never(action)

    async def _ask_unless_known(
        self, request: ApprovalRequest, on_pending: Callable[[], Awaitable[None]] | None
    ) -> Verdict:
        """Take the answer from the ledger, or ask. Only one task at a time asks about one key."""
        try:
            arguments = canonical(request.arguments)
        except UsageError as error:
            return Denied(reason=UNREADABLE, error=error)
        key = key_of(request.server, request.tool, arguments)
        # The question has a copy of the arguments, so that the callback can't change those of the call.
        question = replace(request, arguments=json.loads(arguments))
        lock = self._asking.setdefault(key, trio.Lock())
        try:
            async with lock:
                answer = self._ledger.take(key, now=self._clock())
                if answer is not None:
                    return Allowed(by="approval") if answer else Denied(reason=DECLINED)
                if self._ask is None:
                    return Denied(reason=NOBODY.format(remedy=self._remedy(request)))
                if on_pending is not None:
                    await on_pending()
                return await self._answer(self._ask, question, key)
        finally:
            if not lock.locked():  # no other task waits for this question
                self._asking.pop(key, None)

    async def _answer(self, ask: Ask, request: ApprovalRequest, key: CallKey) -> Verdict:
        try:
            approval = await ask(request)
        except Exception as error:  # noqa: BLE001 - a user's callback; if it raises, the call doesn't run
            return Denied(reason=ASKING_FAILED, error=error)
        if not isinstance(approval, Approval):
            kind = type(approval).__name__
            return Denied(
                reason=ASKING_FAILED, error=UsageError(f"the ask callback: expected an Approval, got {kind}")
            )
        if approval.scope == "conversation":
            self._ledger.grant(key, approval, now=self._clock())
        # A single-use approval covers this call and is never stored.
        return Allowed(by="approval") if approval.allow is True else Denied(reason=DECLINED)
