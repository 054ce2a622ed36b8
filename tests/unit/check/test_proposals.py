"""Arguments that a model proposes: what it is sent, what is called, and replies that are of no use."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from playhead.check.expectations import PROPOSED, draft_expectations, read_expectations
from playhead.check.options import CheckOptions, Mining
from playhead.check.probes.proposals import TOOLS_PER_REQUEST, probe_proposals
from playhead.check.results import Report
from playhead.check.run import check_server
from playhead.config.servers import ServerConfig
from playhead.errors import ModelError
from tests.unit.check.check_kit import target_for

READS = ToolAnnotations(read_only_hint=True)


class Model:
    """A model that replies with `reply`, and notes the messages."""

    def __init__(self, reply: object) -> None:
        self.reply = reply
        self.messages: list[str] = []

    async def ask(self, system: str, message: str) -> str:
        self.messages.append(message)
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply if isinstance(self.reply, str) else json.dumps(self.reply)


def lookup(annotations: ToolAnnotations | None, *names: str) -> tuple[MCPServer, list[str]]:
    """A server with tools that know one word only, and the words with which they are called."""
    server: MCPServer = MCPServer("lookup", log_level="CRITICAL")
    words: list[str] = []

    def tool() -> Callable[..., str]:
        def call(word: str) -> str:
            words.append(word)
            if word != "playhead":
                raise ValueError("unknown word")
            return "found"

        return call

    for name in names or ("lookup",):
        server.tool(name=name, annotations=annotations)(tool())
    return server, words


async def checked(server: MCPServer, model: Model, mine: Mining = "read-only", **options: Any) -> Report:
    return await check_server(
        server, CheckOptions(depth="full", examples=0, mine=mine, **options), ask_model=model.ask
    )


GOOD = {"lookup": [{"word": "playhead"}]}


@pytest.mark.parametrize(
    ("annotations", "mine", "called"),
    [
        (READS, "read-only", True),
        (None, "read-only", False),
        (None, "all", True),
        (READS, "none", False),
        (ToolAnnotations(destructive_hint=True), "all", False),
    ],
)
async def test_only_tools_that_may_get_real_values_are_called(
    annotations: ToolAnnotations | None, mine: Mining, called: bool
) -> None:
    server, words = lookup(annotations)
    # Hints that every tool has count as defaults.
    server.tool(name="other", annotations=ToolAnnotations(read_only_hint=False))(lambda: "x")
    report = await checked(server, Model(GOOD), mine)
    assert ("playhead" in words) is called
    assert ("lookup" in report.proven) is called
    draft = draft_expectations(report)
    assert ('# arguments = {word = "playhead"}' in draft) is not called, "proposed in any case"
    assert ('\narguments = {word = "playhead"}' in draft) is called
    if called:
        expectations = read_expectations(tomllib.loads(draft), where="draft")
        options = CheckOptions(depth="full", examples=0, expectations=expectations)
        again = await check_server(server, options)
        assert "lookup" in again.proven, "without the model"


async def test_a_proposal_that_the_schema_forbids_is_not_called_and_not_drafted() -> None:
    server, words = lookup(READS)
    report = await checked(server, Model({"lookup": [{"word": 7}, {"nonsense": "playhead"}, "playhead"]}))
    assert "playhead" not in words
    reasons = [test.error or "" for test in report.tests if test.title == PROPOSED]
    assert [reason.partition(":")[0] for reason in reasons] == [
        "the arguments do not fit the inputSchema"
    ] * 2
    assert "playhead" not in draft_expectations(report)


@pytest.mark.parametrize("reply", ["I can't.", "", "{", "[" * 9_000, '{"lookup": [{"word": NaN'])
async def test_a_reply_without_a_json_object_is_a_remark(reply: str) -> None:
    report = await checked(lookup(READS)[0], Model(reply))
    assert f"expected a JSON object of arguments from the model, got {reply[:100]!r}" in report.remarks


@pytest.mark.parametrize("reply", [{}, {"other": []}, {"lookup": None}, {"lookup": {"word": "playhead"}}])
async def test_a_reply_without_calls_of_the_tool_changes_nothing(reply: object) -> None:
    server, words = lookup(READS)
    report = await checked(server, Model(reply))
    assert "playhead" not in words
    assert "the model proposed arguments for 0 of 1 tools that take any" in report.remarks


async def test_a_model_that_refuses_is_not_asked_again() -> None:
    model = Model(ModelError("no credit", provider="openai"))
    server, words = lookup(READS, *(f"t{number}" for number in range(2 * TOOLS_PER_REQUEST)))
    report = await checked(server, model)
    assert len(model.messages) == 1
    assert "the model failed and was not asked again: no credit" in report.remarks
    assert words, "the check goes on"


async def test_many_tools_are_several_requests_and_a_tool_without_arguments_is_in_none() -> None:
    names = [f"t{number}" for number in range(TOOLS_PER_REQUEST + 1)]
    server, _ = lookup(READS, *names)
    server.tool(name="plain")(lambda: "x")
    server.tool(name="long", description="x" * 50_000)(lambda word: "x")
    model = Model({})
    await checked(server, model)
    sent = [[json.loads(line)["name"] for line in message.splitlines()] for message in model.messages]
    assert sent == [names[:-1], names[-1:]]


async def test_a_tool_that_the_servers_file_forbids_is_not_sent() -> None:
    config = ServerConfig(name="x", command=("x",), allowed_tools=("b",))
    async with target_for(lookup(READS, "a", "b")[0]) as target:
        target.server = config
        model = Model({})
        await probe_proposals(target, ask_model=model.ask)
    assert [json.loads(message)["name"] for message in model.messages] == ["b"]


async def test_a_quick_check_asks_no_model() -> None:
    model = Model(GOOD)
    await check_server(lookup(READS)[0], CheckOptions(), ask_model=model.ask)
    assert model.messages == []
