"""What the endpoints beside `/mcp` answer, as JSON. openapi.yaml says the same for other languages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """`GET /`: who answers here, and where."""

    name: str
    version: str
    description: str
    endpoints: dict[str, str]
    """What there is → its path: `mcp`, `health`, `ready`, `metrics`."""
    protocol_version: str
    """The newest revision of MCP that is spoken."""
    protocol_versions: list[str]
    """All of them, the oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """`GET /health`: the process is alive. 200 also while it shuts down."""

    status: Literal["healthy"]
    name: str
    version: str
    time: str
    """ISO 8601, UTC, to the millisecond."""
    uptime: float
    """Seconds since the server started."""
    capabilities: dict[str, Any]
    """As `initialize` gives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """`GET /ready`: whether new clients are welcome. 200 with `ready`, 503 with `shutting_down`."""

    status: Literal["ready", "shutting_down"]
