"""All checks there are, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from playhead.check.probes import (
    audio,
    connection,
    discovery,
    prompts,
    range_kinds,
    resources,
    server,
    tools,
    wire,
)
from playhead.check.results import CheckKind

_KINDS: Final[tuple[tuple[CheckKind, ...], ...]] = (
    connection.KINDS,
    discovery.KINDS,
    tools.KINDS,
    resources.KINDS,
    range_kinds.KINDS,
    audio.KINDS,
    prompts.KINDS,
    server.KINDS,
    wire.KINDS,
)


def all_kinds() -> tuple[CheckKind, ...]:
    """Every kind of check as it is declared. A name stands for one kind: the tests hold on to that."""
    return tuple(kind for kinds in _KINDS for kind in kinds)


def catalogue() -> Mapping[str, CheckKind]:
    """Every kind of check by its name, in the order in which they are made."""
    return {kind.name: kind for kind in all_kinds()}
