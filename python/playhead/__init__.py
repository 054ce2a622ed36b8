"""playhead: MCP tool results, played, shown and routed while they are still arriving."""

from __future__ import annotations

from playhead import errors
from playhead.limits import DEFAULT_LIMITS, Limits

__all__ = ["DEFAULT_LIMITS", "Limits", "errors"]
