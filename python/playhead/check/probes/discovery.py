"""What the server lists: whole, once each, in the official shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import mcp_types as types

from playhead.check.results import CheckKind, TestResult
from playhead.check.target import Target

KINDS: Final[tuple[CheckKind, ...]] = ()


async def probe_discovery(target: Target, found: Callable[[TestResult], None]) -> tuple[types.Tool, ...]:
    """Judge the listings; gives the tools that can be called, one of each name."""
    tools = await target.session.list_tools()
    return tuple({tool.name: tool for tool in tools}.values())
