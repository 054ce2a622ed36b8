"""The values that a checker mines: from answers, errors, definitions, and the working directory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from playhead.check.arguments.mine import Mine
from playhead.check.run import check_server
from tests.unit.check.check_kit import Json, text
from tests.unit.check.talkative import Talkative, planted
from tests.unit.check.test_planted_servers import OPTIONS, quickly  # noqa: F401 - a fixture for all

TEXT: Json = {"type": "string"}


def schema(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


def called(mine: Mine, tool: str, arguments: Json, result: Json) -> None:
    mine.learn("tools/call", {"name": tool, "arguments": arguments}, result)


def offered(mine: Mine, tool: str, properties: Json) -> list[Json]:
    """The arguments that are offered for a tool whose parameters are all "example"."""
    cases = mine.cases_for(tool, schema(**properties), dict.fromkeys(properties, "example"))
    return [case.case.arguments for case in cases]


@pytest.mark.parametrize(
    ("words", "name", "values"),
    [
        ("Invalid unit 'example'. Allowed units: celsius, kelvin", "unit", ["celsius", "kelvin"]),
        ("Unknown operation: example. It must be 'list' or 'get'", "operation", ["list", "get"]),
        ("expected A1 notation for the cell, such as `B2`", "cell", ["B2"]),
        ("'example' does not work here, try one of ('a1', 'a2')", "place", ["a1", "a2"]),
        ("must point to a picture (.png, .jpg)", "picture", ["example.png", "example.jpg"]),
        ("the unit is wrong", "unit", []),
    ],
)
def test_an_error_offers_values_for_the_parameter_that_it_is_about(
    words: str, name: str, values: list[str]
) -> None:
    mine = Mine()
    called(mine, "measure", {name: "example", "other": "12"}, text(words, isError=True))
    assert [value.value for value in mine.values_for(name)] == values
    assert mine.values_for("other") == []


def test_an_error_that_is_not_marked_names_nothing() -> None:
    mine = Mine()
    called(mine, "get_item", {}, text('{"error": "no such item", "item_id": "old-1"}'))
    assert mine.values_for("item_id") == []


def test_what_a_tool_has_created_is_offered_to_others() -> None:
    mine = Mine()
    called(mine, "create_note", {"title": "first", "content": "text"}, text("created"))
    called(mine, "create_note", {"title": "second", "content": "text"}, text("created"))
    assert offered(mine, "read_note", {"title": TEXT}) == [{"title": "first"}]
    called(mine, "find_note", {"title": "other"}, text("nothing"))
    assert offered(mine, "read_note", {"title": TEXT}) == [{"title": "first"}]


def test_ids_of_one_answer_are_offered_together() -> None:
    mine = Mine()
    called(mine, "list_requests", {}, text(json.dumps([{"request_id": "r-0"}])))
    called(mine, "plan", {}, text(json.dumps({"request_id": "r-1", "tasks": [{"task_id": "t-1"}]})))
    assert {"request_id": "r-1", "task_id": "t-1"} in offered(
        mine, "finish", {"request_id": TEXT, "task_id": TEXT}
    )


def test_a_definition_names_values_for_the_same_parameter_of_other_tools() -> None:
    mine = Mine()
    described = {"type": "string", "description": "A range of cells, e.g. 'A1:D20'."}
    tools = [{"name": "read", "inputSchema": schema(range=described, mode={"default": "all"})}]
    mine.learn("tools/list", {}, {"tools": tools})
    assert offered(mine, "clear", {"range": TEXT, "mode": TEXT})[0] == {"range": "A1:D20", "mode": "all"}


def test_a_path_whose_name_was_sent_proves_nothing() -> None:
    mine = Mine()
    called(mine, "stat", {"path": "example"}, text("ENOENT: /srv/data/example", isError=True))
    called(mine, "stat", {"path": "example"}, text("ENOENT: /srv/data/example. Try /srv/data", isError=True))
    assert [value.value for value in mine.values_for("path")] == ["/srv/data"]


def test_new_paths_are_in_the_working_directory_and_have_the_names_of_examples() -> None:
    mine = Mine(directory="/shelf", files=["/shelf/a.txt"], directories=["/shelf/repository"])
    error = "Path 'example' must be absolute, e.g. 'C:\\Reports\\q1.xlsx' or '/home/me/q1.xlsx'"
    called(mine, "create_book", {"path": "example"}, text(error, isError=True))
    assert offered(mine, "create_book", {"path": TEXT})[0] == {"path": "/shelf/q1.xlsx"}
    assert offered(mine, "read_book", {"path": TEXT})[0] == {"path": "/shelf/a.txt"}
    called(mine, "create_book", {"path": "/shelf/q1.xlsx"}, text("created"))
    assert offered(mine, "read_book", {"path": TEXT})[0] == {"path": "/shelf/q1.xlsx"}
    assert offered(mine, "list_files", {"directory": TEXT})[0] == {"directory": "/shelf"}
    about = {"type": "string", "description": "The repository to work in"}
    assert offered(mine, "log", {"path": about})[1] == {"path": "/shelf/repository"}


def test_without_permission_there_are_no_paths_of_the_working_directory() -> None:
    assert offered(Mine(), "create_book", {"path": TEXT}) == []


async def test_a_tool_that_needs_what_a_later_one_creates_is_proven_and_a_vain_search_is_one_test() -> None:
    def change(server: Talkative) -> None:
        books: set[str] = set()

        def create(arguments: Json) -> Any:
            if arguments["unit"] != "page":
                return text("unknown unit; it must be 'page'", isError=True)
            books.add(arguments["book_name"])
            return text("created")

        def count(arguments: Json) -> Any:
            return text(
                "7" if arguments["book_name"] in books else "no such book",
                isError=arguments["book_name"] not in books,
            )

        server.tools = {
            "count_pages": ({"inputSchema": schema(book_name=TEXT)}, count),
            "create_book": ({"inputSchema": schema(book_name=TEXT, unit=TEXT)}, create),
            "find_color": (
                {"inputSchema": schema(color={"type": "string", "description": "e.g. 'red' or others"})},
                lambda _: text("unknown color; it must be 'blue' or 'green'", isError=True),
            ),
        }

    report = await check_server(planted(change), OPTIONS)
    assert report.proven == ("count_pages", "create_book")
    vain = [test for test in report.tests if test.tool == "find_color" and "mined" in test.title]
    assert [test.status for test in vain] == ["error"]
    assert (vain[0].error or "").startswith("3 calls with mined values proved nothing, the last one: ")
