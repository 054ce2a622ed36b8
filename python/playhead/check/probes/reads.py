"""Ranged reads: pages are the bytes that a whole read gives, and they end where it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from playhead.check.results import CheckKind, TestResult
from playhead.check.target import Target

KINDS: Final[tuple[CheckKind, ...]] = ()


async def probe_link(
    target: Target,
    link: Mapping[str, Any],
    found: Callable[[TestResult], None],
    *,
    tool: str | None = None,
) -> None:
    """Read what `link` (a `resource_link`, or an item of `resources/list`, as it came) leads to."""
