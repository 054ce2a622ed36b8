"""What a tool result means, decided without doing anything: no I/O, no clock, no state.

(under construction: the signature is final)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from playhead.content import Block
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.results.plan import Plan
from playhead.results.policy import DEFAULT_POLICY, Policy
from playhead.results.responses import DEFAULT_REGISTRY, ResponseRegistry


class Absent:
    """The type of `ABSENT`."""

    __slots__ = ()


ABSENT: Final = Absent()
"""No `structuredContent`; null is a value."""
_NOTHING: Final[Mapping[int, bool]] = MappingProxyType({})


def classify(
    blocks: Sequence[Block],
    *,
    is_error: bool,
    structured: object = ABSENT,
    policy: Policy = DEFAULT_POLICY,
    registry: ResponseRegistry = DEFAULT_REGISTRY,
    sniffed: Mapping[int, bool] = _NOTHING,
    limits: Limits = DEFAULT_LIMITS,
) -> Plan:
    """The plan for a result."""
    raise NotImplementedError
