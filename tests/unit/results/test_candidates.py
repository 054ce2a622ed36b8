"""Audio that results hold or name elsewhere than in blocks: what is taken, and where."""

from __future__ import annotations

import base64
import json
import random
import textwrap
from pathlib import Path

import pytest

from playhead.content import ABSENT, parse_block
from playhead.results.candidates import DEPTH, VALUES, AddressedAudio, Permission, Verdict, title_of
from playhead.results.classify import classify
from playhead.results.model_text import text_for_model
from playhead.results.plan import KeepReference, Plan, PlayAudio, Policy, SendText

URL = "https://radio.example/track?id=7"
DATA = Path(__file__).parents[2] / "data"


def plan_of(*texts: str, structured: object = ABSENT) -> Plan:
    return classify(
        [parse_block({"type": "text", "text": text}) for text in texts], is_error=False, structured=structured
    )


def in_text(text: str) -> list[str]:
    return [each.address for each in plan_of(text).candidates]


def in_values(structured: object) -> list[str]:
    return [each.address for each in plan_of(structured=structured).candidates]


def encoded(name: str) -> str:
    return base64.b64encode((DATA / name).read_bytes()).decode()


def heard(plan: Plan) -> list[tuple[str | None, int | None]]:
    return [(each.mime_type, each.size_bytes) for each in plan.parts() if isinstance(each, PlayAudio)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (URL, [URL]),
        (f"\n {URL} \n", [URL]),
        ("HTTP://radio.example/song.mp3", ["HTTP://radio.example/song.mp3"]),
        (f"Listen: {URL}", []),
        (f"{URL} {URL}", []),
        ("https://radio.example/page.html", []),
        ("https://", []),
        ("ftp://radio.example/song.mp3", []),
        (f"{URL}{'x' * 2048}", []),
        ("Audio URL: https://a.example/1.mp3?Expires=1&Sig=x.", ["https://a.example/1.mp3?Expires=1&Sig=x"]),
        ("Listen to [it](https://a.example/a(1).mp3), now", ["https://a.example/a(1).mp3"]),
        ("Tune in: https://a.example/live.pls!", ["https://a.example/live.pls"]),
        ("https://a.example/unsubscribe?song=a.mp3 and https://a.example/open.gif", []),
        (f"https://a.example/1.mp3 {'x' * 2000}", []),
        ('<audio src="https://a.example/1.mp3">', ["https://a.example/1.mp3"]),
        (
            "<AUDIO controls\n SRC = 'https://a.example/1.ogg?a=1&amp;b=2'>",
            ["https://a.example/1.ogg?a=1&b=2"],
        ),
        ("<audio src='https://a.example/1?a=1'>", []),
        ("/tmp/a song.mp3", ["/tmp/a song.mp3"]),
        ("Success. File saved as: /tmp/x y/a.mp3. Voice used: V", ["/tmp/x y/a.mp3"]),
        ("It is in /tmp/a.wav, enjoy", ["/tmp/a.wav"]),
        ("文件已保存到/tmp/a.wav。", ["/tmp/a.wav"]),
        ("正在播放：https://a.example/1.mp3?a=1&copy=2。", ["https://a.example/1.mp3?a=1&copy=2"]),
        ("file:///tmp/a%20b.flac", ["file:///tmp/a%20b.flac"]),
        ("//example/path12 //example/a.mp3 ./a.mp3 ~/a.mp3 music/a.mp3 /etc/passwd", []),
        ("ID3 is a tag, and /tmp is a directory", []),
        (
            '<audio><source src="https://a.example/1.ogg"><source src="https://a.example/1.mp3"></audio>',
            ["https://a.example/1.ogg", "https://a.example/1.mp3"],
        ),
        ('<video><source src="https://a.example/1.mp4"></video>', []),
        ('<audio src="javascript:alert(1)">', []),
        ('<audio src="/relative.mp3">', []),
    ],
)
def test_text_gives_a_url_alone_or_in_an_audio_tag(text: str, found: list[str]) -> None:
    assert in_text(text) == found


@pytest.mark.parametrize(
    "key", ["downloadUrl", "download_url", "httpUrl", "audio_url", "audioURL", "streamUrl", "playUrl"]
)
def test_structured_content_gives_the_urls_under_known_keys(key: str) -> None:
    assert in_values({key: URL}) == [URL]
    assert in_values({"result": {"song": {key: URL}}}) == [URL]


@pytest.mark.parametrize(
    "structured",
    [
        {"link": URL},
        {"url": URL, "title": "an issue"},
        {"tracking_url": URL, "displayUrl": URL, "upstream_url": URL, "callbackUrl": URL},
        {"url": 7},
        {"url": "song.mp3"},
        {"url": "https://radio.example/page.html"},
        {"url": URL, "mimeType": "text/html"},
        {"audio_url": URL, "mimeType": "video/mp4"},
        [{"url": URL}],
        {"results": [{"url": URL, "title": "a page"}]},
        URL,
        None,
        7,
    ],
)
def test_other_values_are_not_taken(structured: object) -> None:
    assert in_values(structured) == []


def test_items_of_a_list_give_audio_but_not_pages() -> None:
    assert in_values({"tracks": [{"audio_url": f"{URL}&n={n}", "url": URL} for n in range(3)]}) == [
        f"{URL}&n={n}" for n in range(3)
    ]


def test_the_search_is_bounded() -> None:
    deep: object = {"audio_url": URL}
    for _ in range(DEPTH):
        deep = {"inner": deep}
    assert in_values(deep) == []
    wide = {"items": [{} for _ in range(VALUES)], "last": {"nested": {"audio_url": URL}}}
    assert in_values(wide) == []


def test_each_url_is_a_candidate_once_and_none_that_the_result_links() -> None:
    assert [each.index for each in plan_of(URL, URL, structured={"url": URL}).candidates] == [0]
    link = parse_block({"type": "resource_link", "uri": URL, "name": "song", "mimeType": "audio/mpeg"})
    assert classify([link], is_error=False, structured={"url": URL}).candidates == ()


def test_keys_and_neighbours_name_urls_without_a_suffix() -> None:
    station = {"name": "Radio", "url": f"{URL}&1", "codec": "MP3", "bitrate": 128, "homepage": f"{URL}&2"}
    (candidate,) = plan_of(json.dumps([station])).candidates
    assert (candidate.address, candidate.title, candidate.place) == (
        f"{URL}&1",
        "Radio",
        "$.content[0].text[0].url",
    )
    assert in_values({"url": URL, "mimeType": "audio/mpeg"}) == [URL]
    assert in_values({"image_url": "https://a.example/1", "source_audio_url": f"{URL}&3"}) == [f"{URL}&3"]
    assert in_values({"audio_url": "https://a.example/1.mp3", "stream_audio_url": URL}) == [
        "https://a.example/1.mp3"
    ], "an object describes one thing"
    assert in_values({"vocals": "https://a.example/v.mp3", "drums": "https://a.example/d.mp3"}) == [
        "https://a.example/v.mp3",
        "https://a.example/d.mp3",
    ]


# --- base64 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "mime_type"),
    [
        ("chord.wav", "audio/wav"),
        ("chord.flac", "audio/flac"),
        ("chord.ogg", "audio/ogg"),
        ("tagged.mp3", "audio/mpeg"),
        ("bare.mp3", "audio/mpeg"),
    ],
)
def test_base64_of_audio_plays_wherever_it_is(name: str, mime_type: str) -> None:
    data, size = encoded(name), (DATA / name).stat().st_size
    for plan in (
        plan_of(data),
        plan_of("\n".join(textwrap.wrap(data, 76))),
        plan_of(f"Here: data:{mime_type};base64,{data} enjoy"),
        plan_of(json.dumps({"audioBase64": data, "voice": "V"})),
        plan_of(structured={"result": {"items": [{"content": data}]}}),
        plan_of(json.dumps({"result": data}), structured={"result": data}),
    ):
        ((found, found_size),) = heard(plan)
        assert (str(found).partition(";")[0], found_size) == (mime_type, size)
        assert plan.turn.decision == "stop"
        shown = text_for_model(plan, limit_chars=100_000).text
        assert shown.count(": playing]") == 1
        assert len(shown) < 300
        assert data[:200] not in json.dumps(plan.structured if plan.structured is not ABSENT else "")


def test_the_rest_of_the_text_stays() -> None:
    plan = plan_of(json.dumps({"title": "Chord", "data": encoded("chord.wav"), "seconds": 2}))
    text = text_for_model(plan, limit_chars=1000).text
    line = '[audio "Chord", audio/wav, 64.0 kB: playing]'
    assert json.loads(text) == {"title": "Chord", "data": line, "seconds": 2}
    assert "can be played" in text_for_model(plan, limit_chars=1000, playing=False).text


def test_raw_samples_need_a_type_or_a_rate_beside_them() -> None:
    samples = base64.b64encode(bytes(range(7, 207)) * 20).decode()
    assert heard(plan_of(structured={"data": samples})) == []
    assert heard(plan_of(structured={"data": samples, "sample_rate": 24_000})) == [
        ("audio/pcm;rate=24000;channels=1", 4000)
    ]
    assert heard(
        plan_of(structured={"data": samples, "mimeType": "audio/L16;rate=16000", "channels": 2})
    ) == [("audio/l16;rate=16000;channels=2", 4000)]
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(4000)).decode()
    assert heard(plan_of(structured={"plot": picture, "sample_rate": 24_000})) == []
    assert heard(plan_of(structured={"data": samples, "format": "float32", "sample_rate": 24_000})) == []


@pytest.mark.parametrize(
    "data",
    [
        b"ID3 is a tag" + bytes(1000),
        b"RIFF\xff\xff\xff\xffWAVE" + bytes(1000),
        b"\xff\xfb\x90\x64" + bytes(1000),
        b"\xff\xf1\x50\x80" + bytes(1000),
        b"fLaC" + b"\1" * 1000,
        b"OggS" + b"\1" * 1000,
        b"\0\0\0\x20ftypisom" + bytes(1000),
        b"\x1aE\xdf\xa3" + bytes(1000),
        bytes(1000),
    ],
)
def test_a_mere_resemblance_is_not_audio(data: bytes) -> None:
    text = base64.b64encode(data).decode()
    assert heard(plan_of(text)) == heard(plan_of(structured={"data": text})) == []


def test_invalid_base64_is_text() -> None:
    assert heard(plan_of(encoded("chord.wav")[:-5])) == []
    assert heard(plan_of(encoded("chord.wav")[:900])) == []


def test_audio_in_a_block_wins_over_the_same_in_text() -> None:
    data = encoded("chord.wav")
    blocks = [{"type": "text", "text": data}, {"type": "audio", "data": data, "mimeType": "audio/wav"}]
    plan = classify([parse_block(each) for each in blocks], is_error=False)
    (audio,) = plan.dispositions
    assert isinstance(audio, PlayAudio)
    assert audio.block is not None


def test_an_error_plays_nothing() -> None:
    block = parse_block({"type": "text", "text": encoded("chord.wav")})
    plan = classify([block], is_error=True)
    assert heard(plan) == []
    assert "inline data left out" in text_for_model(plan, limit_chars=1000).text


# --- verdicts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "title"),
    [
        ("https://a.example/music/My%20Song.mp3?x=1", "My Song.mp3"),
        ("https://a.example/", "a.example"),
    ],
)
def test_a_url_is_named_after_its_last_segment(url: str, title: str) -> None:
    assert title_of(url) == title


def test_a_candidate_plays_once_its_origin_has_answered_with_audio() -> None:
    blocks = [parse_block({"type": "text", "text": URL})]
    before = classify(blocks, is_error=False)
    assert [each.address for each in before.candidates] == [URL]
    assert before.turn.decision == "continue"
    verdict = Verdict(reason="yes", items=(AddressedAudio(URL, "", "audio/mpeg"),))
    after = classify(blocks, is_error=False, verdicts={URL: verdict})
    text, audio = after.dispositions
    assert isinstance(text, SendText)
    assert isinstance(audio, PlayAudio)
    assert (audio.uri, audio.mime_type, audio.title) == (URL, "audio/mpeg", "track")
    assert after.turn.decision == "stop"


def test_a_refused_candidate_is_text_and_remembered() -> None:
    verdict = Verdict(reason="not allowed", permission=Permission("allow_paths", "/tmp"))
    blocks = [parse_block({"type": "text", "text": "/tmp/a.mp3"})]
    plan = classify(blocks, is_error=False, verdicts={"/tmp/a.mp3": verdict})
    assert plan.turn.decision == "continue"
    assert [each.verdict for each in plan.refused] == [verdict]


def test_entries_take_the_place_of_a_link_to_a_playlist() -> None:
    link = parse_block(
        {"type": "resource_link", "uri": "x:list.m3u", "name": "list", "mimeType": "audio/mpegurl"}
    )
    (kept,) = classify([link], is_error=False).dispositions
    assert isinstance(kept, KeepReference)
    items = tuple(AddressedAudio(f"{URL}{n}", str(n), None) for n in range(2))
    plan = classify([link], is_error=False, verdicts={"x:list.m3u": Verdict(reason="", items=items)})
    assert [each.title for each in plan.dispositions if isinstance(each, PlayAudio)] == ["0", "1"]


def test_an_error_and_a_policy_without_sniffing_have_no_candidates() -> None:
    blocks = [parse_block({"type": "text", "text": URL})]
    assert classify(blocks, is_error=True).candidates == ()
    assert classify(blocks, is_error=False, policy=Policy(sniff_links=False)).candidates == ()


def test_mails_documents_and_hashes_name_nothing() -> None:
    draw = random.Random(7)
    for _ in range(500):
        token = "".join(draw.choices("abcdefghABCDEFGH0123456789", k=40))
        site, data = f"https://{token[:8].lower()}.example", draw.randbytes(draw.randint(750, 3000))
        texts = (
            f"Hello,\nclick {site}/t/{token}?song=a.mp3 or [here]({site}/unsubscribe/{token}).\n"
            f'<img src="{site}/open.gif?{token}"><a href="{site}/approve/{token}">approve</a>',
            json.dumps({"id": 1, "url": f"{site}/issues/1", "html_url": f"{site}/1", "user": {"url": site}}),
            json.dumps([{"url": f"{site}/{number}", "title": token} for number in range(20)]),
            json.dumps({"bugs": {"url": f"{site}/bugs"}, "homepage": f"{site}#readme", "main": "a/b.mp3"}),
            json.dumps({"data": base64.b64encode(data).decode(), "mimeType": "application/pdf"}),
            base64.b64encode(data).decode(),
            f"data:image/png;base64,{base64.b64encode(data).decode()}",
            token * 40,
            f"//{token}/a.mp3 ./{token}.mp3 C:\\{token}.mp3",
        )
        for text in texts:
            plan = plan_of(text)
            assert (heard(plan), plan.candidates) == ([], ()), text
