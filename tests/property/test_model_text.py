"""Law of the text for models: no base64 of any block reaches it, whatever blocks, policy and length."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.content import ABSENT, parse_block
from playhead.results.classify import classify
from playhead.results.model_text import text_for_model
from playhead.results.plan import Policy, Stopper
from playhead.results.responses import action_response, audio_response, content_response, error_response

WINDOW = 40
"""A stretch of payload this long in the text is a leak; shorter ones may be words or parts of a format."""

POLICIES = st.builds(
    Policy,
    trust_structured=st.booleans(),
    stops=st.frozensets(st.sampled_from(get_args(Stopper))),
    turn=st.sampled_from([None, "stop", "continue"]),
    sniff_links=st.booleans(),
)
MAGIC = (b"", b"RIFF\x24\x00\x00\x00WAVE", b"ID3\x04", b"\x89PNG\r\n\x1a\n", b"%PDF", b"OggS")
WORDS = st.text(max_size=30)
Maker = Callable[[str], dict[str, Any]]


@st.composite
def payloads(draw: st.DrawFn, *, at_least: int = 0) -> str:
    """Base64 of what media look like: a signature, then noise."""
    size = draw(st.sampled_from([48, 49, 50, 400, 5000]))
    noise = random.Random(draw(st.integers(0, 2**32))).randbytes(max(size, at_least))
    return base64.b64encode(draw(st.sampled_from(MAGIC)) + noise).decode()


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@st.composite
def held(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """A block that holds a payload of any size as its own data."""
    data = draw(payloads())
    mime_type = draw(
        st.sampled_from(["audio/wav", "image/png", "application/zip", "", None, f"audio/{data}"])
    )
    label = {} if mime_type is None else {"mimeType": mime_type}
    name = draw(st.sampled_from(["n", data, f"data:x/y;base64,{data}", f"a\n{data}"]))
    makers: list[Maker] = [
        lambda data: {"type": "audio", "data": data} | label,
        lambda data: {"type": "image", "data": data} | label,
        lambda data: {"type": "resource", "resource": {"uri": "x://a", "blob": data} | label},
        lambda data: {
            "type": "resource",
            "resource": {"uri": f"data:a/b;base64,{data}", "blob": data} | label,
        },
        lambda data: {"type": "resource_link", "uri": f"data:audio/wav;base64,{data}", "name": name} | label,
        lambda data: {"type": "resource_link", "uri": "x://a", "name": name, "title": name} | label,
        lambda data: {"type": "hologram", "data": data},
        lambda data: {"type": "audio", "data": [data]},
    ]
    block = draw(st.sampled_from(makers))(data)
    if draw(st.booleans()):
        block["annotations"] = {"audience": draw(st.sampled_from([["user"], ["assistant"], ["user", "x"]]))}
    return block, data


@st.composite
def written(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """A text that holds a payload: a structured response, one nested in another, or base64 inside prose."""
    data = draw(payloads())
    long = draw(payloads(at_least=400))
    terminal, compat = draw(st.booleans()), draw(st.booleans())
    song = audio_response("t", "play", "ok", data=data, terminal=terminal, music_name="n", timestamp=0)
    inner = song.to_json(compat=compat)
    makers: list[tuple[str, str]] = [
        (data, inner),
        (data, inner.replace('"audio"', '"audible"')),
        (data, inner.replace('"success":true', '"success":"yes"')),
        (data, json.dumps(json.loads(inner), indent=2)),
        (data, content_response("t", json.loads(inner), "m", timestamp=0).to_json()),
        (data, content_response("t", None, inner, timestamp=0).to_json(compat=compat)),
        (data, action_response("t", "a", f"see {inner}", "s", terminal=terminal, timestamp=0).to_json()),
        (data, error_response("t", inner, timestamp=0).to_json()),
        (data, f"![x](data:image/png;base64,{data})"),
        (long, f"It is {long}."),
        (long, base64.encodebytes(base64.b64decode(long)).decode()),
        (long, action_response("t", "a", long, "s", timestamp=0).to_json()),
        (long, json.dumps({"picture": long})),
    ]
    payload, text = draw(st.sampled_from(makers))
    if draw(st.booleans()):
        return said(text), payload
    return {"type": "resource", "resource": {"uri": "x://a", "text": text}}, payload


@st.composite
def structured(draw: st.DrawFn) -> tuple[object, str]:
    data, long = draw(payloads()), draw(payloads(at_least=400))
    return draw(
        st.sampled_from(
            [({"data": data}, data), ([{"x": {"blob": data}}], data), (long, long), ({"x": [long]}, long)]
        )
    )


def leaks(payload: str, text: str) -> bool:
    bare = "".join(text.split())
    return any(payload[at : at + WINDOW] in bare for at in range(0, len(payload) - WINDOW + 1, 4))


@pytest.mark.requirement("TR-50", "TR-51")
@settings(deadline=None, max_examples=300)
@given(
    parts=st.lists(st.one_of(held(), written(), st.tuples(WORDS.map(said), st.just(""))), max_size=6),
    content=st.one_of(st.just((ABSENT, "")), structured()),
    policy=POLICIES,
    is_error=st.booleans(),
    sniffed=st.dictionaries(st.integers(0, 5), st.booleans()),
    limit_chars=st.sampled_from([200, 1000, 100_000]),
    playing=st.booleans(),
)
def test_no_payload_reaches_the_text_for_the_model(
    parts: list[tuple[dict[str, Any], str]],
    content: tuple[object, str],
    policy: Policy,
    is_error: bool,
    sniffed: dict[int, bool],
    limit_chars: int,
    playing: bool,
) -> None:
    plan = classify(
        [parse_block(block) for block, _ in parts],
        is_error=is_error,
        structured=content[0],
        policy=policy,
        sniffed=sniffed,
    )
    made = text_for_model(plan, limit_chars=limit_chars, playing=playing)
    for payload in [*(payload for _, payload in parts), content[1]]:
        assert not leaks(payload, made.whole)
        assert not leaks(payload, made.text)
    assert len(made.text) <= limit_chars
    assert made.text
    made.text.encode()
