"""Encode a structured response as Go's encoding/json does.

The output is compact, with non-ASCII characters unescaped. In compat mode it matches the default of Go's
encoding/json, which escapes `<`, `>`, `&`, U+2028 and U+2029 so that the JSON is safe in HTML and JavaScript.
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
    """Encode `value` as compact JSON, keeping the order of keys.

    Raises:
        UsageError: It contains a value that JSON cannot represent: NaN, a cycle, a custom object.
    """
    try:
        text = json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=to_jsonable_python
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"expected values that JSON can represent: {error}") from error
    # All of these occur only inside JSON strings, where an escape is equivalent.
    text = _LONE_SURROGATE.sub(_escape, text)
    return _ESCAPED_BY_GO.sub(_escape, text) if compat else text


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
