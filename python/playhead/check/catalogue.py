"""All checks there are, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from playhead.check.probes import audio, connection, discovery, prompts, reads, resources, wire
from playhead.check.results import CheckKind

_MODULES: Final = (connection, discovery, resources, reads, audio, prompts, wire)


def catalogue() -> Mapping[str, CheckKind]:
    """Every kind of check, by its name, in the order in which they are made. A kind has one name, and a name
    one kind: the tests hold on to that."""
    return {kind.name: kind for module in _MODULES for kind in module.KINDS}


def all_kinds() -> tuple[CheckKind, ...]:
    """The same as they are declared, with whatever is declared twice."""
    return tuple(kind for module in _MODULES for kind in module.KINDS)
