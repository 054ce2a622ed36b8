"""Calls that take several rounds: the server answers that it needs input, and is asked again with it.

MCP 2026-07-28, "Multi round-trip requests" (SEP-2322). The state that the server gives is handed back as it
came, never looked into, and belongs to this call alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio
from mcp_types import CallToolRequest, ElicitRequest, InputRequiredResult, InputResponse
from pydantic import ValidationError

from playhead.client.elicitation import Asker
from playhead.errors import LimitError, ProtocolError
from playhead.limits import Limits

PAUSE_SECONDS: Final = 0.25
"""Before a call is sent again for which the server wants nothing but its own state back."""


async def call_in_rounds(
    ask: Callable[[CallToolRequest], Awaitable[dict[str, Any]]],
    request: CallToolRequest,
    *,
    asker: Asker | None,
    limits: Limits,
    server: str,
) -> dict[str, Any]:
    """The last answer to `request`: a result, or `input_required` where there is nobody to ask.

    Raises `LimitError` past `Limits.input_rounds`, `ProtocolError` for an answer that asks for something else
    than what was offered, and what `ask` does. Each round has a deadline of its own; the user's time is
    nobody's.
    """
    result = await ask(request)
    rounds = 0
    while asker is not None and result.get("resultType") == "input_required":
        rounds += 1
        if rounds > limits.input_rounds:
            raise LimitError(
                f"{server} asked for input {rounds} times in one call; {limits.input_rounds} are allowed"
                " (Limits.input_rounds)",
                limit="input_rounds",
                allowed=limits.input_rounds,
                got=rounds,
            )
        wanted = _understood(result, server=server)
        responses = await _answers(wanted, asker, limits=limits, server=server)
        if not responses:
            await trio.sleep(PAUSE_SECONDS)
        again = {"input_responses": responses or None, "request_state": wanted.request_state}
        result = await ask(CallToolRequest(params=request.params.model_copy(update=again)))
    return result


def _understood(result: dict[str, Any], *, server: str) -> InputRequiredResult:
    try:
        return InputRequiredResult.model_validate(result, by_name=False)
    except ValidationError as error:
        raise ProtocolError(
            f"{server} asks for input in the middle of a call, in a way that can't be understood"
            f" ({error.error_count()} fields wrong)"
        ) from None


async def _answers(
    wanted: InputRequiredResult, asker: Asker, *, limits: Limits, server: str
) -> dict[str, InputResponse]:
    requests = wanted.input_requests or {}
    if len(requests) > limits.server_requests:
        raise LimitError(
            f"{server} asks {len(requests)} questions at once; {limits.server_requests} are allowed"
            " (Limits.server_requests)",
            limit="server_requests",
            allowed=limits.server_requests,
            got=len(requests),
        )
    responses: dict[str, InputResponse] = {}
    for key, request in requests.items():
        if not isinstance(request, ElicitRequest):
            raise ProtocolError(
                f"{server} asks for {request.method} in the middle of a call, which was not offered to it"
            )
        responses[key] = await asker.ask(request.params)
    return responses
