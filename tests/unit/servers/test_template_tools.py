"""The template server's tools, called as a client calls them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from jsonschema import Draft202012Validator

from playhead.content.validation import validate_tool_response
from playhead.servers.template import TemplateServerOptions
from playhead.servers.template.resources import ShippedPages
from playhead.servers.template.serve import all_tools
from playhead.servers.template.tools.knowledge_graph import RELATIONS, KnowledgeGraph
from playhead.servers.template.tools.web_search import ANSWER_BYTES
from tests.servers.raw_origin import RawOrigin, answer, raw_origin
from tests.servers.template import connected

TOOLS = {
    name: tool.definition
    for name, tool in all_tools(ShippedPages.load(), KnowledgeGraph.load(), None).items()
}
EXAMPLES = [(name, example) for name, tool in TOOLS.items() for example in tool.input_schema["examples"]]


def text_of(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


# --- every tool ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_says_all_that_a_model_and_a_checker_want_to_know(name: str) -> None:
    tool = TOOLS[name]
    for schema in (tool.input_schema, tool.output_schema):
        assert schema is not None
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
    for argument, described in tool.input_schema["properties"].items():
        assert described["description"], argument
        assert described["examples"], argument
        for example in described["examples"]:
            Draft202012Validator(described).validate(example)
    assert tool.annotations is not None
    assert tool.annotations.read_only_hint is True
    assert tool.title
    assert tool.description


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_an_example_of_a_schema_is_answered_with_content_that_keeps_to_the_output_schema(
    name: str, example: dict[str, Any], revision: str
) -> None:
    async with connected(revision) as wire:
        result = await wire.call(name, **example)
    assert not result.get("isError")
    # Every version has the data in a text block: a client without structured content misses nothing.
    told = json.loads(result["content"][1]["text"])
    Draft202012Validator(TOOLS[name].output_schema).validate(told)
    assert result.get("structuredContent") == (None if revision == "2024-11-05" else told)
    assert [block["annotations"]["audience"] for block in result["content"]] == [["user"], ["assistant"]]
    assert validate_tool_response(result, revision) == []


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("calculator", {}, "either expression, or operation and a and b"),
        ("calculator", {"expression": "1", "a": 1}, "either expression"),
        ("calculator", {"expression": "1", "operation": "add", "a": 1, "b": 2}, "at most 3"),
        ("calculator", {"expression": 7}, "expression: expected a string, got 7"),
        ("calculator", {"expression": ""}, "at least 1 character, got 0"),
        ("calculator", {"expression": "1" * 501}, "at most 500 characters, got 501"),
        ("calculator", {"operation": "modulo", "a": 1, "b": 2}, "one of add, subtract"),
        ("calculator", {"operation": "add", "a": "1", "b": 2}, "a: expected a number, got '1'"),
        ("calculator", {"operation": "add", "a": True, "b": 2}, "a: expected a number, got True"),
        ("web_search", {}, "'query' is missing"),
        ("web_search", {"query": "x", "max_results": 0}, "at least 1, got 0"),
        ("web_search", {"query": "x", "max_results": 21}, "at most 20, got 21"),
        ("web_search", {"query": "x", "max_results": 1.5}, "an integer, got 1.5"),
        ("web_search", {"query": "x", "limit": 5}, "unknown 'limit'; expected query, max_results"),
        ("document_analyzer", {"text": "a", "uri": "pages://bach"}, "either text, or uri"),
        ("document_analyzer", {"uri": "file:///etc/passwd"}, "expected a match of"),
        ("knowledge_graph", {"entity": None}, "a string, got null"),
        ("knowledge_graph", {"entity": "MP3", "relation": "eats"}, "one of finds"),
    ],
)
async def test_arguments_that_break_the_schema_are_a_tool_error_that_says_what_is_wrong(
    name: str, arguments: dict[str, Any], said: str
) -> None:
    async with connected() as wire:
        result = await wire.call(name, **arguments)
    assert result["isError"] is True
    assert said in text_of(result)


async def test_many_faults_are_told_at_once_but_not_all() -> None:
    wrong = {f"argument{number}": number for number in range(20)} | {"max_results": "x"}
    async with connected() as wire:
        text = text_of(await wire.call("web_search", **wrong))
    assert "max_results: expected an integer" in text
    assert "'query' is missing" in text
    assert len(text) < 500


# --- calculator ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "a", "b", "result"),
    [
        ("add", 0.1, 0.2, 0.3),
        ("subtract", 1, 3, -2),
        ("multiply", 6, 7, 42),
        ("divide", 1, 8, 0.125),
        ("power", 2, 100, 2**100),
    ],
)
async def test_an_operation_works_on_its_two_numbers(
    operation: str, a: float, b: float, result: float
) -> None:
    async with connected() as wire:
        answered = await wire.call("calculator", operation=operation, a=a, b=b)
    assert answered["structuredContent"] == {"result": result}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"operation": "divide", "a": 1, "b": 0}, "division by zero: 1 / 0"),
        ({"operation": "power", "a": 10, "b": 1000}, "too large"),
        ({"operation": "power", "a": -1, "b": 0.5}, "not a real number"),
        ({"expression": "2 +"}, "got the end"),
    ],
)
async def test_what_has_no_result_is_a_tool_error(arguments: dict[str, Any], said: str) -> None:
    async with connected() as wire:
        result = await wire.call("calculator", **arguments)
    assert result["isError"] is True
    assert said in text_of(result)
    assert "structuredContent" not in result


# --- web_search ---------------------------------------------------------------------------------------


async def test_a_search_finds_the_page_about_the_words_first() -> None:
    async with connected() as wire:
        for query, title in [
            ("who was Claude Shannon", "Claude Shannon"),
            ("railway siren", "Doppler effect"),
        ]:
            found = (await wire.call("web_search", query=query))["structuredContent"]["results"]
            assert found[0]["title"] == title


async def test_a_search_gives_at_most_as_many_results_as_asked_for() -> None:
    async with connected() as wire:
        for most in (1, 3, 3.0):
            result = await wire.call("web_search", query="sound", max_results=most)
            assert len(result["structuredContent"]["results"]) == most
        assert len((await wire.call("web_search", query="sound"))["structuredContent"]["results"]) == 5


@pytest.mark.parametrize("query", ["zzzz", "the of and", "!!!", " "])
async def test_a_search_that_finds_nothing_says_so_and_is_no_error(query: str) -> None:
    async with connected() as wire:
        result = await wire.call("web_search", query=query)
    assert not result.get("isError")
    assert result["structuredContent"]["results"] == []
    assert text_of(result) == "Nothing was found."


async def search_through(origin: RawOrigin, query: str = "deep sea", most: int = 2) -> dict[str, Any]:
    options = TemplateServerOptions(
        search_url=origin.url + "/search?format=json&q={query}&n={max_results}",
        search_origins=(origin.url,),
    )
    async with connected(options=options) as wire:
        return await wire.call("web_search", query=query, max_results=most)


async def test_a_real_engine_is_asked_by_its_url_and_its_results_are_given() -> None:
    async def engine(origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
        results = [
            {"title": "A", "url": "https://a.example/", "content": "x" * 1000},
            {"title": "no address", "url": "not a url"},
            {"title": "", "url": "https://b.example/", "content": None},
            {"title": "C", "url": "https://c.example/"},
        ]
        await answer(stream, "200 OK", json.dumps({"results": results}).encode())

    async with raw_origin(engine) as origin:
        result = await search_through(origin, "deep & sea")
        assert b"GET /search?format=json&q=deep%20%26%20sea&n=2 " in origin.heads[0]
    found = result["structuredContent"]["results"]
    assert [each["title"] for each in found] == ["A", "https://b.example/"]
    assert len(found[0]["snippet"]) == 300


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        ("503 Unavailable", b"", "HTTP 503"),
        ("200 OK", b"<html>", "another form"),
        ("200 OK", b'{"results": 5}', "another form"),
        ("200 OK", b'{"results": [5]}', "another form"),
        ("200 OK", b"[" * 100_000, "another form"),
        ("200 OK", b" " * (ANSWER_BYTES + 1), "longer than"),
    ],
)
async def test_an_engine_that_answers_nonsense_is_a_tool_error(status: str, body: bytes, said: str) -> None:
    async def engine(origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
        await answer(stream, status, body)

    async with raw_origin(engine) as origin:
        result = await search_through(origin)
    assert result["isError"] is True
    assert said in text_of(result)


async def test_an_engine_on_a_private_address_is_refused_unless_it_is_allowed() -> None:
    options = TemplateServerOptions(search_url="http://127.0.0.1:1/?q={query}")
    async with connected(options=options) as wire:
        result = await wire.call("web_search", query="x")
    assert result["isError"] is True
    assert "blocked" in text_of(result)


# --- document_analyzer --------------------------------------------------------------------------------


async def test_a_text_is_counted() -> None:
    text = "Sound is a wave. It needs a medium!\n\nA wave of sound, a wave of light?"
    async with connected() as wire:
        facts = (await wire.call("document_analyzer", text=text, max_keywords=2))["structuredContent"]
    assert facts == {
        "characters": len(text),
        "words": 16,
        "sentences": 3,
        "paragraphs": 2,
        "reading_seconds": 4,
        "keywords": [{"word": "wave", "count": 3}, {"word": "sound", "count": 2}],
    }


async def test_a_page_is_analyzed_by_its_uri_and_an_unknown_one_is_a_tool_error() -> None:
    async with connected() as wire:
        facts = (await wire.call("document_analyzer", uri="pages://opus"))["structuredContent"]
        page = (await wire.result("resources/read", {"uri": "pages://opus"}))["contents"][0]["text"]
        assert facts["characters"] == len(page)
        missing = await wire.call("document_analyzer", uri="pages://nothing")
    assert missing["isError"] is True
    assert "resources/list" in text_of(missing)


@pytest.mark.parametrize("text", [" ", "\n\n", "....", "no end", "é" * 100_000])
async def test_odd_texts_are_counted_too(text: str) -> None:
    async with connected() as wire:
        facts = (await wire.call("document_analyzer", text=text))["structuredContent"]
    assert facts["characters"] == len(text)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("." * 99_999 + "x", 1),  # in the square of its length this would take a minute
        ("Wait... what?! Yes.\nOk", 3),
        ("a.b", 1),
    ],
)
async def test_several_marks_end_one_sentence_and_one_in_a_word_ends_none(text: str, sentences: int) -> None:
    async with connected() as wire:
        facts = (await wire.call("document_analyzer", text=text))["structuredContent"]
    assert facts["sentences"] == sentences


# --- knowledge_graph ----------------------------------------------------------------------------------


async def test_an_entity_leads_to_its_neighbours_and_deeper_to_theirs() -> None:
    async with connected() as wire:
        near = (await wire.call("knowledge_graph", entity="claude  SHANNON"))["structuredContent"]
        far = (await wire.call("knowledge_graph", entity="Claude Shannon", depth=2))["structuredContent"]
    assert near["entity"] == "Claude Shannon"
    assert {node["name"] for node in near["entities"]} == {
        "Claude Shannon",
        "Bell Labs",
        "Information theory",
        "Sampling theorem",
    }
    assert "Harry Nyquist" in {node["name"] for node in far["entities"]}
    assert {"name": "Claude Shannon", "kind": "person", "uri": "pages://shannon"} in near["entities"]


async def test_a_relation_lets_only_its_own_edges_through() -> None:
    async with connected() as wire:
        found = await wire.call("knowledge_graph", entity="Claude Shannon", relation="founded", depth=3)
    assert found["structuredContent"]["relations"] == [
        {"source": "Claude Shannon", "relation": "founded", "target": "Information theory"}
    ]


async def test_an_unknown_entity_is_a_tool_error_that_names_the_nearest() -> None:
    async with connected() as wire:
        result = await wire.call("knowledge_graph", entity="Claude Shanon")
    assert result["isError"] is True
    assert text_of(result) == "unknown entity 'Claude Shanon'; the graph has Claude Shannon"


def test_the_graph_and_the_pages_fit_together_and_the_schema_names_every_relation() -> None:
    pages, graph = ShippedPages.load(), KnowledgeGraph.load()
    names = {entity.name for entity in graph.entities}
    assert all(pages.get(entity.page) for entity in graph.entities if entity.page)
    assert all({edge.source, edge.target} <= names for edge in graph.relations)
    assert {edge.relation for edge in graph.relations} == set(RELATIONS)
