"""URLs in results that may lead to audio: which are taken, and where."""

from __future__ import annotations

import pytest

from playhead.content import ABSENT, parse_block
from playhead.results.classify import classify
from playhead.results.kinds import BlockView, view_of
from playhead.results.plan import PlayAudio, Policy, SendText
from playhead.results.web_links import DEPTH, VALUES, title_of, web_candidates

URL = "https://radio.example/track?id=7"


def views(*raw: dict[str, object]) -> list[BlockView]:
    return [view_of(each) for each in raw]


def in_text(text: str) -> list[str]:
    return [each.url for each in web_candidates(views({"type": "text", "text": text}), ABSENT)]


def in_values(structured: object) -> list[str]:
    return [each.url for each in web_candidates([], structured)]


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
        ('<audio src="https://a.example/1.mp3">', ["https://a.example/1.mp3"]),
        ("<AUDIO controls\n SRC = 'https://a.example/1?a=1&amp;b=2'>", ["https://a.example/1?a=1&b=2"]),
        (
            '<audio><source src="https://a.example/1.ogg"><source src="https://a.example/1.mp3"></audio>',
            ["https://a.example/1.ogg", "https://a.example/1.mp3"],
        ),
        ('<video><source src="https://a.example/1.mp4"></video>', []),
        ('<audio src="javascript:alert(1)">', []),
        ('<audio src="/relative.mp3">', []),
        ('<audio data-src="https://a.example/1.mp3">', []),
    ],
)
def test_text_gives_a_url_alone_or_in_an_audio_tag(text: str, found: list[str]) -> None:
    assert in_text(text) == found


@pytest.mark.parametrize(
    "key", ["downloadUrl", "download_url", "httpUrl", "audio_url", "audioURL", "url", "URL"]
)
def test_structured_content_gives_the_urls_under_known_keys(key: str) -> None:
    assert in_values({key: URL}) == [URL]
    assert in_values({"result": {"song": {key: URL}}}) == [URL]


@pytest.mark.parametrize(
    "structured",
    [
        {"link": URL},
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
    text: dict[str, object] = {"type": "text", "text": URL}
    link: dict[str, object] = {"type": "resource_link", "uri": URL, "name": "song"}
    assert [each.index for each in web_candidates(views(text, text), {"url": URL})] == [0]
    assert web_candidates(views(text, link), {"url": URL}) == ()


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
    assert [each.url for each in before.candidates] == [URL]
    assert before.turn.decision == "continue"
    after = classify(blocks, is_error=False, audio_urls={URL: "audio/mpeg"})
    text, audio = after.dispositions
    assert isinstance(text, SendText)
    assert isinstance(audio, PlayAudio)
    assert (audio.uri, audio.mime_type, audio.title) == (URL, "audio/mpeg", "track")
    assert after.turn.decision == "stop"


def test_an_error_and_a_policy_without_sniffing_have_no_candidates() -> None:
    blocks = [parse_block({"type": "text", "text": URL})]
    assert classify(blocks, is_error=True).candidates == ()
    assert classify(blocks, is_error=False, policy=Policy(sniff_links=False)).candidates == ()
