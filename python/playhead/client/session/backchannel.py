"""A server's own requests and notifications, for a program that passes them on unread.

`on_elicitation` is for a program that asks its user itself. A proxy instead hands every request to its own
client, in MCP's JSON, and declares that client's capabilities.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from playhead.client.session.elicitation import Handler, OpenTime

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
    _open: OpenTime = field(default_factory=OpenTime)

    @property
    def last_asked(self) -> float:
        """See `OpenTime.last`."""
        return self._open.last

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers of the requests by method."""
        return {method: partial(self._answer, method) for method in self.methods}

    async def _answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        with self._open:
            return await self.ask(method, params)
