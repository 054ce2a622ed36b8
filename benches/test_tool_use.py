"""The search for calls in a model's text: the cost of pieces of one character, and linear time.

The texts are those that could slow down the parser: an answer with calls as models write them; one long
string of arguments, with end tags quoted in it; a block that is never closed; text full of beginnings of
tags. Rates are characters per second. Linear means that four times the text takes four times as long, whole
and by characters.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import pytest

from benches.board import Board, Comparison
from playhead.agent.tool_use import ToolUseParser

PROSE = "The quick brown fox jumps over the lazy dog; 1 < 2, <b>and so on</b>. "
MILLION = 1_000_000


def call(arguments: dict[str, object]) -> str:
    return f"<tool_use><name>home__lamp</name><arguments>{json.dumps(arguments)}</arguments></tool_use>"


def repeated(piece: str, chars: int) -> str:
    return piece * (chars // len(piece) + 1)


def answer(chars: int) -> str:
    return repeated(PROSE * 8 + call({"on": True, "room": "kitchen", "note": 'a "b" c'}), chars)


def long_string(chars: int) -> str:
    return call({"text": repeated('a line\n"quoted" </tool_use> ', chars)})


def never_closed(chars: int) -> str:
    return "<tool_use><name>a</name>" + repeated("<arguments> { </arguments> ", chars)


def beginnings(chars: int) -> str:
    return repeated("<tool_us </tool_use_r <tool_use " + "a" * 190 + " <", chars)


TEXTS = {"answer": answer, "long string": long_string, "never closed": never_closed, "beginnings": beginnings}


def seconds(chunks: Sequence[str]) -> float:
    parser = ToolUseParser(limit_chars=64 * MILLION)
    started = time.perf_counter()
    for chunk in chunks:
        parser.feed(chunk)
    parser.finish()
    return time.perf_counter() - started


@pytest.mark.parametrize("name", TEXTS)
def test_pieces_of_one_character_beside_the_whole_text(name: str, board: Board, smoke: bool) -> None:
    text = TEXTS[name](20_000 if smoke else MILLION // 5)
    characters = list(text)
    ours, theirs = [], []
    for _ in range(board.rounds(5)):
        ours.append(len(text) / seconds(characters) / MILLION)
        theirs.append(len(text) / seconds([text]) / MILLION)
    board.add(
        Comparison(
            name=f"calls in text, by characters: {name}",
            unit="M chars/s",
            baseline_name="the whole text at once",
            ours=ours,
            baseline=theirs,
            at_least=0.05 if name == "answer" else None,
            notes={"chars": len(text)},
        )
    )


@pytest.mark.parametrize("by_characters", [True, False], ids=["characters", "whole"])
@pytest.mark.parametrize("name", TEXTS)
def test_four_times_the_text_takes_four_times_as_long(
    name: str, by_characters: bool, board: Board, smoke: bool
) -> None:
    chars = 10_000 if smoke else MILLION // 10 if by_characters else MILLION // 2
    short, long = TEXTS[name](chars), TEXTS[name](4 * chars)
    pieces = (list(short), list(long)) if by_characters else ([short], [long])
    ours, theirs = [], []
    for _ in range(board.rounds(5)):
        theirs.append(4 * seconds(pieces[0]))
        ours.append(seconds(pieces[1]))
    board.add(
        Comparison(
            name=f"four times the text, {'by characters' if by_characters else 'whole'}: {name}",
            unit="s",
            baseline_name="4 x the short text",
            ours=ours,
            baseline=theirs,
            at_most=2.0,  # a scan that begins anew with each piece gives 4
        )
    )
