"""Sound under check: decoded, and held against what it is called."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from playhead.check.probes.tools import probe_media
from playhead.check.target import SessionTarget
from tests.unit.check.probe_kit import Found, defects, probed
from tests.unit.raw_server import RawServer

DATA = Path(__file__).parents[2] / "data"


async def of(data: bytes | str, mime_type: str, *, embedded: bool = False) -> tuple[set[str], set[str]]:
    """The names of the checks that failed, and of those that were skipped."""
    text = data if isinstance(data, str) else base64.b64encode(data).decode()
    block: dict[str, object] = {"type": "audio", "data": text, "mimeType": mime_type}
    if embedded:
        block = {"type": "resource", "resource": {"uri": "a://b", "blob": text, "mimeType": mime_type}}

    async def probe(target: SessionTarget, found: Found) -> None:
        await probe_media(target, [{"content": [block, block]}, {"content": 3}], found, tool="t")

    tests = await probed(RawServer({}, capabilities={"tools": {}}), probe, mode="legacy")
    assert len(tests) == 1  # the same sound is judged once
    skipped = {check.kind.name for check in tests[0].checks if check.verdict == "skipped"}
    return defects(tests), skipped


@pytest.mark.parametrize(
    ("file", "mime_type"),
    [
        ("chord.wav", "audio/wav"),
        ("chord.wav", "audio/x-wav; codecs=1"),
        ("chord.flac", "audio/flac"),
        ("chord.ogg", "audio/ogg"),
        ("tagged.mp3", "audio/mpeg"),
        ("bare.mp3", "audio/mpeg"),
        ("gapless.mp3", "audio/x-unheard-of"),
    ],
)
async def test_sound_that_is_what_it_is_called_is_right(file: str, mime_type: str) -> None:
    assert await of((DATA / file).read_bytes(), mime_type) == (set(), set())


@pytest.mark.parametrize(
    ("file", "mime_type"),
    [("refused.opus", "audio/opus"), ("refused.aac", "audio/aac"), ("refused.m4a", "audio/mp4")],
)
async def test_sound_that_nobody_here_decodes_is_not_judged(file: str, mime_type: str) -> None:
    assert await of((DATA / file).read_bytes(), mime_type) == (set(), {"audio.decodes"})


async def test_an_embedded_blob_is_sound_too() -> None:
    assert await of(b"no sound at all", "audio/wav", embedded=True) == ({"audio.decodes"}, set())


@pytest.mark.parametrize(
    ("data", "mime_type", "expected"),
    [
        ((DATA / "chord.wav").read_bytes(), "audio/mpeg", {"audio.mime-type"}),
        ((DATA / "chord.flac").read_bytes(), "audio/ogg", {"audio.mime-type"}),
        (b"<html>not found</html>", "audio/mpeg", {"audio.decodes"}),
        (bytes(range(256)) * 8, "audio/wav", {"audio.decodes"}),
        (b"", "audio/mpeg", {"audio.decodes"}),
        ((DATA / "chord.wav").read_bytes()[:44], "audio/wav", {"audio.decodes"}),
        ("UklGRiQ*", "audio/wav", {"audio.base64"}),
    ],
    ids=["wav as mp3", "flac as ogg", "text", "noise", "nothing", "header only", "no base64"],
)
async def test_each_defect_of_sound_is_found_by_its_name(
    data: bytes | str, mime_type: str, expected: set[str]
) -> None:
    assert (await of(data, mime_type))[0] == expected
