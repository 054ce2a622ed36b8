"""The server under check, as the probes see it: requests, and their answers as they came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import mcp_types as types

from playhead.check.options import CheckOptions
from playhead.client.session import Session
from playhead.errors import PlayheadError


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back for one request: exactly one of `result`, `error` and `failure` is set."""

    result: Mapping[str, Any] | None = None
    """The result object as it came, unvalidated."""
    error: types.ErrorData | None = None
    """A JSON-RPC error of the server."""
    failure: PlayheadError | None = None
    """No usable answer: a deadline (`DeadlineError`), a lost connection, a message that is none."""
    latency_ms: float
    too_often: bool = False
    """The server said that it was asked too often (HTTP 429, or an error in those words), and went on saying
    so when it was given time: a test of it proves nothing."""


class Target(Protocol):
    """A connected server. Usable from many tasks at once."""

    @property
    def options(self) -> CheckOptions: ...

    @property
    def session(self) -> Session:
        """For what is built on requests: streams of resources, results understood."""
        ...

    @property
    def protocol_version(self) -> str: ...

    @property
    def tools(self) -> tuple[types.Tool, ...]:
        """As discovered; empty before."""
        ...

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout_seconds: float | None = None,
    ) -> Answer:
        """Send any request and give what came. Never raises for what the server does; a lost connection is
        made anew before the next request. `timeout_seconds` defaults to `options.timeout_seconds`. Cancelling
        sends `notifications/cancelled`."""
        ...
