"""What the server lists: whole, once each, in the official shape; and what it says that it has."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import mcp_types as types
import trio
from mcp_types import METHOD_NOT_FOUND
from pydantic import ValidationError

from playhead.check.expectations import Expectations
from playhead.check.probes.asking import SPECIFICATION, ask, said, shown
from playhead.check.probes.paging import listing_kinds, probe_listing
from playhead.check.probes.schemas import schema_problem
from playhead.check.probes.shapes import told
from playhead.check.results import CheckKind, TestDraft, TestResult
from playhead.check.target import Target
from playhead.content.findings import Finding, Notes, kind_of
from playhead.content.formats import quoted
from playhead.content.validation_fields import ICON, Field, check_fields
from playhead.errors import DeadlineError

PAGE: Final = f"{SPECIFICATION}/server/tools"

LISTING: Final = listing_kinds(
    "tools.list", what="tools", identity="name", source=PAGE, unique_level="should"
)
NAME: Final = CheckKind(
    name="tools.name",
    title="A tool's name has 1 to 128 letters, digits, underscores, hyphens and dots",
    level="should",
    source=f"{PAGE}#tool-names",
)
INPUT_SCHEMA: Final = CheckKind(
    name="tools.input-schema",
    title='A tool\'s inputSchema is a valid JSON Schema with type "object" at its root',
    level="must",
    source=f"{PAGE}#tool",
)
OUTPUT_SCHEMA: Final = CheckKind(
    name="tools.output-schema",
    title="A tool's outputSchema, where it has one, is a valid JSON Schema",
    level="must",
    source=f"{PAGE}#output-schema",
)
ANNOTATIONS: Final = CheckKind(
    name="tools.annotations",
    title="A tool's hints are booleans, its title a string",
    level="must",
    source=f"{SPECIFICATION}/schema#toolannotations",
)
DECLARED: Final = CheckKind(
    name="capabilities.declared",
    title="What the server lists, it declares as a capability",
    level="must",
    source=f"{SPECIFICATION}/basic/lifecycle#capability-negotiation",
)
ANSWERED: Final = CheckKind(
    name="capabilities.answered",
    title="What the server declares as a capability, it knows the methods of",
    level="must",
    source=f"{SPECIFICATION}/basic/lifecycle#capability-negotiation",
)
EXPECTED: Final = CheckKind(
    name="tools.expected-listed",
    title="Each tool of the expectations file is listed",
    level="must",
    source="docs/check.md",
)
KINDS: Final = (
    *LISTING.all(),
    NAME,
    INPUT_SCHEMA,
    OUTPUT_SCHEMA,
    ANNOTATIONS,
    DECLARED,
    ANSWERED,
    EXPECTED,
)

MOST_DEFINITIONS: Final = 1000
"""Judged one by one; the shape of all others is judged with the listing."""
NAMES_SINCE: Final = "2025-11-25"
ANY_OUTPUT_SINCE: Final = "2026-07-28"
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
_LISTS: Final = (
    ("tools", "tools/list", "tools"),
    ("resources", "resources/list", "resources"),
    ("prompts", "prompts/list", "prompts"),
)


async def probe_discovery(target: Target, found: Callable[[TestResult], None]) -> tuple[types.Tool, ...]:
    """Judge the listing of tools and the capabilities; gives the tools that can be tested, one a name."""
    await _probe_capabilities(target, found)
    if not _may_have(target, "tools"):
        return ()
    raw = await probe_listing(
        target,
        found,
        method="tools/list",
        key="tools",
        identity="name",
        judge=tool_findings,
        kinds=LISTING,
        optional=not target.session.capabilities.model_fields_set,
    )
    for tool in raw[:MOST_DEFINITIONS]:
        found(await trio.to_thread.run_sync(judge_definition, tool, target.protocol_version))
    if len(raw) > MOST_DEFINITIONS:
        draft = TestDraft(
            subject="listing tools", title=f"the other {len(raw) - MOST_DEFINITIONS} definitions"
        )
        draft.skipped(INPUT_SCHEMA, f"the definitions of {MOST_DEFINITIONS} tools of one server are judged")
        found(draft.done())
    tools = [tool for tool in map(_understood, raw) if tool is not None]
    if target.options.expectations is not None:
        _judge_expected(target.options.expectations, {tool.name for tool in tools}, found)
    return tuple(await target.session.learn_tools(tools))


def tool_findings(path: str, raw: object) -> list[Finding]:
    """What is wrong with one item of `tools/list`, but for its schemas and hints, which have their own."""
    notes = Notes()
    if not isinstance(raw, dict):
        notes.add(path, expected="an object", came=kind_of(raw))
        return notes.all()
    check_fields(notes, path, raw, _TOOL)
    icons = raw.get("icons")
    for index, icon in enumerate(icons if isinstance(icons, list) else ()):
        if isinstance(icon, dict):
            check_fields(notes, f"{path}.icons[{index}]", icon, ICON)
        else:
            notes.add(f"{path}.icons[{index}]", expected="an object", came=kind_of(icon))
    return notes.all()


def judge_definition(raw: Mapping[str, Any], revision: str) -> TestResult:
    """One tool as it is listed."""
    name = str(raw["name"])
    draft = TestDraft(subject=f"tool {name}", title="definition", tool=name, method="tools/list", input={})
    draft.output = shown(raw)
    if revision >= NAMES_SINCE:
        draft.require(
            NAME,
            _NAME.fullmatch(name) is not None,
            f"expected a name of 1 to 128 characters out of A-Z a-z 0-9 _ - . , came {quoted(name)}",
        )
    problem = schema_problem(raw.get("inputSchema"), name="inputSchema", of_object=True)
    draft.require(INPUT_SCHEMA, problem is None, problem or "")
    if "outputSchema" in raw:
        of_object = revision < ANY_OUTPUT_SINCE
        problem = schema_problem(raw["outputSchema"], name="outputSchema", of_object=of_object)
        draft.require(OUTPUT_SCHEMA, problem is None, problem or "")
    hints = raw.get("annotations")
    if isinstance(hints, dict):
        notes = Notes()
        check_fields(notes, "$.annotations", hints, _HINTS)
        draft.require(ANNOTATIONS, not notes.all(), told(notes.all()))
    return draft.done()


def _understood(raw: Mapping[str, Any]) -> types.Tool | None:
    try:
        return types.Tool.model_validate(raw, by_name=False)
    except ValidationError:
        # Judged above, and in the report. Without its hints and titles it may still be called.
        bare = {key: raw[key] for key in ("name", "description", "inputSchema") if key in raw}
    try:
        return types.Tool.model_validate(bare, by_name=False)
    except ValidationError:
        return None


def _may_have(target: Target, capability: str) -> bool:
    """Empty capabilities say nothing: a revision that was given without a handshake has them."""
    capabilities = target.session.capabilities
    return getattr(capabilities, capability) is not None or not capabilities.model_fields_set


async def _probe_capabilities(target: Target, found: Callable[[TestResult], None]) -> None:
    """One page of each listing, asked for whether it is declared or not."""
    capabilities = target.session.capabilities
    if not capabilities.model_fields_set and target.session.handshake is None:
        return
    for capability, method, key in _LISTS:
        declared = getattr(capabilities, capability) is not None
        if declared and (capability == "tools" or target.options.depth == "full"):
            continue  # read whole, and judged, by a probe of its own
        title = f"{capability}, declared" if declared else f"{capability}, not declared"
        draft = TestDraft(subject="capabilities", title=title, method=method)
        answer = await ask(target, draft)
        if declared:
            if isinstance(answer.failure, DeadlineError):
                why = f"expected an answer to {method}, came none in {target.options.timeout_seconds:g} s"
                draft.failed(ANSWERED, why)
            elif answer.failure is not None:
                draft.undecided = str(answer.failure)
            else:
                known = answer.error is None or answer.error.code != METHOD_NOT_FOUND
                why = f"expected {method} to be known, since the server declares {capability}; came "
                draft.require(ANSWERED, known, why + said(answer.error) if answer.error else "")
        else:
            items = answer.result.get(key) if answer.result is not None else None
            count = len(items) if isinstance(items, list) else 0
            why = (
                f"expected the handshake to declare the capability {capability}, since {method} gives"
                f" {count}; clients that go by the handshake don't ask"
            )
            draft.require(DECLARED, count == 0, why)
        found(draft.done())


def _judge_expected(
    expectations: Expectations, listed: set[str], found: Callable[[TestResult], None]
) -> None:
    for name in dict.fromkeys(call.tool for call in expectations.calls):
        draft = TestDraft(subject=f"tool {name}", title="expected to be listed", tool=name)
        have = ", ".join(sorted(listed)[:20]) or "none"
        draft.require(EXPECTED, name in listed, f"expected a tool {quoted(name)}; listed are {have}")
        found(draft.done())
