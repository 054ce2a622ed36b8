"""What the author of a server says its tools answer: calls to make, and what has to come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCall:
    """One call whose arguments somebody vouches for."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    is_error: bool = False
    """Whether the result has to be an error (`isError`)."""
    error_code: int | None = None
    """A JSON-RPC error of this code is expected in place of a result."""
    content_types: tuple[str, ...] | None = None
    """The types of the content blocks, in order: `text`, `image`, …; None accepts any."""
    patterns: tuple[str, ...] = ()
    """Regular expressions; each has to be found in the texts of the result."""
    max_latency_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """An expectations file."""

    calls: tuple[ExpectedCall, ...] = ()

    def of_tool(self, name: str) -> tuple[ExpectedCall, ...]:
        """The calls of one tool, in the file's order."""
        return tuple(call for call in self.calls if call.tool == name)
