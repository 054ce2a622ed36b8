"""Calls with values that the server itself has named, and writes that are read back.

A read-only tool that gets a real id shows whether it works. Other tools get none, since `delete_item` would
delete it, unless the options allow it (`--mine all`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import mcp_types as types
import trio

from playhead.check.arguments.cases import Case
from playhead.check.arguments.generate import arguments_for
from playhead.check.arguments.mine import MinedCase, MinedValue, ReadBack, read_backs
from playhead.check.probes.asking import note
from playhead.check.probes.tool_calls import ToolCalls
from playhead.check.probes.tool_judging import texts_of
from playhead.check.probes.tools import skip_reason
from playhead.check.target import Target
from playhead.client.session.tool_calls import has_default_hints

_UNKNOWN: Final = re.compile(
    r"not found|no such|(?:does not|doesn't) exist|unknown|(?:could not|cannot|can't) find|\binvalid"
    r" \w{0,20}id\b",
    re.I,
)
MARK: Final = "written by playhead check, to be read back"
"""The content of a written value."""
_MOST_PAIRS: Final = 8


async def probe_mined(target: Target) -> None:
    """Call the tools that may get mined values with them, and read back what was written if all tools may."""
    may_mine = [
        tool for tool in target.tools if _may_mine(target, tool) and skip_reason(target, tool) is None
    ]
    seen: set[str] = set()
    tried: set[str] = set()
    for tool in [*may_mine, *may_mine]:
        if tool.name in seen and tool.name in target.succeeded:
            continue  # the second pass is for tools whose values another one has named only now
        seen.add(tool.name)
        base = await _base(tool)
        cases = (
            await trio.to_thread.run_sync(target.mine.cases_for, tool.name, tool.input_schema, base)
            if base is not None
            else []
        )
        calls = ToolCalls(target, tool)
        for case in cases:
            key = f"{tool.name} {json.dumps(case.case.arguments, sort_keys=True)}"
            if key not in tried and calls.stop_reason() is None:
                tried.add(key)
                await _call(calls, case)
    if target.options.mine == "all":
        tools = {tool.name: tool for tool in may_mine}
        schemas = {name: tool.input_schema for name, tool in tools.items()}
        for pair in list(read_backs(schemas))[:_MOST_PAIRS]:
            await _read_back(target, tools, pair)


def _may_mine(target: Target, tool: types.Tool) -> bool:
    if target.options.mine != "read-only":
        return target.options.mine == "all"
    hints = tool.annotations
    return hints is not None and hints.read_only_hint is True and not has_default_hints(target.tools)


async def _base(tool: types.Tool) -> dict[str, Any] | None:
    """Return the least valid arguments, if any can be generated."""
    generated = await trio.to_thread.run_sync(partial(arguments_for, tool.input_schema, examples=0))
    return next((case.arguments for case in generated.valid), None)


async def _call(calls: ToolCalls, mined: MinedCase) -> None:
    with calls.test(f"valid arguments: {mined.case.title}", calls.params(mined.case.arguments)) as draft:
        answer = await calls.judge_valid(mined.case, draft)
        result = answer.result or {}
        text = answer.error.message if answer.error is not None else texts_of(result)
        is_refused = answer.error is not None or result.get("isError") is True
        if is_refused and draft.undecided is not None and _UNKNOWN.search(text[:2_000]):
            for value in mined.values:
                if value.is_same and await _is_named_still(calls.target, value):
                    draft.failed(
                        "tools.mined-known",
                        f"expected the value {value.value!r} to be known, since {value.source} still names"
                        f" it; got"
                        f" {text[:300]}",
                    )
                    return
        elif not is_refused and draft.undecided is None:
            draft.passed("tools.mined-known")


async def _is_named_still(target: Target, value: MinedValue) -> bool:
    """Ask again for what named a value: a call since then may have removed it."""
    if value.source.method in ("tools/list", "error"):
        return False  # an enum and an error name what is allowed, not what exists
    answer = await target.request(value.source.method, value.source.params)
    return answer.result is not None and json.dumps(value.value) in json.dumps(answer.result).replace(
        '\\"', '"'
    )


async def _read_back(target: Target, tools: Mapping[str, types.Tool], pair: ReadBack) -> None:
    writer, reader = ToolCalls(target, tools[pair.writer]), ToolCalls(target, tools[pair.reader])
    base, other = await _base(writer.tool), await _base(reader.tool)
    if base is None or other is None:
        return
    written = {**base, pair.content: MARK}
    with writer.test(f"valid arguments: to be read back by {pair.reader}", writer.params(written)) as draft:
        case = Case(title="to be read back", arguments=written, kind="valid")
        answer = await writer.judge_valid(case, draft)
    if answer.result is None or answer.result.get("isError") is True:
        return
    keys = {name: written.get(name, other.get(name)) for name in pair.keys}
    for name in pair.keys:
        if name not in written:
            words = {value.value for value in target.mine.values_for(name, pair.writer)}
            stated = next((value for value in words if str(value) in texts_of(answer.result)), None)
            keys[name] = keys[name] if stated is None else stated
    with reader.test(f"what {pair.writer} wrote", reader.params({**other, **keys})) as draft:
        answer = await reader.ask({**other, **keys})
        note(draft, answer)
        if answer.result is None or answer.result.get("isError") is True:
            draft.undecided = (
                f"{pair.reader} returned an error, so what {pair.writer} wrote can't be compared"
            )
            if answer.result is not None and _UNKNOWN.search(texts_of(answer.result)[:2_000]):
                why = (
                    f"expected {pair.reader} to return what {pair.writer} wrote, got"
                    f" {texts_of(answer.result)[:300]}"
                )
                draft.failed("tools.read-back", why)
            return
        draft.require(
            "tools.read-back",
            MARK in json.dumps(answer.result),
            f"expected {pair.reader} to return the {pair.content} that {pair.writer} wrote, {MARK!r}; got"
            f" {texts_of(answer.result)[:300]!r}",
        )
