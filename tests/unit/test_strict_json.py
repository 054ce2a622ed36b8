"""JSON alone: what Python's parser adds to it is refused, in one piece or as one of several values."""

from __future__ import annotations

import pytest

from playhead.strict_json import STRICT_DECODER, parse_json


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NaN", "NaN is not a JSON number"),
        ("[Infinity]", "Infinity is not a JSON number"),
        ('{"a": -Infinity}', "-Infinity is not a JSON number"),
        ("1e999", "1e999 is too large for a number"),
        ("-1e999", "-1e999 is too large for a number"),
        ("9" * 400 + ".0", f"{'9' * 40} is too large for a number"),
    ],
)
def test_a_number_that_json_cannot_represent_is_refused(text: str, message: str) -> None:
    for parse in (parse_json, STRICT_DECODER.raw_decode, lambda it: parse_json(it.encode())):
        with pytest.raises(ValueError, match=f"^{message}$"):
            parse(text)


def test_values_of_json_are_read() -> None:
    assert parse_json('{"a": [1, -2.5e3, "NaN", true, null]}') == {"a": [1, -2500.0, "NaN", True, None]}
    assert parse_json(b'\xef\xbb\xbf{"a": "\xc3\xa9"}') == {"a": "é"}


def test_control_characters_in_strings_are_read_only_if_allowed() -> None:
    with pytest.raises(ValueError, match="control character"):
        parse_json('"a\nb"')
    assert parse_json('"a\nb"', control_characters=True) == "a\nb"
