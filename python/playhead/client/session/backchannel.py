"""A server's own requests and notifications, for a program that passes them on unread.

`on_elicitation` is for a program that asks its user itself. A proxy instead hands every request to its own
client, in MCP's JSON, and declares that client's capabilities.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from playhead.client.session.elicitation import Handler

AnswerRequest = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Answers a server's request, by its method and parameters. Raises `RefusedError`, and nothing else."""


@dataclass(slots=True, kw_only=True)
class Backchannel:
    """The program's side of one session."""

    ask: AnswerRequest
    """Awaited with each request of `methods`, several at once; its time does not count as the server's
    silence."""
    on_notification: Callable[[str, Mapping[str, Any]], None]
    """Called with each notification but progress reports; must not block or raise."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """The capabilities that the session declares to the server, as JSON."""
    methods: tuple[str, ...] = ("elicitation/create", "sampling/createMessage", "roots/list")
    _open: int = 0
    _last: float = 0.0

    @property
    def last_asked(self) -> float:
        """The last time at which a request was open, on trio's clock; 0.0 if never."""
        return trio.current_time() if self._open else self._last

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers of the requests by method."""
        return {method: partial(self._answer, method) for method in self.methods}

    async def _answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._open += 1
        try:
            return await self.ask(method, params)
        finally:
            self._open -= 1
            self._last = trio.current_time()
