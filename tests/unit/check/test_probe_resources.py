"""Resources under check: each defect by its name, and nothing said of servers without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing
from mcp.server.mcpserver import MCPServer

from playhead.check.probes.resources import probe_resources
from tests.unit.check.check_kit import defects, probed, undecided
from tests.unit.raw_server import NEVER, RawServer, Refusal

WAVE = "UklGRiQIAABXQVZFZm10IA=="
NOTE = {"uri": "notes://one", "name": "one", "mimeType": "text/plain", "size": 6}
TEXT = {"uri": "notes://one", "mimeType": "text/plain", "text": "a note"}


def served(
    *resources: Mapping[str, Any],
    contents: object = (TEXT,),
    templates: tuple[Mapping[str, Any], ...] = (),
    answers: Mapping[str, Any] | None = None,
) -> RawServer:
    """A server of `resources`, which all read as `contents`; `answers` replaces some by method."""
    unknown = Refusal(-32002, "Resource not found")
    listed = list(resources or (NOTE,))
    known = {item["uri"] for item in listed if isinstance(item, dict) and isinstance(item.get("uri"), str)}
    result = {"contents": list(contents) if isinstance(contents, tuple) else contents}
    usual: dict[str, Any] = {
        "resources/list": {"resources": listed},
        "resources/templates/list": {"resourceTemplates": list(templates)},
        "resources/read": lambda params: result if params["uri"] in known else unknown,
    }
    return RawServer({**usual, **(answers or {})}, capabilities={"resources": {}})


async def of(server: RawServer) -> set[str]:
    return defects(await probed(server, probe_resources, mode="legacy"))


async def test_nothing_is_found_of_a_server_without_a_defect() -> None:
    tests = await probed(served(), probe_resources, mode="legacy")
    assert (defects(tests), undecided(tests)) == (set(), [])
    assert {check.kind.name for test in tests for check in test.checks} >= {
        "resources.size",
        "resources.contents",
        "resources.error-code",
    }


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_nothing_is_found_of_a_server_on_the_sdk(mode: str) -> None:
    server = MCPServer("notes")

    @server.resource("notes://one")
    def one() -> str:
        return "a note"

    @server.resource("notes://all/{name}")
    def note(name: str) -> str:
        return f"about {name}"

    assert defects(await probed(server, probe_resources, mode=mode)) == set()


async def test_a_server_that_declares_no_resources_is_not_asked() -> None:
    tests = await probed(MCPServer("none"), probe_resources)
    assert all(test.status in ("skipped", "success") for test in tests)


BLOB = {"uri": "notes://one", "blob": "AAEC"}
DEFECTS: dict[str, tuple[RawServer, str]] = {
    "no array": (served(answers={"resources/list": {"resources": {}}}), "resources.list-shape"),
    "listing refused": (
        served(answers={"resources/list": Refusal(-32603, "oops")}),
        "resources.list-answered",
    ),
    "no object": (served(answers={"resources/list": {"resources": [NOTE, 1]}}), "resources.list-shape"),
    "name missing": (served({"uri": "notes://one"}), "resources.list-shape"),
    "negative size": (served({**NOTE, "size": -1}), "resources.list-shape"),
    "twice": (served(NOTE, NOTE), "resources.list-unique"),
    "template": (
        served(templates=({"name": "t", "uriTemplate": "notes://{a"},)),
        "resources.templates-shape",
    ),
    "listed, not there": (
        served(answers={"resources/read": Refusal(-32002, "no")}),
        "resources.read-answered",
    ),
    "no contents": (served(contents={"text": "a"}), "resources.contents"),
    "text and blob": (served(contents=({**TEXT, "blob": "AAEC"},)), "resources.contents"),
    "neither": (served(contents=({"uri": "notes://one"},)), "resources.contents"),
    "no base64": (served(contents=({**BLOB, "blob": "A"},)), "resources.contents"),
    "another uri": (served(contents=({**TEXT, "uri": "notes://two"},)), "resources.contents-uri"),
    "another type": (served(contents=({**TEXT, "mimeType": "text/html"},)), "resources.mime-type"),
    "another size": (served({**NOTE, "size": 7}), "resources.size"),
    "no sound": (
        served({**NOTE, "mimeType": "audio/wav", "size": 16}, contents=({**BLOB, "blob": WAVE},)),
        "audio.decodes",
    ),
    "unknown is empty": (
        served(
            answers={
                "resources/read": lambda params: {"contents": [TEXT] if params["uri"] == NOTE["uri"] else []}
            }
        ),
        "resources.unknown",
    ),
    "unknown code": (
        served(
            answers={
                "resources/read": lambda params: (
                    {"contents": [TEXT]} if params["uri"] == NOTE["uri"] else Refusal(0, "Unknown")
                )
            }
        ),
        "resources.error-code",
    ),
}


@pytest.mark.parametrize(("server", "expected"), DEFECTS.values(), ids=DEFECTS)
async def test_each_defect_is_found_by_its_name_and_nothing_else(server: RawServer, expected: str) -> None:
    assert await of(server) == {expected}


async def test_an_invalid_uri_is_found() -> None:
    assert "resources.list-shape" in await of(served({"uri": "notes://one two", "name": "x"}))


CURSORS: dict[str, tuple[Any, str]] = {
    "the same again": (lambda params: {"resources": [NOTE], "nextCursor": "x"}, "resources.list-ends"),
    "a number": (lambda params: {"resources": [NOTE], "nextCursor": 2}, "resources.list-ends"),
    "never ends": (
        lambda params: {"resources": [NOTE], "nextCursor": params.get("cursor", "") + "x"},
        "resources.list-ends",
    ),
    "any cursor will do": (
        lambda params: {"resources": [NOTE], **({} if params.get("cursor") else {"nextCursor": "x"})},
        "resources.list-unknown-cursor",
    ),
}


@pytest.mark.parametrize(("listing", "expected"), CURSORS.values(), ids=CURSORS)
async def test_a_listing_that_does_not_page_is_found(listing: Any, expected: str) -> None:
    assert expected in await of(served(answers={"resources/list": listing}))


async def test_a_repeated_cursor_ends_the_listing() -> None:
    again = served(answers={"resources/list": lambda params: {"resources": [NOTE], "nextCursor": "x"}})
    listing = (await probed(again, probe_resources, mode="legacy"))[0]
    assert "new cursor on each page" in (listing.error or "")
    assert listing.output is not None
    assert isinstance(listing.output, dict)
    assert listing.output["pages"] == 2


async def test_a_size_that_changes_with_its_resource_is_not_judged() -> None:
    texts = iter(f"line {number}" for number in range(100))
    log = served(answers={"resources/read": lambda params: {"contents": [{**TEXT, "text": next(texts)}]}})
    assert "resources.size" not in await of(log)


async def test_a_text_may_have_been_stored_in_another_encoding() -> None:
    assert await of(served({**NOTE, "size": 9}, contents=({**TEXT, "text": "a note"},))) == set()


async def test_a_read_that_is_never_answered_is_found(autojump_clock: trio.testing.MockClock) -> None:
    server = served(answers={"resources/read": NEVER})
    assert await of(server) == {"resources.read-answered"}
