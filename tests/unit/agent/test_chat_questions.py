"""Questions at the terminal: what hostile forms can't do, what is typed wrongly, and who may be asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio

from playhead.agent.approvals import ApprovalRequest
from playhead.agent.commands.chat import is_readable
from playhead.agent.commands.chat_questions import Questions
from playhead.cli.terminal import Terminal
from playhead.client.session.elicitation import Question, Reply, with_defaults
from playhead.net_guard import is_loopback

Capture = pytest.CaptureFixture[str]


def asking(*typed: str | None) -> Questions:
    """Questions to a person who types these lines, and ends the input then."""
    left = list(typed)

    async def read() -> str | None:
        await trio.lowlevel.checkpoint()
        return left.pop(0) if left else None

    return Questions(Terminal(json_output=False), read)


async def answered(fields: Mapping[str, Any], *typed: str | None, required: tuple[str, ...] = ()) -> Reply:
    question = Question(server="s", message="m", fields=fields, required=frozenset(required))
    reply = await asking(*typed).elicit(question)
    with_defaults(reply, question)  # raises where it would end the server
    return reply


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, ["jazz"], "jazz"),
        ({"type": "integer"}, ["x", "1.5", "7"], 7),
        ({"type": "number"}, ["nan", "inf", "1e999", "1.5"], 1.5),
        ({"type": "boolean"}, ["perhaps", "N"], False),
        ({"enum": ["a", "b"]}, ["c", "b"], "b"),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, ["A", "a"], "a"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, ["a, c", "a, b"], ["a", "b"]),
        ({"type": "array"}, ["x,y"], ["x", "y"]),
        ({"type": ["odd"], "enum": 5, "oneOf": [3, {}], "items": 7, "title": {}}, ["it"], "it"),
    ],
)
async def test_a_field_is_asked_for_until_it_fits(schema: Any, typed: list[str], value: Any) -> None:
    reply = await answered({"f": schema}, "y", *typed, required=("f",))
    assert reply == Reply(action="accept", content={"f": value})


async def test_an_empty_line_leaves_a_field_to_its_default_or_out() -> None:
    fields = {"a": {"default": 3}, "b": {"type": "string"}, "c": {"type": "string"}}
    reply = await answered(fields, "y", "", "", "", "x", required=("a", "c"))
    assert reply == Reply(action="accept", content={"c": "x"})


@pytest.mark.parametrize(
    ("typed", "action"),
    [(["n"], "decline"), ([""], "decline"), ([None], "cancel"), (["y", None], "cancel")],
)
async def test_what_is_no_yes_sends_nothing(typed: list[str | None], action: str) -> None:
    reply = await answered({"f": {"type": "string"}}, *typed, required=("f",))
    assert (reply.action, reply.content) == (action, {})


async def test_a_required_field_without_a_form_can_not_be_accepted() -> None:
    assert (await answered({}, "y", required=("ghost",))).action == "cancel"
    assert (await answered({"f": {"default": {}}}, "y", None, required=("f",))).action == "cancel"


async def test_a_page_that_is_no_web_page_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    for url, action in (("file:///etc/passwd", "decline"), ("https://example.com/x", "accept")):
        reply = await asking("y").elicit(Question(server="s", message="m", url=url))
        assert reply.action == action
    assert (await asking("").elicit(Question(server="s", message="m", url="https://b"))).action == "decline"
    assert opened == ["https://example.com/x"]


@pytest.mark.parametrize(
    ("typed", "allow", "scope"),
    [
        ("y", True, "once"),
        ("A", True, "conversation"),
        ("n", False, "once"),
        ("", False, "once"),
        (None, False, "once"),
    ],
)
async def test_only_a_yes_allows_a_call(typed: str | None, allow: bool, scope: str, capsys: Capture) -> None:
    hostile = ApprovalRequest(server="s\x1b[1m", tool="t\n", description=None, arguments={"k\x07": "\u202e"})
    approval = await asking(typed).approve(hostile)
    assert (approval.allow, approval.scope) == (allow, scope)
    shown = capsys.readouterr().err
    assert not set(shown) & set("\x1b\x07\u202e")
    assert "s\\x1b[1m.t\\n wants to run" in shown


@pytest.mark.parametrize(
    ("url", "is_it"),
    [
        ("http://localhost:11434/v1", True),
        ("http://api.localhost/v1", True),
        ("http://127.9.9.9/v1", True),
        ("http://[::1]:80/v1", True),
        ("http://localhost.example.com/v1", False),
        ("http://127.0.0.1.example.com/v1", False),
        ("http://127.0.0.1@example.com/v1", False),
        ("http://[bad/v1", False),
        ("http://10.0.0.1/v1", False),
    ],
)
def test_only_this_machine_goes_without_a_key(url: str, is_it: bool) -> None:
    assert is_loopback(url) is is_it
    assert is_readable(url) is not is_it
