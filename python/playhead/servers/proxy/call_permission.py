"""Permission for calls of a host: by the approval rules of the configuration, or by the host's user.

A rule's `ask` becomes a question to the host's user (elicitation), or a refusal if the host cannot ask.
Since 2026-07-28 the question is in the call's result, and the answer in another call. It counts once, for the
server, the tool and the arguments that the question showed.
"""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pydantic
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult

from playhead.config.tools import ApprovalPolicy
from playhead.config.tools.call_key import CallKey, allowing_rule, call_key
from playhead.escaping import escape_line, shortened
from playhead.protocol.revisions import REVISIONS
from playhead.servers.proxy.host_session import Context

QUESTIONS_OPEN: Final = 64
"""Limits the questions in results that still wait for an answer. The oldest is then forgotten, and asked
again."""

_KEY: Final = "playhead/approval"
_STATE: Final = "playhead:"
_FORM: Final = {
    "type": "object",
    "properties": {"allow": {"type": "boolean", "title": "Allow this call", "default": False}},
    "required": ["allow"],
}


@dataclass(slots=True, kw_only=True)
class CallPermission:
    """Decides about calls. One for all hosts: an answer is bound to a random state that only its host has."""

    policy: ApprovalPolicy
    _asked: OrderedDict[str, CallKey] = field(default_factory=OrderedDict)
    """The calls whose questions are in a result, by the state in it."""
    _approved: OrderedDict[str, CallKey] = field(default_factory=OrderedDict)
    """The approved calls whose server has a question of its own."""

    async def check(
        self, context: Context, server: str, tool: Mapping[str, Any], params: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Return None if the call may run, else the result to answer it with.

        `tool` is as listed, at least its name. An answer of ours in `params` is removed, so that the server
        does not see it.
        """
        name, arguments = str(tool.get("name")), params.get("arguments") or {}
        hints = tool.get("annotations") or {}
        action = self.policy.action(server, name, destructive=hints.get("destructiveHint") is True)
        if action == "allow":
            return None
        if action == "deny":
            return _refused("not allowed: a rule of the user denies this tool")
        key = call_key(server, name, arguments)
        state = params.get("requestState")
        if isinstance(state, str) and state.startswith(_STATE):
            nonce, colon, inner = state.removeprefix(_STATE).partition(":")
            del params["requestState"]
            if self._approved.pop(nonce, None) == key:
                params |= {"requestState": inner} if colon else {}
                return None
            answers = dict(params.pop("inputResponses", None) or {})
            if self._asked.pop(nonce, None) == key and _allows(answers.pop(_KEY, None)):
                return None
            return _refused("declined by the user")
        question = ElicitRequestFormParams(
            message=f"Allow {escape_line(name)} of {escape_line(server)} with"
            f" {escape_line(shortened(json.dumps(arguments, ensure_ascii=False), 1000))}?",
            requested_schema=_FORM,
        )
        capabilities = context.session.client_capabilities
        if capabilities is None or capabilities.elicitation is None:
            return _refused(
                "not allowed: this call needs approval, and the host cannot ask its user; to allow it,"
                f" {allowing_rule(server, name)}"
            )
        if not REVISIONS[context.protocol_version].has_initialize:
            asked = {"method": "elicitation/create", "params": question.model_dump(by_alias=True)}
            nonce = _remember(self._asked, key)
            return {
                "resultType": "input_required",
                "inputRequests": {_KEY: asked},
                "requestState": f"{_STATE}{nonce}",
            }
        request = ElicitRequest(params=question)
        related = ServerMessageMetadata(related_request_id=context.request_id)
        try:
            reply = await context.session.send_request(request, ElicitResult, metadata=related)
        except (MCPError, pydantic.ValidationError):
            return _refused("not allowed: this call needs approval, and asking for it failed")
        return None if _allows(reply.model_dump()) else _refused("declined by the user")

    def keep(self, server: str, tool: Mapping[str, Any], params: Mapping[str, Any], result: Any) -> None:
        """Let an approved call go on after the question of its own that the server's `result` asks."""
        hints = tool.get("annotations") or {}
        name = str(tool.get("name"))
        if self.policy.action(server, name, destructive=hints.get("destructiveHint") is True) == "ask":
            nonce = _remember(self._approved, call_key(server, name, params.get("arguments") or {}))
            inner = f":{result['requestState']}" if "requestState" in result else ""
            result["requestState"] = f"{_STATE}{nonce}{inner}"


def _remember(calls: OrderedDict[str, CallKey], key: CallKey) -> str:
    nonce = secrets.token_hex(16)
    calls[nonce] = key
    if len(calls) > QUESTIONS_OPEN:
        calls.popitem(last=False)
    return nonce


def _allows(answer: object) -> bool:
    match answer:
        case {"action": "accept", "content": {"allow": True}}:
            return True
    return False


def _refused(reason: str) -> dict[str, Any]:
    return {"resultType": "complete", "isError": True, "content": [{"type": "text", "text": reason}]}
