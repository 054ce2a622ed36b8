"""Prompts: the listing, getting each with its arguments, and refusals without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

from playhead.check.probes.asking import ask, block_findings, require_answered, said, summarize
from playhead.check.probes.listing import may_have, probe_listing
from playhead.check.results import Found, TestDraft
from playhead.check.target import RequestOutcome, Target
from playhead.content.block_types import Field
from playhead.content.findings import Finding, Notes, kind_of
from playhead.content.validation import check_fields

MOST_PROMPTS: Final = 20
"""Prompts requested from one server; the rest is reported as skipped."""
UNKNOWN_NAME: Final = "playhead-check-no-such-prompt"
FILLING: Final = "playhead"
"""The value of generated arguments: prompts accept any string."""
OLD_NOT_FOUND: Final = -32004
"""The code of some 2024-11-05 servers (JSON-RPC, 5.1: -32000 to -32099 are for servers)."""


_PROMPT: Final = (
    Field(name="name", required=True),
    Field(name="title"),
    Field(name="description"),
    Field(name="arguments", kind="array"),
    Field(name="icons", kind="array"),
    Field(name="_meta", kind="object"),
)
_ARGUMENT: Final = (
    Field(name="name", required=True),
    Field(name="title"),
    Field(name="description"),
    Field(name="required", kind="boolean"),
)


async def probe_prompts(target: Target, found: Found) -> None:
    """List the prompts, get each, and send requests that must be refused. Changes nothing on the server."""
    if not may_have(target, "prompts"):
        draft = TestDraft(subject="prompts", title="all")
        draft.skipped("prompts.list-answered", "the server declares no prompts")
        found(draft.done())
        return
    prompts = await probe_listing(
        target,
        found,
        method="prompts/list",
        key="prompts",
        identity="name",
        judge=_prompt_findings,
        checks="prompts.list",
        optional=target.session.capabilities.prompts is None,
    )
    for prompt in prompts[:MOST_PROMPTS]:
        await _probe_prompt(target, prompt, found)
    if len(prompts) > MOST_PROMPTS:
        draft = TestDraft(subject="prompts", title=f"the other {len(prompts) - MOST_PROMPTS}")
        draft.skipped("prompts.get-answered", f"at most {MOST_PROMPTS} prompts of one server are requested")
        found(draft.done())
    if prompts:
        await _probe_unknown(target, found)


async def _probe_prompt(target: Target, prompt: Mapping[str, Any], found: Found) -> None:
    name: str = prompt["name"]
    declared = prompt.get("arguments")
    named = [
        (str(argument["name"]), argument.get("required") is True)
        for argument in (declared if isinstance(declared, list) else ())
        if isinstance(argument, dict) and isinstance(argument.get("name"), str)
    ]
    required = {argument: FILLING for argument, needed in named if needed}
    await _probe_got(target, name, required, found, title="the required arguments")
    if len(named) > len(required):
        every = dict.fromkeys((argument for argument, _ in named), FILLING)
        await _probe_got(target, name, every, found, title="all arguments")
    if required:
        left_out = next(iter(required))
        given = {argument: value for argument, value in required.items() if argument != left_out}
        await _probe_missing(target, name, given, left_out, found)


async def _probe_got(
    target: Target,
    name: str,
    arguments: Mapping[str, str],
    found: Found,
    *,
    title: str,
) -> None:
    draft = TestDraft(
        subject=f"prompt {name}", title=title if arguments else "no arguments", method="prompts/get"
    )
    answer = await ask(target, draft, _params(name, arguments))
    if require_answered(draft, "prompts.get-answered", answer, target):
        if answer.error is not None and answer.error.code == METHOD_NOT_FOUND:
            draft.failed("prompts.get-answered", f"expected the listed prompt, got {said(answer.error)}")
        elif answer.error is not None:
            draft.undecided = f"refused the generated arguments, which may be invalid: {said(answer.error)}"
        elif answer.result is not None:
            findings = _message_findings(answer.result, target.protocol_version)
            draft.require("prompts.messages", not findings, summarize(findings))
    found(draft.done())


async def _probe_missing(
    target: Target,
    name: str,
    given: Mapping[str, str],
    left_out: str,
    found: Found,
) -> None:
    draft = TestDraft(
        subject=f"prompt {name}", title=f"without the required {left_out}", method="prompts/get"
    )
    answer = await ask(target, draft, _params(name, given))
    if require_answered(draft, "prompts.get-answered", answer, target):
        _judge_refusal(
            draft, "prompts.missing-argument", answer, why=f"the required argument {left_out!r} is missing"
        )
    found(draft.done())


async def _probe_unknown(target: Target, found: Found) -> None:
    draft = TestDraft(subject="prompts", title="an unknown prompt", method="prompts/get")
    answer = await ask(target, draft, {"name": UNKNOWN_NAME})
    if require_answered(draft, "prompts.get-answered", answer, target):
        own = target.protocol_version == "2024-11-05" and (
            answer.error is not None and answer.error.code == OLD_NOT_FOUND
        )
        _judge_refusal(draft, "prompts.unknown", answer, why="the prompt does not exist", own_code=own)
    found(draft.done())


def _judge_refusal(
    draft: TestDraft, kind: str, answer: RequestOutcome, *, why: str, own_code: bool = False
) -> None:
    refused = answer.error is not None
    if not draft.require(kind, refused, f"expected error {INVALID_PARAMS}, since {why}; got a result"):
        return
    assert answer.error is not None
    draft.require(
        "prompts.error-code",
        own_code or answer.error.code == INVALID_PARAMS,
        f"expected error {INVALID_PARAMS}, since {why}; got {said(answer.error)}",
    )


def _params(name: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    return {"name": name, "arguments": dict(arguments)} if arguments else {"name": name}


def _prompt_findings(path: str, raw: Mapping[str, object]) -> list[Finding]:
    """Validate one item of `prompts/list`."""
    notes = Notes()
    check_fields(notes, path, raw, _PROMPT)
    arguments = raw.get("arguments")
    for index, argument in enumerate(arguments if isinstance(arguments, list) else ()):
        place = f"{path}.arguments[{index}]"
        if isinstance(argument, dict):
            check_fields(notes, place, argument, _ARGUMENT)
        else:
            notes.add(place, expected="an object", got=kind_of(argument))
    return notes.all()


def _message_findings(result: Mapping[str, Any], revision: str) -> list[Finding]:
    messages = result.get("messages")
    if not isinstance(messages, list):
        got = kind_of(messages) if "messages" in result else "nothing"
        return [Finding(path="$.messages", expected="an array", got=got)]
    findings: list[Finding] = []
    for index, message in enumerate(messages[:100]):
        path = f"$.messages[{index}]"
        if not isinstance(message, dict):
            findings.append(Finding(path=path, expected="an object", got=kind_of(message)))
            continue
        role = message.get("role")
        if role not in ("user", "assistant"):
            got = f"{role!r:.60}" if "role" in message else "nothing"
            findings.append(Finding(path=f"{path}.role", expected="user or assistant", got=got))
        if "content" not in message:
            findings.append(Finding(path=f"{path}.content", expected="a content block", got="nothing"))
        else:
            findings += block_findings(f"{path}.content", message["content"], revision)
    return findings
