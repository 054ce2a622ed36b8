"""Parse JSON as RFC 8259 defines it, and nothing else.

`json.loads` also reads NaN and Infinity, and reads `1e999` as infinity. No such value can be written as JSON
again: it would be sent as null, or fail every later message that contains it. Errors are `ValueError`, whose
text says what is wrong; deep nesting is a `RecursionError`.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

_SHOWN_CHARS: Final = 40
"""Length of a number in an error: it can have millions of digits."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:_SHOWN_CHARS]} is too large for a number")
    return number


STRICT_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
"""Decodes several values one after another (`raw_decode`), with the same rules as `parse_json`."""


def parse_json(text: str | bytes, *, control_characters: bool = False) -> Any:
    """Parse one JSON value.

    Args:
        text: bytes are UTF-8, UTF-16 or UTF-32, as `json.loads` detects them.
        control_characters: allow them unescaped within strings, as in code with line breaks.

    Raises:
        ValueError: it is not JSON, or has a number that is not finite or has too many digits.
        RecursionError: it is nested too deeply.
    """
    return json.loads(
        text, strict=not control_characters, parse_constant=_refuse_constant, parse_float=_finite
    )
