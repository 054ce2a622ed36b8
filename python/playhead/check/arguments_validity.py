"""Whether a value is what a schema allows, by the validator that judges `structuredContent` too."""

from __future__ import annotations

import json
from typing import Any

from playhead.content.validation_schema import SchemaReader


class Validity:
    """One inputSchema, held against many values. Arguments are an object whatever the schema says."""

    def __init__(self, schema: object) -> None:
        self._reader = SchemaReader(schema)

    @property
    def problem(self) -> str | None:
        """What keeps the schema from being used, or None."""
        return self._reader.problem

    def allows(self, value: Any) -> bool | None:
        """None where that can't be told: a reference that leads out of the schema, a bound reached."""
        try:
            json.dumps(value, allow_nan=False).encode("utf-8")
        except (ValueError, RecursionError):
            return None  # nothing that JSON can carry
        return isinstance(value, dict) and self._reader.allows(value)
