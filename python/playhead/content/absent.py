"""The value of what was not given, where null is a value of its own."""

from __future__ import annotations

import enum
from typing import Final


class Absent(enum.Enum):
    """Not given. JSON's null means something: `structuredContent` may be null since 2026-07-28."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
