"""The JSON of a structured response, as text.

Compact, and in UTF-8 rather than escapes. In the compatible mode it is what Go's encoding/json writes by
default: `<`, `>`, `&`, U+2028 and U+2029 are escaped, so that the JSON can stand inside HTML and JavaScript.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from pydantic_core import to_jsonable_python

from playhead.errors import UsageError

_ESCAPED_BY_GO: Final = re.compile("[<>&\u2028\u2029]")
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def dump(value: Mapping[str, object], *, compat: bool) -> str:
    """`value` as compact JSON, keys in their order.

    Raises:
        UsageError: It holds what JSON has no form for: NaN, a cycle, an object of your own (yours).
    """
    try:
        text = json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=to_jsonable_python
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"expected values that JSON can hold, came others: {error}") from error
    # All of these can only stand inside a JSON string, where an escape means the same.
    text = _LONE_SURROGATE.sub(_escape, text)
    return _ESCAPED_BY_GO.sub(_escape, text) if compat else text


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
