"""What every structured response has: its common fields, its JSON, and its two questions about the turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar

from playhead.content import TypedContent
from playhead.results.responses.wire import dump


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredResponse(ABC):
    """Base of the four types, and of yours: a frozen dataclass that names its `type` and gives `content()`.

    The fields are the JSON's keys, in their order. A field whose default is None is left out while it
    is None; any other is always there. See `ResponseRegistry.with_type` for how such a type is read.
    """

    type: ClassVar[str]
    """The wire name. Case counts."""

    success: bool
    timestamp: int
    """Unix seconds."""
    tool_name: str
    extra: Mapping[str, object] = field(default_factory=dict)
    """Keys that the type doesn't know, as they came; written back behind its own."""

    @property
    def is_terminal(self) -> bool:
        """Whether it says that nothing is to follow it."""
        return False

    @property
    def stops_model(self) -> bool:
        """Whether the model is not to be called again: terminal, or an action that silences it."""
        return self.is_terminal

    @property
    def action_name(self) -> str | None:
        """What was done, for the types that say it."""
        return None

    @abstractmethod
    def content(self) -> tuple[TypedContent, ...]:
        """The content blocks that stand for it, in order."""

    def to_json(self, *, compat: bool = False) -> str:
        """Compact JSON: `type`, the common keys, the type's own, then unknown ones as they came.

        Args:
            compat: Byte for byte as the reference system (Go's encoding/json) writes it: `<`, `>`, `&`,
                U+2028 and U+2029 escaped, `metadata` sorted by key, empty optional values left out. But for
                floats, which are Python's (`1.0`, `1e-05`; Go has `1`, `0.00001`), half surrogates, which Go
                can't hold, and keys inside `data` and `details`, which keep their order. Off by default:
                every JSON parser reads both.

        Raises:
            UsageError: A field or an extra holds what JSON has no form for (yours).
        """
        wire: dict[str, object] = {"type": self.type}
        for each in fields(self):
            if each.name == "extra":
                continue
            value = getattr(self, each.name)
            if each.default is None and (value is None or (compat and value in ("", {}))):
                continue
            if isinstance(value, Mapping):
                value = dict(sorted(value.items())) if compat and each.name == "metadata" else dict(value)
            wire[each.name] = value
        wire |= {key: value for key, value in self.extra.items() if key not in wire}
        return dump(wire, compat=compat)
