"""Prompts under check: each defect by its name, and nothing said of servers without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from playhead.check.probes.prompts import probe_prompts
from tests.unit.check.check_kit import defects, probed, undecided
from tests.unit.raw_server import RawServer, Refusal

GREET = {"name": "greet", "arguments": [{"name": "who", "required": True}, {"name": "how"}]}
HELLO = {"role": "user", "content": {"type": "text", "text": "hello"}}


def served(*prompts: object, message: object = HELLO, version: str = "2025-11-25", **more: Any) -> RawServer:
    """A server of `prompts`, each of which is `message`; `more` replaces what it answers."""

    def get(params: Mapping[str, Any]) -> object:
        if params["name"] != "greet":
            return more.get("unknown", Refusal(-32602, "no such prompt"))
        if "who" not in (params.get("arguments") or {}):
            return more.get("missing", Refusal(-32602, "who is missing"))
        return more.get("result", {"messages": [message]})

    return RawServer(
        {"prompts/list": more.get("listing", {"prompts": list(prompts or (GREET,))}), "prompts/get": get},
        capabilities={"prompts": {}},
        version=version,
    )


async def of(server: RawServer) -> set[str]:
    return defects(await probed(server, probe_prompts, mode="legacy"))


async def test_nothing_is_found_of_a_server_without_a_defect() -> None:
    tests = await probed(served(), probe_prompts, mode="legacy")
    assert (defects(tests), undecided(tests)) == (set(), [])
    assert [test.title for test in tests if test.subject == "prompt greet"] == [
        "completion of who",
        "the required arguments",
        "all arguments",
        "without the required who",
    ]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_nothing_is_found_of_a_server_on_the_sdk(mode: str) -> None:
    server = MCPServer("band")

    @server.prompt()
    def introduce(who: str) -> str:
        return f"Introduce {who}."

    tests = await probed(server, probe_prompts, mode=mode)
    assert {test.subject for test in tests} >= {"prompt introduce"}
    assert defects(tests) <= {
        "prompts.error-code"
    }  # the SDK answers a missing argument with a code of its own


DEFECTS: dict[str, tuple[RawServer, str]] = {
    "no array": (served(listing={"prompts": None}), "prompts.list-shape"),
    "no name": (served(GREET, {"title": "x"}), "prompts.list-shape"),
    "required is a string": (
        served({**GREET, "arguments": [{"name": "who", "required": True}, {"name": "b", "required": "no"}]}),
        "prompts.list-shape",
    ),
    "twice": (served(GREET, GREET), "prompts.list-unique"),
    "declared, not there": (served(listing=Refusal(-32601, "unknown method")), "prompts.list-answered"),
    "no messages": (served(result={"text": "hello"}), "prompts.messages"),
    "no role": (served(message={"content": HELLO["content"]}), "prompts.messages"),
    "a system role": (served(message={**HELLO, "role": "system"}), "prompts.messages"),
    "several blocks": (served(message={**HELLO, "content": [HELLO["content"]]}), "prompts.messages"),
    "a string for a block": (served(message={**HELLO, "content": "hello"}), "prompts.messages"),
    "an unknown block": (served(message={**HELLO, "content": {"type": "x"}}), "prompts.messages"),
    "an unknown prompt": (served(unknown={"messages": []}), "prompts.unknown"),
    "an unknown prompt's code": (served(unknown=Refusal(-32603, "oops")), "prompts.error-code"),
    "a missing argument": (served(missing={"messages": [HELLO]}), "prompts.missing-argument"),
    "a missing argument's code": (served(missing=Refusal(0, "oops")), "prompts.error-code"),
}


@pytest.mark.parametrize(("server", "expected"), DEFECTS.values(), ids=DEFECTS)
async def test_each_defect_is_found_by_its_name_and_nothing_else(server: RawServer, expected: str) -> None:
    assert await of(server) == {expected}


async def test_an_error_to_generated_arguments_proves_nothing() -> None:
    tests = await probed(served(result=Refusal(-32603, "nobody is called so")), probe_prompts, mode="legacy")
    assert defects(tests) == set()
    assert all("nobody is called so" in why for why in undecided(tests))
    assert len(undecided(tests)) == 2


@pytest.mark.parametrize(
    ("version", "expected"), [("2024-11-05", set()), ("2025-11-25", {"prompts.error-code"})]
)
async def test_a_code_of_its_own_for_an_unknown_prompt_is_right_in_the_oldest_revision_only(
    version: str, expected: set[str]
) -> None:
    assert await of(served(unknown=Refusal(-32004, "prompt not found"), version=version)) == expected
