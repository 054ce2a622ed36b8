"""The forms of a ranged read: how each is recognised and asked for, and the order in which they are tried."""

from __future__ import annotations

import random
from contextlib import AbstractAsyncContextManager
from typing import get_args

import pytest
import trio
import trio.testing
from mcp.shared.uri_template import UriTemplate

from playhead.config.servers import RangeStrategyName
from playhead.errors import (
    ConnectionLostError,
    HttpRefusedError,
    HttpStatusError,
    PlayheadError,
    RangePastEndError,
    ServerError,
    SessionLostError,
    UsageError,
)
from playhead.stream.answer import Page, ReadRange
from playhead.stream.negotiation import RangeForm
from playhead.stream.reader import RangeStream, open_stream
from playhead.stream.strategies import (
    STRATEGY_NAMES,
    FileStrategy,
    ReadStrategy,
    ResourceFacts,
    ResourceRequest,
    candidate_strategies,
)
from playhead.testing.pages import ScriptedPages

URI = "resource://read_from_http"
TEMPLATE = "resource://read_from_http{?url,start,end}"
URL = "http://127.0.0.1:8000/a b/../%2F?x=1&y=ü#z".replace(" ", "%20")


def choose_strategy(**facts: object) -> ReadStrategy:
    """The first candidate."""
    first = candidate_strategies(ResourceFacts(**facts))[0]  # type: ignore[arg-type]
    assert isinstance(first, ReadStrategy)
    return first


def test_a_template_with_start_and_end_is_expanded_and_its_reserved_characters_survive() -> None:
    strategy = choose_strategy(uri=URI, description=URL, templates=["x://{y}", TEMPLATE])
    request = strategy.request(5, 10)
    assert strategy.name == "uri-template"
    assert request.arguments is None
    assert request.meta is None
    assert UriTemplate.parse(TEMPLATE).match(request.uri) == {"url": URL, "start": "5", "end": "10"}
    assert request.uri.count("?") == 1
    assert request.uri.count("#") == 0


def names(**offer: object) -> list[str]:
    return [strategy.name for strategy in candidate_strategies(ResourceFacts(uri=URI, **offer))]  # type: ignore[arg-type]


def test_candidates_are_a_template_then_arguments_then_meta_then_whole() -> None:
    assert names(templates=[TEMPLATE], description=URL, meta_key="range") == [
        "uri-template",
        "arguments",
        "meta",
        "whole",
    ]
    assert names(description=URL, meta_key="range") == ["arguments", "query", "meta", "whole"]
    assert names(description="a nice song", meta_key="range") == ["query", "meta", "whole"]
    assert names() == ["query", "whole"]
    assert names(extra_arguments={"token": 7}) == ["arguments", "query", "whole"], "they are for these"


@pytest.mark.parametrize("override", ["uri-template", "arguments", "meta", "whole"])
def test_an_override_is_the_only_candidate(override: str) -> None:
    assert names(description=URL, templates=[TEMPLATE], forced=override, meta_key="range") == [override]


def test_the_servers_file_knows_every_form() -> None:
    assert get_args(RangeStrategyName) == STRATEGY_NAMES


def test_arguments_hold_the_url_the_range_and_the_extra_ones() -> None:
    strategy = choose_strategy(uri=URI, description=URL, extra_arguments={"token": 7})
    assert strategy.request(0, 9) == ResourceRequest(
        uri=URI, arguments={"url": URL, "token": 7, "start": 0, "end": 9}
    )


def test_extra_arguments_never_replace_the_range() -> None:
    strategy = choose_strategy(uri=URI, extra_arguments={"start": 99, "url": "http://other/"})
    assert strategy.name == "arguments"
    assert strategy.request(1, 2).arguments == {"url": "http://other/", "start": 1, "end": 2}


def test_meta_holds_the_range_under_its_key() -> None:
    strategy = choose_strategy(uri="x:a", meta_key="com.example/range")
    assert strategy.request(3, 4) == ResourceRequest(
        uri="x:a", meta={"com.example/range": {"start": 3, "end": 4}}
    )


@pytest.mark.parametrize(
    ("uri", "description", "templates", "file"),
    [
        (URI, "http://x/a?b", [TEMPLATE], "resource://read_from_http?url=http%3A%2F%2Fx%2Fa%3Fb"),
        (URI, "http://x/a", ["music+" + TEMPLATE], f"music+{URI}?url=http%3A%2F%2Fx%2Fa"),
        (URI, "http://x/a", [], URI),
        ("music://song", "A song", None, "music://song"),
    ],
)
def test_the_file_of_a_link_to_a_reader_of_urls_is_what_it_reads(
    uri: str, description: str, templates: list[str] | None, file: str
) -> None:
    facts = ResourceFacts(uri=uri, description=description, templates=templates, forced="file")
    assert [each.uri for each in candidate_strategies(facts) if isinstance(each, FileStrategy)] == [file]


def test_whole_asks_for_no_range() -> None:
    assert choose_strategy(uri="x:a").request(3, 4) == ResourceRequest(uri="x:a")


@pytest.mark.parametrize(
    ("template", "uri", "expanded"),
    [
        ("song://{id}{?start,end}", "song://3", "song://3?start=0&end=8"),
        ("song://{id}{?start,end,rate}", "song://3", "song://3?start=0&end=8"),
        ("file:///{+path}{?start,end}", "file:///a/b.mp3", "file:///a/b.mp3?start=0&end=8"),
        ("a://b{?start,end}", "a://b", "a://b?start=0&end=8"),
        (TEMPLATE, TEMPLATE, "resource://read_from_http?url=http%3A%2F%2Fh%2F&start=0&end=8"),
        (TEMPLATE, URI + "?url=http%3A%2F%2Fo%2F", URI + "?url=http%3A%2F%2Fo%2F&start=0&end=8"),
    ],
)
def test_a_template_fits_a_uri_that_it_could_have_made(template: str, uri: str, expanded: str) -> None:
    strategy = choose_strategy(uri=uri, description="http://h/", templates=[template])
    assert strategy.request(0, 8).uri == expanded


@pytest.mark.parametrize(
    "template",
    [
        "resource://read_from_http{?url,start}",
        "resource://other{?url,start,end}",
        "resource://read_from_http/{part}{?start,end}",
        "resource://read_from_http{?url,start,end",
        "resource://{a}{+b}{+c}",
    ],
)
def test_a_template_of_another_resource_or_that_nobody_can_expand_is_passed_over(template: str) -> None:
    assert choose_strategy(uri=URI, description=URL, templates=[template]).name == "arguments"


def test_a_template_that_needs_a_url_is_not_used_without_one() -> None:
    assert names(description="a song", templates=[TEMPLATE]) == ["query", "whole"]


@pytest.mark.parametrize(
    "text",
    ["", "a song", "Song: The Best", "mp3:320kbps", "http://", "http:/x", "http://h/a b", "see http://h/x"],
)
def test_a_description_that_is_not_a_url_offers_no_arguments(text: str) -> None:
    assert "arguments" not in names(description=text)


@pytest.mark.parametrize(
    "text", ["http://h/a", "file://h/x", "file:///x", "s3://b/k", "synthetic://file", "ftp://h/x", "a+b://c"]
)
def test_any_url_alone_in_the_description_offers_arguments(text: str) -> None:
    chosen = choose_strategy(uri=URI, description=text)
    assert chosen.request(0, 9).arguments == {"url": text, "start": 0, "end": 9}


@pytest.mark.parametrize(
    ("override", "said"), [("range", "one of"), ("uri-template", "fits"), ("meta", "meta_key")]
)
def test_an_override_that_cannot_be_done_says_why(override: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        choose_strategy(uri=URI, forced=override, templates=["x://{start,end}"])


# --- the negotiation -------------------------------------------------------------------------------------

DATA = random.Random(9).randbytes(300_000)
REFUSED = ServerError("no such parameter", code=-32602)


class Forms:
    """Forms of ranged reads, in order; counts who was asked when."""

    def __init__(self, **servers: ScriptedPages) -> None:
        self.servers = servers
        self.asked: list[tuple[float, str]] = []

    def reading(self, name: str) -> ReadRange:
        async def read(start: int, end: int) -> Page:
            if start == 0:
                self.asked.append((trio.current_time(), name))
            return await self.servers[name](start, end)

        return read

    def open(self, **how: object) -> AbstractAsyncContextManager[RangeStream]:
        first, *others = self.servers
        return open_stream(
            self.reading(first),
            strategy_name=first,
            fallbacks=[RangeForm(name=name, read=self.reading(name)) for name in others],
            server_name="odd",
            **how,  # type: ignore[arg-type]  # open_stream's own keywords
        )

    @property
    def order(self) -> list[str]:
        return [name for _, name in self.asked]


def refusing(error: PlayheadError) -> ScriptedPages:
    def refuse(_start: int, _page: Page) -> Page:
        raise error

    return ScriptedPages(DATA, rewrite=refuse, delay=0.1)


def answering(page: Page) -> ScriptedPages:
    return ScriptedPages(DATA, rewrite=lambda *_: page, delay=0.1)


REFUSALS = {
    "an error": lambda: refusing(REFUSED),
    "an internal error": lambda: refusing(ServerError("oops", code=-32603)),
    "a status": lambda: refusing(HttpRefusedError("HTTP 400", status=400)),
    "a server's fault": lambda: refusing(HttpStatusError("HTTP 500", status=500)),
    "text": lambda: answering(Page(blobs=(), text_items=1, text="use the web")),
    "416": lambda: refusing(RangePastEndError("no such range", code=-32000)),
    "nothing": lambda: answering(Page(blobs=())),
    "an empty blob": lambda: answering(Page(blobs=("",))),
    "[DONE]": lambda: answering(Page(blobs=("W0RPTkVd",))),
}


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_form_that_is_refused_before_its_first_byte_makes_room_for_the_next_at_once(
    autojump_clock: trio.testing.MockClock, refusal: str
) -> None:
    forms = Forms(first=REFUSALS[refusal](), second=ScriptedPages(DATA, delay=0.1))
    async with forms.open(size_bytes=len(DATA)) as stream:
        assert await stream.receive_some(1) == DATA[:1]
        assert trio.current_time() == pytest.approx(0.2)
        assert await stream.read_all() == DATA[1:]
    assert forms.order == ["first", "second"]
    assert stream.statistics().strategy == "second"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionLostError("gone"),
        SessionLostError("gone"),
        HttpStatusError("busy", status=429),
        HttpStatusError("busy", status=503),
    ],
    ids=lambda error: f"{type(error).__name__} {getattr(error, 'status', '')}",
)
async def test_a_busy_server_or_a_lost_session_says_nothing_about_the_form(
    autojump_clock: trio.testing.MockClock, error: PlayheadError
) -> None:
    forms = Forms(first=ScriptedPages(DATA, faults={0: [error]}), second=ScriptedPages(DATA))
    async with forms.open() as stream:
        assert await stream.read_all() == DATA
    assert set(forms.order) == {"first"}


async def test_a_form_that_has_delivered_a_byte_stays(autojump_clock: trio.testing.MockClock) -> None:
    first = ScriptedPages(DATA, faults={100_000: [REFUSED] * 99}, delay=0.01)
    forms = Forms(first=first, second=ScriptedPages(DATA))
    async with forms.open() as stream:
        with pytest.raises(ServerError) as caught:
            await stream.read_all()
    assert caught.value is REFUSED
    assert set(forms.order) == {"first"}


async def test_all_forms_are_tried_once_more_after_a_second_and_the_error_lists_each(
    autojump_clock: trio.testing.MockClock,
) -> None:
    forms = Forms(
        first=refusing(ServerError("no such\n  parameter", code=-32602)),
        second=REFUSALS["text"](),
        third=refusing(ServerError("unknown", code=-32002)),
    )
    async with forms.open() as stream:
        with pytest.raises(ServerError) as caught:
            await stream.read_all()
    assert forms.order == ["first", "second", "third"] * 2
    assert forms.asked[3][0] - forms.asked[2][0] == pytest.approx(1.1)
    assert trio.current_time() < 2
    assert caught.value.code == -32002
    message = str(caught.value)
    assert message.startswith("odd has no such resource; tried first (-32602: no such parameter), second (")
    assert message.endswith(", third (-32002: unknown)")


async def test_a_form_that_works_the_second_time_is_used(autojump_clock: trio.testing.MockClock) -> None:
    forms = Forms(first=ScriptedPages(DATA, faults={0: [REFUSED]}), second=refusing(REFUSED))
    async with forms.open() as stream:
        assert await stream.read_all() == DATA
    assert forms.order[:3] == ["first", "second", "first"]


async def test_the_whole_as_the_last_resort_is_asked_for_once(autojump_clock: trio.testing.MockClock) -> None:
    forms = Forms(first=refusing(REFUSED), whole=ScriptedPages(DATA, ignore_range=True, delay=0.1))
    async with forms.open() as stream:
        assert await stream.read_all() == DATA
    assert forms.order == ["first", "whole"]
    assert (stream.statistics().strategy, stream.statistics().ended_by) == ("whole", "whole")


async def test_a_whole_that_is_refused_gives_the_forms_a_second_round(
    autojump_clock: trio.testing.MockClock,
) -> None:
    forms = Forms(
        first=ScriptedPages(DATA, faults={0: [REFUSED]}),
        whole=ScriptedPages(DATA, ignore_range=True, faults={0: [REFUSED] * 9}),
    )
    async with forms.open() as stream:
        assert await stream.read_all() == DATA
    assert forms.order[:3] == ["first", "whole", "first"]
    assert stream.statistics().strategy == "first"


@pytest.mark.parametrize("nothing", ["416", "nothing", "an empty blob", "[DONE]"])
async def test_a_resource_of_which_no_form_gives_a_byte_is_empty(
    autojump_clock: trio.testing.MockClock, nothing: str
) -> None:
    forms = Forms(first=refusing(REFUSED), second=REFUSALS[nothing]())
    async with forms.open() as stream:
        assert await stream.read_all() == b""
    assert set(forms.order) == {"first", "second"}
    assert stream.statistics().end_bytes == 0


async def test_a_resource_that_is_announced_as_empty_is_settled_by_the_first_empty_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    forms = Forms(first=REFUSALS["nothing"](), second=ScriptedPages(DATA))
    async with forms.open(size_bytes=0) as stream:
        assert await stream.read_all() == b""
    assert forms.order == ["first"]
    assert not stream.statistics().size_was_wrong
