"""Approvals: nothing runs that no rule and no approval for exactly this call allows."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import Tool, ToolAnnotations

from playhead.agent.approvals import (
    DECLINED,
    FORBIDDEN,
    NOBODY,
    Allowed,
    Approval,
    ApprovalLedger,
    ApprovalPolicy,
    ApprovalRequest,
    ApprovalRule,
    Approvals,
    Denied,
    ToolHints,
    request_for,
)
from playhead.client.hub.catalog import HubTool
from playhead.config.tools import ToolConfigs, load_approval_policy, load_tool_configs
from playhead.config.tools.call_key import allowing_rule, call_key
from playhead.errors import ConfigError, UsageError

ASK = ApprovalPolicy(default="ask")
REQUEST = ApprovalRequest(
    server="files", tool="delete", description="Deletes.", arguments={"path": "a", "n": 1}
)
DESTRUCTIVE = replace(REQUEST, hints=ToolHints(destructive=True))


def nobody(request: ApprovalRequest) -> str:
    return NOBODY.format(remedy=allowing_rule(request.server, request.tool))


class Asked:
    """Answers in order, and what was asked."""

    def __init__(self, *answers: Approval | BaseException) -> None:
        self.answers = list(answers)
        self.requests: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> Approval:
        self.requests.append(request)
        await trio.lowlevel.checkpoint()
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


YES, NO = Approval(allow=True), Approval(allow=False)
ALWAYS, NEVER = Approval(allow=True, scope="conversation"), Approval(allow=False, scope="conversation")


# --- rules -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "server", "tool", "held"),
    [
        (ApprovalRule(action="deny", server="files"), "files", "delete", True),
        (ApprovalRule(action="deny", server="files"), "Files", "delete", False),
        (ApprovalRule(action="deny", server="f*"), "files", "delete", True),
        (ApprovalRule(action="deny", tool="de?ete"), "any", "delete", True),
        (ApprovalRule(action="deny", tool="delete?"), "any", "delete", False),
        (ApprovalRule(action="deny", server="a", tool="b__c"), "a__b", "c", False),
        (ApprovalRule(action="deny", server="my[x]"), "my[x]", "t", True),
        (ApprovalRule(action="deny", server="my[x]"), "myx", "t", False),
        (ApprovalRule(action="deny", tool="*"), "any", "two\nlines", True),
    ],
)
def test_a_rule_holds_for_the_two_names_apart(rule: ApprovalRule, server: str, tool: str, held: bool) -> None:
    policy = ApprovalPolicy(rules=(rule,))
    assert (policy.action(server, tool, destructive=False) == "deny") is held


def test_the_first_rule_that_fits_decides() -> None:
    allow, deny = ApprovalRule(action="allow", tool="read"), ApprovalRule(action="deny", server="files")
    assert ApprovalPolicy(rules=(allow, deny)).action("files", "read", destructive=False) == "allow"
    assert ApprovalPolicy(rules=(deny, allow)).action("files", "read", destructive=False) == "deny"


@pytest.mark.parametrize(
    ("default", "held"), [("allow", "ask"), ("ask", "ask"), ("deny", "deny")], ids=["allow", "ask", "deny"]
)
def test_a_destructive_hint_only_makes_the_default_stricter(default: Any, held: str) -> None:
    assert ApprovalPolicy(default=default).action("s", "t", destructive=True) == held
    assert ApprovalPolicy(default=default).action("s", "t", destructive=False) == default


async def test_a_tool_that_says_it_destroys_is_asked_about_unless_a_rule_names_it() -> None:
    assert await Approvals().check(REQUEST) == Allowed(by="rule")
    assert await Approvals().check(DESTRUCTIVE) == Denied(reason=nobody(DESTRUCTIVE))
    named = ApprovalPolicy(rules=(ApprovalRule(action="allow", server="files", tool="delete"),))
    assert await Approvals(named).check(DESTRUCTIVE) == Allowed(by="rule")


async def test_a_rule_that_denies_is_not_lifted_by_an_approval() -> None:
    asked = Asked(YES)
    approvals = Approvals(ApprovalPolicy(default="deny"), ask=asked)
    approvals.grant("files", "delete", REQUEST.arguments, ALWAYS)
    assert await approvals.check(REQUEST) == Denied(reason=FORBIDDEN)
    assert asked.requests == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: ApprovalRule(action="maybe"),  # type: ignore[arg-type]
        lambda: ApprovalRule(action="allow", server=""),
        lambda: ApprovalPolicy(default="yes"),  # type: ignore[arg-type]
        lambda: Approval(allow=True, expires_seconds=0),
        lambda: Approval(allow=True, expires_seconds=float("nan")),
        lambda: Approval(allow=True, scope="ever"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_rule_or_answer_is_refused_where_it_is_made(make: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match="expected"):
        make()


# --- asking ------------------------------------------------------------------------------------------


async def test_a_single_use_lets_one_call_run() -> None:
    asked = Asked(YES, NO)
    approvals = Approvals(ASK, ask=asked)
    assert await approvals.check(REQUEST) == Allowed(by="approval")
    assert await approvals.check(REQUEST) == Denied(reason=DECLINED)
    assert len(asked.requests) == 2


@pytest.mark.parametrize("answer", [ALWAYS, NEVER])
async def test_an_answer_for_the_conversation_is_not_asked_for_again(answer: Approval) -> None:
    asked = Asked(answer)
    approvals = Approvals(ASK, ask=asked)
    verdicts = [await approvals.check(REQUEST) for _ in range(3)]
    assert {type(verdict) for verdict in verdicts} == {Allowed if answer.allow else Denied}
    assert len(asked.requests) == 1


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, server="file"),
        replace(REQUEST, tool="deletes"),
        replace(REQUEST, arguments={"path": "a", "n": 1.0}),
        replace(REQUEST, arguments={"path": "a", "n": True}),
        replace(REQUEST, arguments={"path": "a"}),
        replace(REQUEST, arguments={"path": "a", "n": 1, "more": None}),
        replace(REQUEST, server="filesd", tool="elete"),
    ],
)
async def test_an_approval_is_for_no_other_call(other: ApprovalRequest) -> None:
    approvals = Approvals(ASK, ask=Asked(ALWAYS))
    await approvals.check(REQUEST)
    assert await approvals.check(REQUEST) == Allowed(by="approval")
    assert isinstance(await approvals.check(other), Denied)


def test_the_key_knows_neither_order_nor_kind_of_mapping() -> None:
    one = call_key("s", "t", {"a": 1, "b": {"x": 1, "y": [2]}})
    assert one == call_key("s", "t", MappingProxyType({"b": MappingProxyType({"y": [2], "x": 1}), "a": 1}))
    assert call_key("s", "t", {"a": "\ud800"}) != call_key("s", "t", {"a": "?"})


@pytest.mark.parametrize("wrong", [{"a": object()}, {"a": b"x"}, {1: 1, "a": 2}])
async def test_arguments_that_are_no_json_are_denied(wrong: Any) -> None:
    with pytest.raises(UsageError, match="expected JSON"):
        call_key("s", "t", wrong)
    asked = Asked(YES)
    verdict = await Approvals(ASK, ask=asked).check(replace(REQUEST, arguments=wrong))
    assert isinstance(verdict, Denied)
    assert asked.requests == []


async def test_arguments_nested_too_deeply_are_denied() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert isinstance(await Approvals(ASK, ask=Asked(YES)).check(replace(REQUEST, arguments=deep)), Denied)


async def test_what_asking_raises_denies_and_is_not_told_to_the_model() -> None:
    fault = ValueError("token hunter2")
    verdict = await Approvals(ASK, ask=Asked(fault)).check(REQUEST)
    assert isinstance(verdict, Denied)
    assert verdict.error is fault
    assert "hunter2" not in verdict.reason


@pytest.mark.parametrize("answer", [True, None, "yes", {"allow": True}, Approval(allow="no")])  # type: ignore[arg-type]
async def test_an_answer_that_is_not_plainly_yes_denies(answer: Any) -> None:
    assert isinstance(await Approvals(ASK, ask=Asked(answer)).check(REQUEST), Denied)


async def test_asking_without_anybody_denies() -> None:
    assert await Approvals(ASK).check(REQUEST) == Denied(reason=nobody(REQUEST))


async def test_the_callback_gets_a_copy_of_the_arguments() -> None:
    arguments = {"path": "a", "in": {"x": 1}}

    async def meddle(request: ApprovalRequest) -> Approval:
        await trio.lowlevel.checkpoint()
        request.arguments["in"]["x"] = 2
        return YES

    await Approvals(ASK, ask=meddle).check(replace(REQUEST, arguments=arguments))
    assert arguments == {"path": "a", "in": {"x": 1}}


async def test_who_waits_is_told_before_the_question_and_only_then() -> None:
    order: list[str] = []

    async def pending() -> None:
        await trio.lowlevel.checkpoint()
        order.append("pending")

    async def ask(request: ApprovalRequest) -> Approval:
        await trio.lowlevel.checkpoint()
        order.append("ask")
        return ALWAYS

    approvals = Approvals(ASK, ask=ask)
    await approvals.check(REQUEST, on_pending=pending)
    await approvals.check(REQUEST, on_pending=pending)
    assert order == ["pending", "ask"]


async def test_a_cancelled_question_allows_nothing_and_the_next_is_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reached, verdicts, count = trio.Event(), [], 0

    async def ask(request: ApprovalRequest) -> Approval:
        nonlocal count
        count += 1
        if count == 1:
            reached.set()
            await trio.sleep_forever()
        return NO

    approvals = Approvals(ASK, ask=ask)

    async def check() -> None:
        verdicts.append(await approvals.check(REQUEST))

    async with trio.open_nursery() as outer, trio.open_nursery() as inner:
        inner.start_soon(check)
        await reached.wait()
        outer.start_soon(check)
        await trio.testing.wait_all_tasks_blocked()
        inner.cancel_scope.cancel()
    assert verdicts == [Denied(reason=DECLINED)]
    assert count == 2


@pytest.mark.parametrize(("answer", "questions"), [(YES, 2), (ALWAYS, 1), (NEVER, 1)])
async def test_two_parallel_calls_alike_are_asked_about_in_turn(answer: Approval, questions: int) -> None:
    at_once = most = 0
    asked = Asked(answer, answer)

    async def ask(request: ApprovalRequest) -> Approval:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        given = await asked(request)
        at_once -= 1
        return given

    approvals = Approvals(ASK, ask=ask)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(approvals.check, REQUEST)
        nursery.start_soon(approvals.check, REQUEST)
    assert (len(asked.requests), most) == (questions, 1)


async def test_one_granted_single_use_serves_one_of_two_parallel_calls() -> None:
    approvals = Approvals(ASK)
    approvals.grant("files", "delete", REQUEST.arguments, YES)
    verdicts: list[object] = []

    async def check() -> None:
        verdicts.append(await approvals.check(REQUEST))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(check)
        nursery.start_soon(check)
    assert sorted(type(verdict).__name__ for verdict in verdicts) == ["Allowed", "Denied"]


@pytest.mark.parametrize("answer", [YES, ALWAYS])
async def test_an_approval_ends_with_its_time(mock_clock: trio.testing.MockClock, answer: Approval) -> None:
    approvals = Approvals(ASK)
    for seconds, held in ((9.999, Allowed(by="approval")), (10, Denied(reason=nobody(REQUEST)))):
        approvals.grant("files", "delete", REQUEST.arguments, replace(answer, expires_seconds=10))
        mock_clock.jump(seconds)
        assert await approvals.check(REQUEST) == held


def test_a_later_answer_takes_back_an_earlier_one() -> None:
    key = call_key("s", "t", {})
    ledger = ApprovalLedger()
    for first, second, held in (
        (YES, NEVER, False),
        (ALWAYS, NEVER, False),
        (NEVER, YES, True),
        (ALWAYS, NO, None),
    ):
        ledger.grant(key, first, now=0)
        ledger.grant(key, second, now=0)
        assert ledger.take(key, now=0) is held


def test_a_request_holds_what_the_server_says_and_no_more() -> None:
    def hub_tool(annotations: ToolAnnotations | None) -> HubTool:
        return HubTool(
            model_name="files__delete",
            tool_id="files__delete",
            server="files",
            tool=Tool(name="delete", input_schema={"type": "object"}, annotations=annotations),
            annotations=annotations,
            description="Deletes.",
            resolution=ToolConfigs().resolve("files", "delete"),
        )

    assert request_for(hub_tool(None), {}).hints == ToolHints()
    said = request_for(hub_tool(ToolAnnotations(destructive_hint=True, read_only_hint=False)), {})
    assert (said.server, said.tool) == ("files", "delete")
    assert said.hints == ToolHints(destructive=True, read_only=False)


async def test_a_call_without_an_approval_is_refused_with_the_rule_that_allows_it() -> None:
    odd = replace(REQUEST, server='my "files"')
    verdict = await Approvals(ASK).check(odd)
    assert isinstance(verdict, Denied)
    rule = verdict.reason[verdict.reason.index("{") : verdict.reason.index("}") + 1]
    written = tomllib.loads(f"rules = [{rule}]")["rules"]
    assert written == [{"server": 'my "files"', "tool": "delete", "action": "allow"}]
    policy = replace(ASK, rules=(ApprovalRule(**written[0]),))
    assert await Approvals(policy).check(odd) == Allowed(by="rule")


async def test_the_remedy_may_be_the_callers() -> None:
    refused = await Approvals(ASK, remedy=lambda request: f"ring for {request.tool}").check(REQUEST)
    assert refused == Denied(reason=NOBODY.format(remedy="ring for delete"))


@pytest.mark.parametrize(
    ("policy", "held"),
    [
        (ApprovalPolicy(), "allow"),
        (ASK, "allow"),
        (ApprovalPolicy().tightened(ASK), "allow"),
        (ApprovalPolicy(rules=(ApprovalRule(action="ask", server="files"),)), "allow"),
        (ApprovalPolicy(rules=(ApprovalRule(action="deny", server="files"),)), "deny"),
        (ApprovalPolicy(default="deny"), "deny"),
    ],
)
def test_what_is_approved_for_one_run_is_not_asked_about_and_stays_denied(
    policy: ApprovalPolicy, held: str
) -> None:
    approved = replace(policy, approved=(ApprovalRule(action="allow", server="files", tool="del*"),))
    assert approved.action("files", "delete", destructive=True) == held
    assert approved.action("files", "wipe", destructive=True) == policy.action(
        "files", "wipe", destructive=True
    )


def test_only_rules_that_allow_can_approve() -> None:
    with pytest.raises(ConfigError, match="expected rules that allow, got 'deny'"):
        ApprovalPolicy(approved=(ApprovalRule(action="deny"),))


# --- nothing runs that nothing allows ----------------------------------------------------------------

NAMES = st.sampled_from(["a", "ab", "a__b", "b", "*", "[a]"])
PATTERNS = st.sampled_from(["a", "ab", "a*", "?", "*", "[a]", "*b"])
ANSWERS = st.builds(
    Approval,
    allow=st.booleans(),
    scope=st.sampled_from(["once", "conversation"]),
    expires_seconds=st.none() | st.sampled_from([1.0, 3.0, 10.0]),
)
CALLS = st.tuples(NAMES, NAMES, st.sampled_from([{}, {"x": 1}, {"x": 1.0}]))
POLICIES = st.builds(
    ApprovalPolicy,
    rules=st.lists(
        st.builds(
            ApprovalRule,
            action=st.sampled_from(["allow", "ask", "deny"]),
            server=PATTERNS,
            tool=PATTERNS,
        ),
        max_size=4,
    ).map(tuple),
    default=st.sampled_from(["allow", "ask", "deny"]),
)
STEPS = st.lists(
    st.tuples(st.just("grant"), CALLS, ANSWERS)
    | st.tuples(st.just("check"), CALLS, ANSWERS | st.none())
    | st.tuples(st.just("wait"), CALLS, ANSWERS | st.none()),
    max_size=30,
)


@given(policy=POLICIES, steps=STEPS, destructive=st.booleans())
def test_nothing_runs_that_no_rule_and_no_approval_allows(
    policy: ApprovalPolicy, steps: list[tuple[str, tuple[str, str, dict[str, Any]], Any]], destructive: bool
) -> None:
    now = 0.0
    given_out: list[tuple[object, Approval, float]] = []
    answer: Approval | None = None

    async def ask(request: ApprovalRequest) -> Approval:
        await trio.lowlevel.checkpoint()
        if answer is None:
            raise RuntimeError("nobody is there")
        key = (request.server, request.tool, json.dumps(request.arguments))
        given_out.append((key, answer, now))
        return answer

    async def run() -> None:
        nonlocal now, answer
        approvals = Approvals(policy, ask=ask, clock=lambda: now)
        for kind, (server, tool, arguments), answer in steps:
            key = (server, tool, json.dumps(arguments))
            if kind == "wait":
                now += 2
                continue
            if kind == "grant":
                approvals.grant(server, tool, arguments, answer)
                given_out.append((key, answer, now))
                continue
            verdict = await approvals.check(
                ApprovalRequest(
                    server=server,
                    tool=tool,
                    description=None,
                    arguments=arguments,
                    hints=ToolHints(destructive=destructive),
                )
            )
            action = policy.action(server, tool, destructive=destructive)
            if action != "ask":
                assert isinstance(verdict, Allowed) == (action == "allow")
            elif isinstance(verdict, Allowed):
                fresh = [
                    entry
                    for entry in given_out
                    if entry[0] == key
                    and entry[1].allow
                    and (entry[1].expires_seconds is None or now < entry[2] + entry[1].expires_seconds)
                ]
                assert fresh, "allowed, and nobody ever allowed exactly this"
                if not any(entry[1].scope == "conversation" for entry in fresh):
                    given_out.remove(
                        min(fresh, key=lambda entry: entry[2] + (entry[1].expires_seconds or 1e9))
                    )

    trio.run(run)


# --- from a file -------------------------------------------------------------------------------------


def test_rules_come_from_the_tool_configuration_file(tmp_path: Path) -> None:
    path = tmp_path / "tools.toml"
    path.write_text(
        '[approvals]\ndefault = "ask"\n'
        '[[approvals.rules]]\nserver = "files"\ntool = "delete*"\naction = "deny"\n'
        '[[approvals.rules]]\nserver = "home"\naction = "allow"\n'
        '[tools."home__play"]\nsend_result_to_ai = true\n'
    )
    assert load_approval_policy(path) == ApprovalPolicy(
        rules=(
            ApprovalRule(action="deny", server="files", tool="delete*"),
            ApprovalRule(action="allow", server="home"),
        ),
        default="ask",
    )
    load_tool_configs(path)


def test_a_file_without_rules_has_the_default_policy(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text("{}")
    assert load_approval_policy(path) == ApprovalPolicy()


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"rule": []}, "approvals.rule: is not a setting; did you mean 'rules'"),
        ({"default": "yes"}, "approvals.default: expected one of allow, ask, deny, got 'yes'"),
        ({"rules": {}}, "approvals.rules: expected an array, got an object"),
        ({"rules": ["*"]}, r"approvals.rules\[0\]: expected an object, got a string"),
        (
            {"rules": [{"server": "a"}]},
            r"approvals.rules\[0\]: the key 'action' is missing; expected",
        ),
        ({"rules": [{"action": "allow"}]}, r"approvals.rules\[0\]: expected `server` or `tool`"),
        ({"rules": [{"action": "deny", "tool": ""}]}, "cannot be empty"),
        ({"rules": [{"action": "deny", "tools": "x"}]}, "did you mean 'tool'"),
    ],
)
@pytest.mark.parametrize("load", [load_approval_policy, load_tool_configs])
def test_a_mistake_in_the_rules_is_named_with_its_place(
    tmp_path: Path, table: object, told: str, load: Callable[[Path], Awaitable[object]]
) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps({"approvals": table}))
    with pytest.raises(ConfigError, match=told) as caught:
        load(path)
    assert str(path) in str(caught.value)
