"""Foreign strings are shown, never sent."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.cli.terminal import Terminal, escape, escape_line, give_up


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("naïve 日本語 👩\u200d🚀", "naïve 日本語 👩\u200d🚀"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("bell\x07 back\x08 return\r", "bell\\x07 back\\x08 return\\x0d"),
        ("c1\x9b2J", "c1\\x9b2J"),
        ("\u202egnp.exe", "\\u{202E}gnp.exe"),
        ("rm\u200b -rf", "rm\\u{200B} -rf"),
        ("a\u200db", "a\\u{200D}b"),
        ("x\U000e0072\U000e006d", "x\\u{E0072}\\u{E006D}"),
        ("x\ufe0f\U000e0100", "x\\u{FE0F}\\u{E0100}"),
        ("a\u3164\u00ad", "a\\u{3164}\\xad"),
        ("☎\ufe0f", "☎\ufe0f"),
        ("🏳\ufe0f\u200d🌈", "🏳\ufe0f\u200d🌈"),
        ("lone \udcff", "lone \\u{DCFF}"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
    ],
)
def test_a_control_is_shown_and_text_stays(raw: str, shown: str) -> None:
    assert escape(raw) == shown


def test_a_one_line_place_has_one_line() -> None:
    assert escape_line("a\nb\tc") == "a\\nb\\tc"


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_escaped_can_address_a_terminal(text: str) -> None:
    shown = escape(text)
    shown.encode("utf-8")
    assert not {unicodedata.category(char) for char in shown if char not in "\n\t"} & {"Cc", "Cs", "Zl", "Zp"}


def test_rows_on_a_full_disk_name_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w", buffering=1) as full, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", full)
        with pytest.raises(OSError, match="No space left") as caught:
            Terminal(json_output=False).show_rows([("a", "b" * 10_000)])
        give_up(full)
    assert caught.value.filename == "stdout"
