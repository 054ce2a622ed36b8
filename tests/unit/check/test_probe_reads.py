"""Ranged reads under check: each defect by its name, and nothing said of servers that do it their own way."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from typing import Any

import mcp_types as types
import pytest
import trio
import trio.testing
from mcp.server import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate

from playhead.check.probes.resources import probe_link
from playhead.check.target import Target
from tests.servers.pages import PagesServer, parser
from tests.unit.check.check_kit import defects, probed, undecided


async def behaving(behaviour: str, *options: str) -> tuple[set[str], list[str]]:
    """Return the findings about the paged server with that behaviour, and the undecided tests."""
    server = PagesServer(parser().parse_args(["--behaviour", behaviour, "--size", "300001", *options]))

    async def probe(target: Target) -> None:
        answer = await target.request("tools/call", {"name": "link", "arguments": {}})
        assert answer.result is not None
        await probe_link(target, answer.result["content"][0], tool="link")

    tests = await probed(server.server, probe)
    assert tests
    return defects(tests), undecided(tests)


@pytest.mark.parametrize(
    "behaviour",
    ["plain", "split", "end-empty-list", "end-done", "end-416", "template-only", "arguments-only"],
)
async def test_nothing_is_found_of_a_server_that_keeps_to_its_ranges(behaviour: str) -> None:
    assert await behaving(behaviour) == (set(), [])


async def test_nothing_is_found_of_a_link_that_does_not_say_how_big_it_is() -> None:
    assert await behaving("plain", "--no-size") == (set(), [])


async def test_a_page_limit_is_detected_without_losing_bytes() -> None:
    assert await behaving("cap64k") == ({"reads.page-cap"}, [])


async def test_pages_of_the_servers_own_size_are_longer_than_asked() -> None:
    assert (await behaving("own-page-big"))[0] == {"reads.page-length"}


async def test_an_ignored_range_is_found_where_a_template_offers_ranges() -> None:
    assert (await behaving("ignore-range"))[0] == {"reads.range-honoured"}


@pytest.mark.parametrize("behaviour", ["size-too-small", "size-too-big"])
async def test_a_wrong_size_is_found(behaviour: str) -> None:
    assert (await behaving(behaviour))[0] == {"reads.size"}


async def test_text_in_place_of_bytes_decides_nothing() -> None:
    found, open_questions = await behaving("text-for-bytes")
    assert found == set()
    assert "contents[0] has no blob" in open_questions[0]


SONG = random.Random(7).randbytes(100_000)
URI = "media://song"
TEMPLATE = UriTemplate.parse(URI + "{?start,end}")
Paging = Callable[[int, int], bytes]


def song(
    page: Paging,
    *,
    plain: Callable[[], bytes] = lambda: SONG,
    seconds: float = 0.0,
    series: bool = False,
    declared: Callable[[int], dict[str, Any]] = lambda _start: {},
) -> Server[Any]:
    """A server of one song whose ranges are `page`, each with what it declares in `_meta`."""
    turn = trio.CapacityLimiter(1 if series else 100)

    async def read(_context: object, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        asked = TEMPLATE.match(str(params.uri)) or {}
        async with turn:
            await trio.sleep(seconds)
        data = page(int(str(asked["start"])), int(str(asked["end"]))) if "start" in asked else plain()
        blob = base64.b64encode(data).decode()
        meta = declared(int(str(asked.get("start", 0)))) or None
        return types.ReadResourceResult(contents=[types.BlobResourceContents(uri=URI, blob=blob, _meta=meta)])

    async def templates(_context: object, _params: object) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(name="song", uri_template=str(TEMPLATE))
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def nothing(_context: object, _params: object) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[])

    return Server(
        "song", on_read_resource=read, on_list_resource_templates=templates, on_list_resources=nothing
    )


async def of(server: Server[Any], **link: Any) -> tuple[set[str], list[str]]:
    async def probe(target: Target) -> None:
        await probe_link(target, {"uri": URI, "name": "song", **link})

    tests = await probed(server, probe)
    return defects(tests), undecided(tests)


def refused_past_the_end(start: int, end: int) -> bytes:
    if start >= len(SONG):
        raise MCPError(-32603, "list index out of range")
    return SONG[start:end]


def one_byte_wrong(start: int, end: int) -> bytes:
    page = bytearray(SONG[start:end])
    if start <= 50_000 < end:
        page[50_000 - start] ^= 1
    return bytes(page)


PAGINGS: dict[str, tuple[Paging, set[str]]] = {
    "right": (lambda start, end: SONG[start:end], set()),
    "short": (lambda start, end: SONG[start : min(end, start + 5000)], {"reads.page-cap"}),
    "a-byte-more": (lambda start, end: SONG[start : end + 1], {"reads.page-length"}),
    "longer-later": (lambda start, end: SONG[start : end + 5 * (start > 0)], {"reads.page-length"}),
    "always-the-first": (lambda start, end: SONG[: end - start], {"reads.page-repeated", "reads.past-end"}),
    "a-byte-wrong": (one_byte_wrong, {"reads.page-bytes"}),
    "shifted": (
        lambda start, end: SONG[max(0, start - 1) : end - 1],
        {"reads.page-repeated", "reads.past-end", "reads.empty-range"},
    ),
    "no-tail": (lambda start, end: SONG[:-100][start:end], {"reads.tail"}),
    "whole": (lambda start, end: SONG, {"reads.range-honoured"}),
    "refused": (refused_past_the_end, {"reads.past-end"}),
    "round-and-round": (lambda start, end: (SONG * 30)[start:end], {"reads.past-end"}),
    "empty-is-one": (lambda start, end: SONG[start : max(end, start + 1)], {"reads.empty-range"}),
}


@pytest.mark.parametrize(("page", "expected"), PAGINGS.values(), ids=PAGINGS)
async def test_each_defect_of_pages_is_found_by_its_name(page: Paging, expected: set[str]) -> None:
    found, _ = await of(song(page), size=len(SONG))
    assert found == expected


async def test_a_resource_that_changes_while_it_is_read_is_not_judged_by_its_bytes() -> None:
    count = iter(range(10**6))

    def live(start: int, end: int) -> bytes:
        now = next(count)
        return bytes((index + now) % 256 for index in range(start, min(end, 1000)))

    found, open_questions = await of(song(live, plain=lambda: live(0, 1000)))
    assert not found & {"reads.page-bytes", "reads.page-repeated", "reads.page-length"}
    assert any("the resource changes" in why for why in open_questions)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (lambda start: {"playhead/offset": start, "playhead/size": len(SONG)}, set()),
        (lambda start: {"playhead/offset": max(0, start - 1)}, {"reads.page-declared"}),
        (lambda start: {"playhead/offset": str(start)}, {"reads.page-declared"}),
        (lambda _start: {"playhead/size": 30_000}, {"reads.page-declared"}),
    ],
)
async def test_what_pages_declare_is_held_against_their_bytes(
    declared: Callable[[int], dict[str, Any]], expected: set[str]
) -> None:
    server = song(lambda start, end: SONG[start:end], declared=declared)
    assert (await of(server, size=len(SONG)))[0] == expected


async def test_other_bytes_of_the_same_version_in_a_second_read_are_a_defect() -> None:
    count = iter(range(10**6))

    def live(start: int, end: int) -> bytes:
        now = next(count)
        return bytes((index + now) % 256 for index in range(start, min(end, 1000)))

    server = song(live, plain=lambda: live(0, 1000), declared=lambda _start: {"playhead/etag": '"1"'})
    assert "reads.page-declared" in (await of(server))[0]


async def test_a_plain_read_that_returns_only_the_first_part_is_not_a_defect() -> None:
    server = song(lambda start, end: SONG[start:end], plain=lambda: SONG[:30_000])
    assert await of(server) == (set(), [])


async def test_metadata_that_is_a_list_does_not_end_the_probe() -> None:
    assert await of(song(lambda start, end: SONG[start:end]), _meta=["playhead/live"]) == (set(), [])


async def test_serialized_reads_are_detected(autojump_clock: trio.testing.MockClock) -> None:
    server = song(lambda start, end: SONG[start:end], seconds=0.3, series=True)
    assert (await of(server))[0] == {"reads.concurrent"}


async def test_slow_reads_that_go_together_are_right(autojump_clock: trio.testing.MockClock) -> None:
    assert (await of(song(lambda start, end: SONG[start:end], seconds=0.3)))[0] == set()


async def test_a_read_that_is_never_answered_is_found(autojump_clock: trio.testing.MockClock) -> None:
    assert "reads.answered" in (await of(song(lambda start, end: SONG[start:end], seconds=1000)))[0]


@pytest.mark.parametrize("link", [{"description": "http://127.0.0.1/song"}, {"_meta": {"x/range": {}}}])
async def test_the_whole_resource_is_a_correct_answer_if_no_range_was_offered(
    link: dict[str, Any],
) -> None:
    async def read(_context: object, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        blob = base64.b64encode(SONG).decode()
        return types.ReadResourceResult(contents=[types.BlobResourceContents(uri=URI, blob=blob)])

    server: Server[Any] = Server("plain", on_read_resource=read)
    assert (await of(server, **link))[0] == set()
