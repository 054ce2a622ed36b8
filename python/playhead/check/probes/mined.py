"""Calls with values that the server itself has named, and writes that are read back.

A read-only tool that gets a real id shows whether it works. Other tools get none, since `delete_item` would
delete it, unless the options allow it (`--mine all`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import mcp_types as types
import trio

from playhead.check.arguments.cases import Case
from playhead.check.arguments.generate import arguments_for
from playhead.check.arguments.mine import ENDS, WRITES, MinedCase, MinedValue, ReadBack, read_backs, words_of
from playhead.check.error_text import texts_of
from playhead.check.probes.asking import note, request_copy
from playhead.check.probes.tool_calls import METHOD, ToolCalls
from playhead.check.probes.tools import is_read_only, skip_reason
from playhead.check.results import TestDraft, TestResult
from playhead.check.target import Target
from playhead.config.servers import ServerConfig
from playhead.escaping import counted

_UNKNOWN: Final = re.compile(
    r"not found|no such|(?:does not|doesn't) exist|unknown|(?:could not|cannot|can't) find|\binvalid"
    r" \w{0,20}id\b",
    re.I,
)
MARK: Final = "written by playhead check, to be read back"
"""Marks a written value."""
_MOST_PAIRS: Final = 8
_LAST: Final = 2
_MOST_PASSES: Final = 3
"""Limits the passes over the tools that have not succeeded: one creates a file, the next one fills it."""


async def probe_mined(target: Target) -> None:
    """Call each tool that may get mined values with such values. If all tools may, also write with one tool
    and read back with another."""
    allowed = [tool for tool in target.tools if may_mine(target, tool) and skip_reason(target, tool) is None]
    if target.options.mine == "all" and target.is_process:
        await trio.to_thread.run_sync(_learn_places, target)
    searches = [_Search(calls=ToolCalls(target, tool)) for tool in sorted(allowed, key=_turn)]
    endings = [search for search in searches if _turn(search.calls.tool) == _LAST]
    for group in ([search for search in searches if search not in endings], endings):
        await _search_all(target, group)
    for search in searches:
        search.report()
    if target.options.mine == "all":
        tools = {tool.name: tool for tool in allowed}
        schemas = {name: tool.input_schema for name, tool in tools.items()}
        for pair in list(read_backs(schemas))[:_MOST_PAIRS]:
            await _read_back(target, tools, pair)


async def _search_all(target: Target, searches: Sequence[_Search]) -> None:
    for search in searches:
        await search.extend()
    for _ in range(_MOST_PASSES):
        proven = len(target.succeeded)
        for search in searches:
            if search.calls.tool.name not in target.succeeded:
                # Another tool may have named its values only now, or it needs more than the least.
                await search.extend()
                await search.extend(style=-1)
        if len(target.succeeded) == proven:
            break


@dataclass(slots=True, kw_only=True)
class _Search:
    """The calls of a tool that look for arguments it takes. Those that prove nothing are one test."""

    calls: ToolCalls
    tried: set[str] = field(default_factory=set)
    refused: TestResult | None = None
    """The last call that proved nothing."""
    has_found: bool = False

    async def extend(self, *, style: int = 0) -> None:
        """Call with mined values in the least arguments (0) or the fullest ones (-1), each once."""
        tool, mine = self.calls.tool, self.calls.target.mine
        base = await _base(tool, style)
        if base is None:
            return
        for case in await trio.to_thread.run_sync(mine.cases_for, tool.name, tool.input_schema, base):
            key = json.dumps(case.case.arguments, sort_keys=True)
            if key not in self.tried and self.calls.stop_reason() is None:
                self.tried.add(key)
                test = await self._call(case)
                if test.status == "error":
                    self.refused = test
                else:
                    self.has_found = True
                    self.calls.target.on_test(test)

    def report(self) -> None:
        """Report that the search found nothing."""
        if self.refused is not None and not self.has_found:
            words = f"{counted(len(self.tried), 'call')} with mined values proved nothing, the last one:"
            self.calls.target.on_test(replace(self.refused, error=f"{words} {self.refused.error}"))

    async def _call(self, mined: MinedCase) -> TestResult:
        arguments, tool = mined.case.arguments, self.calls.tool.name
        draft = TestDraft(subject=f"tool {tool}", title=f"valid arguments: {mined.case.title}", tool=tool)
        draft.method, draft.input = METHOD, request_copy(self.calls.params(arguments))
        answer = await self.calls.judge_valid(mined.case, draft)
        result = answer.result or {}
        text = answer.error.message if answer.error is not None else texts_of(result)
        is_refused = answer.error is not None or result.get("isError") is True
        if not is_refused and draft.undecided is None:
            draft.passed("tools.mined-known")
        elif is_refused and draft.undecided is not None and _UNKNOWN.search(text[:2_000]):
            for value in mined.values:
                # The error may be about another argument.
                is_meant = len(arguments) == 1 or str(value.value) in text
                if is_meant and value.is_same and await _is_named_still(self.calls.target, value):
                    why = (
                        f"expected the value {value.value!r} to be known, since {value.source} still names"
                        f" it; got {text[:300]}"
                    )
                    draft.failed("tools.mined-known", why)
                    break
        return draft.done()


def _turn(tool: types.Tool) -> int:
    """Order the tools: others take what writers create, until it is deleted."""
    words = set(words_of(tool.name))
    return _LAST if words & ENDS else 0 if words & WRITES else 1


def _learn_places(target: Target) -> None:
    """Offer the working directory of the server, and what is in it."""
    assert isinstance(target.server, ServerConfig)
    place = Path(target.server.cwd or os.curdir).resolve()
    inside = [path for path in place.iterdir() if not path.name.startswith(".")]
    inside.sort(key=lambda path: path.stat(follow_symlinks=False).st_mtime)  # a check has made the newest
    target.mine.directory = str(place)
    target.mine.files = [str(path) for path in inside if path.is_file()]
    target.mine.directories = [str(path) for path in inside if path.is_dir()]


def may_mine(target: Target, tool: types.Tool) -> bool:
    """Return True if a tool may be called with values that exist."""
    if target.options.mine != "read-only":
        return target.options.mine == "all"
    return is_read_only(target, tool)


async def _base(tool: types.Tool, style: int = 0) -> dict[str, Any] | None:
    """Return the least valid arguments (0), or the fullest ones (-1), if any can be generated."""
    generated = await trio.to_thread.run_sync(partial(arguments_for, tool.input_schema, examples=0))
    bases = [case.arguments for case in generated.valid if case.kind == "valid"]
    return bases[style] if bases else None


async def _is_named_still(target: Target, value: MinedValue) -> bool:
    """Ask again for what named a value: a call since then may have removed it."""
    if value.source.method not in ("tools/call", "resources/list", "completion/complete"):
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
    # An argument of the writer, else a mined value that its answer states, else the reader's own.
    keys = {name: written.get(name, other.get(name)) for name in pair.keys}
    answer_text = texts_of(answer.result)
    for name in keys.keys() - written.keys():
        mined = [each.value for each in target.mine.values_for(name, pair.writer)]
        stated = [value for value in mined if str(value) in answer_text]
        if stated:
            keys[name] = stated[0]
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
