"""The classification of a result, compared with its parsing, which must cost more.

The result has 100 blocks of every kind, one in ten a structured response, with payloads as tools send them:
text of a few hundred characters, images and audio of 20 KiB (of 300 bytes in the second comparison, where the
fixed cost per block dominates). Parsing is what every client does: JSON to objects by the standard library,
and blocks to the SDK's types (`parse_blocks`).
"""

from __future__ import annotations

import base64
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest

from benches.board import Board, Comparison
from playhead.content import Block, parse_blocks
from playhead.limits import DEFAULT_LIMITS
from playhead.results.classify import classify
from playhead.results.model_text import text_for_model
from playhead.results.plan import Plan
from playhead.results.responses import action_response, audio_response

PAYLOAD_BYTES = 20 * 1024
SMALL_BYTES = 300
PROSE = "The quick brown fox jumps over the lazy dog. " * 8


def mixed(payload_bytes: int = PAYLOAD_BYTES, blocks: int = 100, *, structured: bool = True) -> str:
    """A result of so many blocks, as JSON; without `structured`, plain text stands for the responses."""
    dice = random.Random(4)
    payload = base64.b64encode(b"ID3\x04" + dice.randbytes(payload_bytes)).decode()
    action = action_response("t", "switch", PROSE, "done", metadata={"room": "kitchen"}, timestamp=0)
    song = audio_response("t", "play", "ok", data=payload, music_name="First Light", timestamp=0)
    kinds: list[dict[str, Any]] = [
        {"type": "text", "text": PROSE},
        {"type": "text", "text": json.dumps({"rows": [[n, PROSE[:20]] for n in range(10)]})},
        {"type": "text", "text": action.to_json() if structured else PROSE},
        {"type": "text", "text": PROSE, "annotations": {"audience": ["user"], "priority": 0.5}},
        {"type": "audio", "data": payload, "mimeType": "audio/mpeg"},
        {"type": "image", "data": payload, "mimeType": "image/png"},
        {"type": "resource_link", "uri": "music://a", "name": "a", "mimeType": "audio/mpeg", "size": 9},
        {"type": "resource_link", "uri": "file:///a.pdf", "name": "a", "title": "A", "description": PROSE},
        {"type": "resource", "resource": {"uri": "file:///a.md", "text": PROSE, "mimeType": "text/markdown"}},
        {"type": "resource", "resource": {"uri": "file:///a.mp3", "blob": payload}},
    ]
    content = [kinds[at % len(kinds)] for at in range(blocks)]
    if structured:
        content[-1] = {"type": "text", "text": song.to_json()}
    return json.dumps({"content": content})


def parse(text: str) -> tuple[Block, ...]:
    return parse_blocks(json.loads(text), limits=DEFAULT_LIMITS, server="bench")


def microseconds(call: Callable[[], object], times: int) -> float:
    """Median of so many calls."""
    spent = []
    for _ in range(times):
        started = time.perf_counter_ns()
        call()
        spent.append(time.perf_counter_ns() - started)
    return statistics.median(spent) / 1000


def planned(blocks: tuple[Block, ...]) -> Plan:
    return classify(blocks, is_error=False)


@pytest.mark.parametrize(
    ("payload_bytes", "structured", "baseline_name", "at_most"),
    [
        (PAYLOAD_BYTES, True, "json.loads + parse_blocks", 1.0),
        (SMALL_BYTES, False, "json.loads + parse_blocks", 1.0),
        (SMALL_BYTES, True, "json.loads + parse_blocks", None),
        (PAYLOAD_BYTES, True, "parse_blocks alone", None),
    ],
    ids=["whole", "small", "small with responses", "blocks alone"],
)
def test_classifying_costs_less_than_parsing(
    payload_bytes: int,
    structured: bool,
    baseline_name: str,
    at_most: float | None,
    board: Board,
    smoke: bool,
) -> None:
    text = mixed(payload_bytes, structured=structured)
    kinds = "blocks" if structured else "blocks, no responses,"
    blocks = parse(text)
    raw = json.loads(text)

    def blocks_alone() -> object:
        return parse_blocks(raw, limits=DEFAULT_LIMITS, server="bench")

    baseline = blocks_alone if "alone" in baseline_name else lambda: parse(text)
    times = 5 if smoke else 100
    ours, theirs = [], []
    for _ in range(board.rounds(9)):
        ours.append(microseconds(lambda: planned(blocks), times))
        theirs.append(microseconds(baseline, times))
    board.add(
        Comparison(
            name=f"100 {kinds} classified, payloads of {payload_bytes} B",
            unit="us",
            baseline_name=baseline_name,
            ours=ours,
            baseline=theirs,
            at_most=at_most,
        )
    )


def test_the_text_for_the_model_beside_parsing(board: Board, smoke: bool) -> None:
    text = mixed()
    plan = planned(parse(text))
    times = 5 if smoke else 100
    ours, theirs = [], []
    for _ in range(board.rounds(9)):
        ours.append(
            microseconds(lambda: text_for_model(plan, limit_chars=DEFAULT_LIMITS.model_text_chars), times)
        )
        theirs.append(microseconds(lambda: parse(text), times))
    board.add(
        Comparison(
            name="its text for the model",
            unit="us",
            baseline_name="json.loads + parse_blocks",
            ours=ours,
            baseline=theirs,
        )
    )
