"""Prompts: the listing, getting each with its arguments, and refusals without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

from playhead.check.probes.asking import ask, block_findings, error_words, require_answered, summarize
from playhead.check.probes.listing import check_items, may_have, probe_listing
from playhead.check.probes.utilities import probe_completions, prompt_references
from playhead.check.results import TestDraft
from playhead.check.target import RequestOutcome, Target
from playhead.content.block_types import Field
from playhead.content.findings import Finding, Notes, kind_of
from playhead.content.validation import check_fields

MOST_PROMPTS: Final = 20
"""Limits the prompts requested from one server. The others are reported as skipped."""
UNKNOWN_NAME: Final = "playhead-check-no-such-prompt"
ARGUMENT_VALUE: Final = "playhead"
"""Fills generated arguments. Prompts accept any string."""
OLD_NOT_FOUND: Final = -32004
"""Some 2024-11-05 servers use this code for an unknown prompt (-32000 to -32099 are left to servers)."""


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


async def probe_prompts(target: Target) -> None:
    """List the prompts, get each, and send requests that must be refused. Changes nothing on the server."""
    if not may_have(target, "prompts"):
        with target.test("prompts", "all") as draft:
            draft.skipped("prompts.list-answered", "the server declares no prompts")
        return
    prompts = await probe_listing(
        target,
        method="prompts/list",
        key="prompts",
        identity="name",
        judge=_prompt_findings,
        checks="prompts.list",
        optional=target.session.capabilities.prompts is None,
    )
    await probe_completions(target, prompt_references(prompts))
    for prompt in prompts[:MOST_PROMPTS]:
        await _probe_prompt(target, prompt)
    if (more := len(prompts) - MOST_PROMPTS) > 0:
        why = f"at most {MOST_PROMPTS} prompts of one server are requested"
        with target.test("prompts", f"the other {more}") as draft:
            draft.skipped("prompts.get-answered", why)
    if prompts:
        await _probe_unknown(target)


async def _probe_prompt(target: Target, prompt: Mapping[str, Any]) -> None:
    name: str = prompt["name"]
    declared = prompt.get("arguments")
    is_required = {
        str(argument["name"]): argument.get("required") is True
        for argument in (declared if isinstance(declared, list) else ())
        if isinstance(argument, dict) and isinstance(argument.get("name"), str)
    }
    required = [argument for argument, needed in is_required.items() if needed]
    await _probe_valid(target, name, required, title="the required arguments")
    if len(is_required) > len(required):
        await _probe_valid(target, name, list(is_required), title="all arguments")
    if required:
        await _probe_missing(target, name, required)


async def _probe_valid(target: Target, name: str, arguments: list[str], *, title: str) -> None:
    title = title if arguments else "no arguments"
    with target.test(f"prompt {name}", title, method="prompts/get") as draft:
        answer = await ask(target, draft, _params(name, arguments))
        if not require_answered(draft, "prompts.get-answered", answer, target):
            return
        if answer.error is not None and answer.error.code == METHOD_NOT_FOUND:
            why = f"expected the listed prompt, got {error_words(answer.error)}"
            draft.failed("prompts.get-answered", why)
        elif answer.error is not None:
            draft.undecided = (
                f"refused the generated arguments, which may be invalid: {error_words(answer.error)}"
            )
        elif answer.result is not None:
            findings = _message_findings(answer.result, target.protocol_version)
            draft.require("prompts.messages", not findings, summarize(findings))


async def _probe_missing(target: Target, name: str, required: list[str]) -> None:
    missing, *others = required
    title = f"without the required {missing}"
    with target.test(f"prompt {name}", title, method="prompts/get") as draft:
        answer = await ask(target, draft, _params(name, others))
        if require_answered(draft, "prompts.get-answered", answer, target):
            why = f"the required argument {missing!r} is missing"
            _judge_refusal(draft, "prompts.missing-argument", answer, why=why)


async def _probe_unknown(target: Target) -> None:
    with target.test("prompts", "an unknown prompt", method="prompts/get") as draft:
        answer = await ask(target, draft, {"name": UNKNOWN_NAME})
        if require_answered(draft, "prompts.get-answered", answer, target):
            codes = {INVALID_PARAMS, OLD_NOT_FOUND} if target.protocol_version == "2024-11-05" else None
            _judge_refusal(draft, "prompts.unknown", answer, why="the prompt does not exist", codes=codes)


def _judge_refusal(
    draft: TestDraft, kind: str, answer: RequestOutcome, *, why: str, codes: set[int] | None = None
) -> None:
    is_refused = answer.error is not None
    if not draft.require(kind, is_refused, f"expected error {INVALID_PARAMS}, since {why}; got a result"):
        return
    assert answer.error is not None
    draft.require(
        "prompts.error-code",
        answer.error.code in (codes or {INVALID_PARAMS}),
        f"expected error {INVALID_PARAMS}, since {why}; got {error_words(answer.error)}",
    )


def _params(name: str, arguments: list[str]) -> dict[str, Any]:
    if not arguments:
        return {"name": name}
    return {"name": name, "arguments": dict.fromkeys(arguments, ARGUMENT_VALUE)}


def _prompt_findings(path: str, raw: Mapping[str, object]) -> list[Finding]:
    """Validate one item of `prompts/list`."""
    notes = Notes()
    check_fields(notes, path, raw, _PROMPT)
    check_items(notes, path, raw, "arguments", _ARGUMENT)
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
