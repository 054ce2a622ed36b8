"""Resources: listed whole, read as they are listed, refused where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from playhead.check.results import CheckKind, TestResult
from playhead.check.target import Target

KINDS: Final[tuple[CheckKind, ...]] = ()


async def probe_resources(target: Target, found: Callable[[TestResult], None]) -> None:
    """List the resources and templates, and read them."""
