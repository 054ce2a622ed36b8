"""Audio and images under check: decoded, and compared with their labels and with their own words."""

from __future__ import annotations

import base64
import io
import math
from pathlib import Path

import pytest
import soundfile

from playhead.check.probes.resources import probe_read
from playhead.check.probes.tool_judging import judge_result
from playhead.check.probes.tools import probe_media
from playhead.check.results import TestDraft
from playhead.check.target import Target
from tests.servers.planted.faultless import PICTURE
from tests.unit.check.check_kit import defects, probed
from tests.unit.raw_server import RawServer

DATA = Path(__file__).parents[2] / "data"


async def of(data: bytes | str, mime_type: str, *, embedded: bool = False) -> tuple[set[str], set[str]]:
    """The names of the checks that failed, and of those that were skipped."""
    text = data if isinstance(data, str) else base64.b64encode(data).decode()
    block: dict[str, object] = {"type": "audio", "data": text, "mimeType": mime_type}
    if embedded:
        block = {"type": "resource", "resource": {"uri": "a://b", "blob": text, "mimeType": mime_type}}

    async def probe(target: Target) -> None:
        await probe_media(target, [{"content": [block, block]}, {"content": 3}], tool="t")

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
async def test_audio_that_matches_its_label_passes(file: str, mime_type: str) -> None:
    assert await of((DATA / file).read_bytes(), mime_type) == (set(), set())


@pytest.mark.parametrize(
    ("file", "mime_type"),
    [("refused.opus", "audio/opus"), ("refused.aac", "audio/aac"), ("refused.m4a", "audio/mp4")],
)
async def test_audio_without_a_decoder_is_not_judged(file: str, mime_type: str) -> None:
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


WHOLE = {
    "audio/wav": "chord.wav",
    "audio/flac": "chord.flac",
    "audio/mpeg": "gapless.mp3",
    "audio/ogg": "chord.ogg",
    "image/png": "",
    "image/jpeg": "picture.jpg",
}
PNG = base64.b64decode(PICTURE)


def bytes_of(mime_type: str) -> bytes:
    return (DATA / WHOLE[mime_type]).read_bytes() if WHOLE[mime_type] else PNG


@pytest.mark.parametrize("part", [1 / 2, 2 / 3], ids=["half", "two thirds"])
@pytest.mark.parametrize("mime_type", [name for name in WHOLE if name.startswith("audio/")])
async def test_audio_that_was_cut_is_found(mime_type: str, part: float) -> None:
    whole = bytes_of(mime_type)
    assert await of(whole, mime_type) == (set(), set())
    assert await of(whole[: int(len(whole) * part)], mime_type) == ({"audio.whole"}, set())


@pytest.mark.parametrize("mime_type", ["audio/flac", "audio/ogg"])
async def test_one_flipped_byte_of_audio_with_checksums_is_found(mime_type: str) -> None:
    damaged = bytearray(bytes_of(mime_type))
    damaged[len(damaged) * 3 // 4] ^= 0xFF
    assert await of(bytes(damaged), mime_type) == ({"audio.whole"}, set())


@pytest.mark.parametrize("subtype", ["PCM_S8", "PCM_16", "PCM_24"])
async def test_flac_whose_samples_do_not_match_its_md5_is_found(subtype: str) -> None:
    # A STREAMINFO with the MD5 of one piece, and the frames of another one of the same length.
    pieces = []
    for loudness in (0.5, 0.4):
        file = io.BytesIO()
        soundfile.write(
            file, [[loudness * math.sin(at / 9), 0.1] for at in range(8000)], 16_000, subtype, format="FLAC"
        )
        pieces.append(file.getvalue())
    assert await of(pieces[0], "audio/flac") == (set(), set())
    assert await of(pieces[1][:26] + pieces[0][26:42] + pieces[1][42:], "audio/flac") == (
        {"audio.whole"},
        set(),
    )


@pytest.mark.parametrize("embedded", [False, True])
@pytest.mark.parametrize("mime_type", [name for name in WHOLE if name.startswith("image/")])
async def test_an_image_that_was_cut_is_found(mime_type: str, *, embedded: bool) -> None:
    def judged(data: bytes) -> set[str]:
        text = base64.b64encode(data).decode()
        block: dict[str, object] = {"type": "image", "data": text, "mimeType": mime_type}
        if embedded:
            block = {"type": "resource", "resource": {"uri": "a://b", "blob": text, "mimeType": mime_type}}
        draft = TestDraft(subject="tool t", title="a call")
        judge_result(draft, {"content": [block]}, revision="2025-11-25", output_schema=None)
        return defects([draft.done()])

    whole = bytes_of(mime_type)
    assert judged(whole) == set()
    assert judged(whole[: len(whole) // 2]) == {"image.whole"}
    assert judged(b"not an image") == {"tools.image"}


@pytest.mark.parametrize("mime_type", sorted(WHOLE))
async def test_media_of_a_resource_are_judged_too(mime_type: str) -> None:
    async def judged(data: bytes) -> set[str]:
        part = {"uri": "a://b", "mimeType": mime_type, "blob": base64.b64encode(data).decode()}
        server = RawServer({"resources/read": {"contents": [part]}}, capabilities={"resources": {}})

        async def probe(target: Target) -> None:
            await probe_read(target, {"uri": "a://b", "name": "b"}, listed=True, subject="resource b")

        return defects(await probed(server, probe, mode="legacy"))

    whole = bytes_of(mime_type)
    assert await judged(whole) == set()
    assert await judged(whole[: len(whole) // 2]) & {"audio.whole", "image.whole"}
