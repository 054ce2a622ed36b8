"""Discovery: the listing of tools, their definitions, and the declared capabilities."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

import mcp_types as types
import trio
from mcp_types import METHOD_NOT_FOUND
from pydantic import ValidationError

from playhead.check.expectations import Expectations
from playhead.check.probes.asking import ask, error_words, excerpt, summarize
from playhead.check.probes.listing import check_items, may_have, probe_listing
from playhead.check.results import TestDraft, TestResult
from playhead.check.target import Target
from playhead.content.block_types import ICON, Field
from playhead.content.findings import Finding, Notes, kind_of
from playhead.content.formats import quoted
from playhead.content.validation import check_fields
from playhead.content.validation_schema import VALID_SCHEMA, check_output
from playhead.errors import DeadlineError

MOST_DEFINITIONS: Final = 1000
"""Limits the definitions that get a test each. The test of the listing judges the shape of all tools."""
NAMES_SINCE: Final = "2025-11-25"
"""This is the first revision that restricts the characters of a tool's name."""
ANY_OUTPUT_SINCE: Final = "2026-07-28"
"""This is the first revision whose `outputSchema` may describe any value, not only an object."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_TOOL: Final = (
    Field(name="name", required=True),
    Field(name="title"),
    Field(name="description"),
    Field(name="icons", kind="array"),
    Field(name="annotations", kind="object"),
    Field(name="execution", kind="object"),
    Field(name="_meta", kind="object"),
)
_HINTS: Final = (
    Field(name="title"),
    *(
        Field(name=name, kind="boolean")
        for name in ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    ),
)


async def probe_discovery(target: Target) -> tuple[types.Tool, ...]:
    """Judge the listing of tools and the capabilities. Return the testable tools, one per name."""
    await _probe_capabilities(target)
    if not may_have(target, "tools"):
        return ()
    raw = await probe_listing(
        target,
        method="tools/list",
        key="tools",
        identity="name",
        judge=tool_findings,
        checks="tools.list",
        optional=not target.session.capabilities.model_fields_set,
    )
    for tool in raw[:MOST_DEFINITIONS]:
        target.on_test(await trio.to_thread.run_sync(judge_definition, tool, target.protocol_version))
    if (more := len(raw) - MOST_DEFINITIONS) > 0:
        why = f"at most {MOST_DEFINITIONS} definitions of one server are judged"
        with target.test("listing tools", f"the other {more} definitions") as draft:
            draft.skipped("tools.input-schema", why)
    tools = [tool for tool in map(_parse_tool, raw) if tool is not None]
    if target.options.expectations is not None:
        _judge_expected(target, target.options.expectations, {tool.name for tool in tools})
    return tuple(await target.session.set_tools(tools))


def tool_findings(path: str, raw: Mapping[str, object]) -> list[Finding]:
    """Validate one item of `tools/list`, except its schemas and hints, which have their own checks."""
    notes = Notes()
    check_fields(notes, path, raw, _TOOL)
    check_items(notes, path, raw, "icons", ICON)
    return notes.all()


def judge_definition(raw: Mapping[str, Any], revision: str) -> TestResult:
    """Judge the definition of one tool."""
    name = str(raw["name"])
    draft = TestDraft(subject=f"tool {name}", title="definition", tool=name, method="tools/list", input={})
    draft.output = excerpt(raw)
    if revision >= NAMES_SINCE:
        draft.require(
            "tools.name",
            _NAME.fullmatch(name) is not None,
            f"expected a name of 1 to 128 characters from A-Z a-z 0-9 _ - . , got {quoted(name)}",
        )
    problem = schema_problem(raw.get("inputSchema"), name="inputSchema", of_object=True)
    draft.require("tools.input-schema", problem is None, problem or "")
    if "outputSchema" in raw:
        of_object = revision < ANY_OUTPUT_SINCE
        problem = schema_problem(raw["outputSchema"], name="outputSchema", of_object=of_object)
        draft.require("tools.output-schema", problem is None, problem or "")
    hints = raw.get("annotations")
    if isinstance(hints, dict):
        notes = Notes()
        check_fields(notes, "$.annotations", hints, _HINTS)
        draft.require("tools.annotations", not notes.all(), summarize(notes.all()))
    return draft.done()


def _parse_tool(raw: Mapping[str, Any]) -> types.Tool | None:
    try:
        return types.Tool.model_validate(raw, by_name=False)
    except ValidationError:
        # `judge_definition` has reported the defect. Without the optional fields the tool may be callable.
        bare = {key: raw[key] for key in ("name", "description", "inputSchema") if key in raw}
    try:
        return types.Tool.model_validate(bare, by_name=False)
    except ValidationError:
        return None


async def _probe_capabilities(target: Target) -> None:
    """Compare the declared capabilities with the answer to a request for each listing."""
    capabilities = target.session.capabilities
    if not capabilities.model_fields_set and target.session.handshake is None:
        return
    for capability in ("tools", "resources", "prompts"):
        method = f"{capability}/list"
        declared = getattr(capabilities, capability) is not None
        if declared and (capability == "tools" or target.options.depth == "full"):
            continue  # this listing has a probe of its own
        title = f"{capability}, declared" if declared else f"{capability}, not declared"
        with target.test("capabilities", title, method=method) as draft:
            answer = await ask(target, draft)
            if not declared:
                items = answer.result.get(capability) if answer.result is not None else None
                count = len(items) if isinstance(items, list) else 0
                why = (
                    f"expected the handshake to declare the capability {capability}, since {method} returns"
                    f" {count}; clients that rely on the handshake don't ask"
                )
                draft.require("capabilities.declared", count == 0, why)
            elif isinstance(answer.failure, DeadlineError):
                why = f"expected an answer to {method} within {target.options.timeout_seconds:g} s, got none"
                draft.failed("capabilities.answered", why)
            elif answer.failure is not None:
                draft.undecided = str(answer.failure)
            elif answer.error is not None and answer.error.code == METHOD_NOT_FOUND:
                why = f"expected {method} to be known, since the server declares {capability}; got "
                draft.failed("capabilities.answered", why + error_words(answer.error))
            else:
                draft.passed("capabilities.answered")


def _judge_expected(target: Target, expectations: Expectations, listed: set[str]) -> None:
    names = ", ".join(sorted(listed)[:20]) or "none"
    for name in dict.fromkeys(call.tool for call in expectations.calls):
        with target.test(f"tool {name}", "expected to be listed", tool=name) as draft:
            why = f"expected a tool {quoted(name)}, got {names}"
            draft.require("tools.expected-listed", name in listed, why)


_MOST_VALUES: Final = 5_000


def schema_problem(schema: object, *, name: str, of_object: bool) -> str | None:
    """Return a message about a defect of `schema`, the value of the field `name`; None if none is found.

    `of_object` requires `type: "object"` at the root.
    """
    if not isinstance(schema, dict):
        return f"expected {name} to be a JSON Schema (an object), got {kind_of(schema)}"
    kind = schema.get("type")
    if of_object and kind != "object":
        got = quoted(kind) if isinstance(kind, str) else "nothing" if kind is None else kind_of(kind)
        return f'expected {name}.type "object", got {got}'
    notes = Notes()
    check_output(notes, "$", {}, schema)
    for finding in notes.all():
        # Other findings (a schema too large to check, an external reference) prove no defect.
        if finding.expected == VALID_SCHEMA:
            where = finding.path.replace("outputSchema", name, 1)
            got = finding.got.replace("outputSchema", name)
            return f"expected {name} to be a valid JSON Schema; {where} is {got}"
    missing = _unresolved_reference(schema)
    if missing is not None:
        return f"expected every $ref in {name} to resolve; {quoted(missing)} does not"
    return None


def _unresolved_reference(schema: Mapping[str, object]) -> str | None:
    """Return the first local `$ref` (`#/…`) that does not resolve."""
    references: list[str] = []
    left: list[object] = [schema]
    seen = 0
    while left:
        value = left.pop()
        seen += 1
        if seen > _MOST_VALUES:
            return None
        if isinstance(value, dict):
            if isinstance(value.get("$id"), str) and value is not schema:
                return None  # its references are resolved against that id
            reference = value.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/"):
                references.append(reference)
            # The values of these keywords are data, not schemas.
            left.extend(
                item for key, item in value.items() if key not in ("const", "enum", "default", "examples")
            )
        elif isinstance(value, list):
            left.extend(value)
    return next((reference for reference in references if not _resolves(schema, reference)), None)


def _resolves(schema: Mapping[str, object], reference: str) -> bool:
    """Return True if the JSON pointer in a fragment (RFC 6901) leads to a value."""
    at: object = schema
    for part in reference[2:].split("/"):
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(at, dict) and key in at:
            at = at[key]
        elif isinstance(at, list) and key.isdecimal() and int(key) < len(at):
            at = at[int(key)]
        else:
            return False
    return True
