"""The calls of one tool, with generated arguments and those of the expectations file, each judged."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import mcp_types as types
import regex
import trio

from playhead.check.arguments.cases import Case, simplifications
from playhead.check.arguments.generate import Validity
from playhead.check.error_text import error_text, texts_of
from playhead.check.expectations import ExpectedCall
from playhead.check.probes.asking import error_words, note, request_copy
from playhead.check.probes.tool_judging import (
    asks_for_input,
    judge_answered,
    judge_invalid,
    judge_result,
    judge_valid,
    kind_of_content,
)
from playhead.check.results import TestDraft
from playhead.check.target import RequestOutcome, Target
from playhead.errors import DeadlineError, TransportError

METHOD: Final = "tools/call"
TOOL_SECONDS: Final = 60.0
"""Limits all generated calls of one tool. A slow tool gets fewer calls, and the report says so."""
MOST_SHRINK_CALLS: Final = 40
"""Limits the calls that look for shorter arguments, per failed check of a tool. It takes 25 to find a limit
in 2,000 characters."""
SHRINK_SECONDS: Final = 10.0
_MAX_LOSSES: Final = 3
"""After this many unanswered calls a tool is no longer called, because each costs a deadline or a new
process."""
_UNUSUAL_FACTOR: Final = 1.5
"""Calls with unusual arguments may take this many times the deadline, with or without progress."""
_PATTERN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredCall:
    """A successful call with valid arguments."""

    case: Case
    result: Mapping[str, Any]
    latency_ms: float


@dataclass(slots=True)
class ToolCalls:
    """The calls of one tool, and their results."""

    target: Target
    tool: types.Tool
    succeeded: list[AnsweredCall] = field(default_factory=list)
    """The successful calls, in order."""
    answered: int = 0
    """The number of answered calls."""
    unmarked: str | None = None
    """The first text of a result without isError that reads like an error."""
    _errors: int = 0
    """The number of answers that are errors and marked as such."""
    _shrunk: set[str] = field(default_factory=set)
    """The checks for which shorter arguments were looked for."""
    _losses: int = 0
    """The number of calls without an answer."""
    _began: float | None = None

    def params(self, arguments: object) -> dict[str, Any]:
        """Return the parameters of a call with `arguments`."""
        return {"name": self.tool.name, "arguments": arguments}

    def test(self, title: str, params: object) -> AbstractContextManager[TestDraft]:
        """Draft a test of the tool, with these parameters of one or several calls; see `Target.test`."""
        return self.target.test(
            f"tool {self.tool.name}", title, tool=self.tool.name, method=METHOD, input=request_copy(params)
        )

    def stop_reason(self) -> str | None:
        """Return the reason for not calling the tool any more, if any."""
        if self._losses >= _MAX_LOSSES:
            return f"the tool left {self._losses} calls without an answer"
        if self._began is None:
            self._began = trio.current_time()
        if trio.current_time() - self._began > TOOL_SECONDS:
            return f"the previous calls took more than {TOOL_SECONDS:g} s"
        return None

    async def ask(self, arguments: object, *, timeout_seconds: float | None = None) -> RequestOutcome:
        """Send a call and count its outcome."""
        answer = await self.target.request(METHOD, self.params(arguments), timeout_seconds=timeout_seconds)
        self.answered += answer.failure is None
        self._losses += isinstance(answer.failure, TransportError)
        return answer

    async def _ask_briefly(self, arguments: object) -> RequestOutcome:
        """Send a call with a deadline that progress does not extend."""
        seconds = _UNUSUAL_FACTOR * self.target.options.timeout_seconds
        with trio.move_on_after(seconds):
            return await self.ask(arguments)
        self._losses += 1
        why = f"the tool was still running after {seconds:g} s; cancelled the call"
        return RequestOutcome(failure=DeadlineError(why), latency_ms=seconds * 1000)

    # --- generated arguments ---------------------------------------------------------------------------

    async def call_generated(self, case: Case) -> None:
        """Call with `case` and judge the answer."""
        with self._test_of(case) as draft:
            answer = await self._judge(case, draft)
            if answer.failure is None and _failed(draft):
                await self._shrink(case, draft)
        if case.kind != "invalid":
            self._count(case, answer)

    async def judge_valid(self, case: Case, draft: TestDraft) -> RequestOutcome:
        """Call with `case`, which is valid, and judge the answer in `draft`."""
        answer = await self._judge(case, draft)
        self._count(case, answer)
        return answer

    def _test_of(self, case: Case) -> AbstractContextManager[TestDraft]:
        kind = "arguments that violate the schema" if case.kind == "invalid" else f"{case.kind} arguments"
        return self.test(f"{kind}: {case.title}", self.params(case.arguments))

    def _count(self, case: Case, answer: RequestOutcome) -> None:
        """Add the call to those that succeeded, if it did."""
        if self._is_success(answer, case.arguments):
            assert answer.result is not None
            self.succeeded.append(AnsweredCall(case=case, result=answer.result, latency_ms=answer.latency_ms))

    async def _judge(self, case: Case, draft: TestDraft) -> RequestOutcome:
        is_unusual = case.kind in ("boundary", "random")
        answer = await (self._ask_briefly(case.arguments) if is_unusual else self.ask(case.arguments))
        note(draft, answer)
        undecided = None
        if self.answered and is_unusual:
            undecided = "the tool answers other arguments, and these may take long"
        seconds = self.target.options.timeout_seconds
        if not judge_answered(draft, answer, seconds=seconds, undecided_because=undecided):
            return answer
        await self._judge_shape(draft, answer, is_invalid=case.kind == "invalid")
        if case.kind == "invalid" and draft.undecided is None:
            judge_invalid(draft, answer, case.arguments, title=case.title, certain=case.certain)
        elif draft.undecided is None:
            judge_valid(draft, answer, case.arguments, tool=self.tool.name)
        return answer

    async def _shrink(self, case: Case, draft: TestDraft) -> None:
        """Look for the shortest arguments that fail the same check, once per check, and note them in `draft`.

        Only arguments that are as valid, or as invalid, as those of `case` are tried. A failure that does not
        repeat is noted as such: its arguments are not the cause.
        """
        names = _failed(draft) - self._shrunk
        if not names or not isinstance(case.arguments, dict):
            return
        self._shrunk |= names
        started, losses = trio.current_time(), self._losses
        left = MOST_SHRINK_CALLS

        async def fails(arguments: dict[str, Any]) -> bool:
            nonlocal left
            left -= 1
            again = TestDraft(subject=draft.subject, title=draft.title)
            await self._judge(replace(case, arguments=arguments), again)
            return bool(names & _failed(again))

        if not await fails(case.arguments):
            draft.note_failures("the same call did not fail again")
            return
        validity = await trio.to_thread.run_sync(Validity, self.tool.input_schema)
        shortest = case.arguments
        tried: set[str] = set()
        steps = simplifications(shortest, keep=case.place)
        while left > 0 and self._losses == losses and trio.current_time() < started + SHRINK_SECONDS:
            step = next(steps, None)
            if step is None:
                break
            name, arguments = step
            is_allowed = await trio.to_thread.run_sync(validity.allows, arguments)
            if name in tried or is_allowed is not (case.kind != "invalid"):
                continue
            tried.add(name)
            if await fails(arguments):
                shortest = arguments
                steps = simplifications(shortest, keep=case.place)
        if shortest != case.arguments:
            draft.shortest = request_copy(self.params(shortest))
        if self._began is not None:  # shrinking doesn't count against `TOOL_SECONDS`
            self._began += trio.current_time() - started

    async def call_without_arguments(self) -> None:
        """Call without `arguments`, which are optional, if `{}` is known to work."""
        if not any(it.case.arguments == {} for it in self.succeeded):
            return
        params = {"name": self.tool.name}
        with self.test("without arguments", params) as draft:
            answer = await self.target.request(METHOD, params)
            note(draft, answer)
            if not judge_answered(draft, answer, seconds=self.target.options.timeout_seconds):
                return
            if answer.error is None:
                draft.passed("tools.without-arguments")
            elif not self._is_success(await self.ask({}), {}):
                draft.undecided = "the tool now refuses arguments that it accepted before"
            else:
                why = f"expected the same result as for empty arguments, got {error_words(answer.error)}"
                draft.failed("tools.without-arguments", why)

    def _is_success(self, answer: RequestOutcome, arguments: object) -> bool:
        """Return True for a result that is neither marked as an error nor reads like one. Counts the
        errors."""
        if answer.error is not None or answer.result is None or answer.result.get("isError") is True:
            self._errors += answer.failure is None
            return False
        text = error_text(answer.result, arguments)
        self.unmarked = self.unmarked or text
        is_success = text is None and not asks_for_input(answer.result)
        if is_success:
            self.target.succeeded.setdefault(self.tool.name, arguments)
        return is_success

    def judge_marks(self) -> None:
        """Fail a tool if every answer reads like an error, but none is marked as one. Call it last."""
        if self.unmarked is None or self.succeeded or self._errors:
            return
        why = (
            "expected a result, or one with isError; every call with arguments that the schema allows got a"
            f" result without isError that reads like an error: {self.unmarked[:300]}"
        )
        with self.test("all calls", None) as draft:
            draft.failed("tools.errors-marked", why)

    async def _judge_shape(
        self, draft: TestDraft, answer: RequestOutcome, *, is_invalid: bool = False
    ) -> None:
        if answer.result is None:
            return
        if asks_for_input(answer.result):
            draft.undecided = "the tool asks for user input, or answered with a task"
            return
        judge = partial(
            judge_result,
            draft,
            answer.result,
            revision=self.target.protocol_version,
            # Errors need not conform to the schema, whether they are marked as errors or not.
            output_schema=None if is_invalid else self.tool.output_schema,
        )
        await trio.to_thread.run_sync(judge)

    # --- calls of the expectations file -----------------------------------------------------------

    async def call_expected(self, call: ExpectedCall, title: str) -> None:
        """Make a call of the expectations file, and compare the answer with it."""
        arguments = dict(call.arguments)
        seconds = self.target.options.timeout_seconds
        if call.max_latency_ms is not None:
            seconds = max(seconds, call.max_latency_ms / 1000)
        with self.test(title, self.params(arguments)) as draft:
            answer = await self.ask(arguments, timeout_seconds=seconds)
            note(draft, answer)
            if judge_answered(draft, answer, seconds=seconds):
                await self._judge_shape(draft, answer)
                await self._judge_expected(draft, answer, call)
        self._count(Case(title=title, arguments=arguments, kind="valid"), answer)

    async def _judge_expected(self, draft: TestDraft, answer: RequestOutcome, call: ExpectedCall) -> None:
        draft.require("tools.expected-outcome", _as_expected(answer, call), _outcome(answer, call))
        if call.max_latency_ms is not None:
            draft.require(
                "tools.expected-latency",
                answer.latency_ms <= call.max_latency_ms,
                f"expected an answer within {call.max_latency_ms:g} ms, got one after"
                f" {answer.latency_ms:.0f} ms",
            )
        if answer.result is None:
            return
        if not call.is_error and not call.patterns:  # patterns, if any, judge the text
            text = error_text(answer.result, call.arguments)
            if text is not None:
                draft.undecided = f"a result without isError reads like an error: {text[:300]}"
        if call.content_types is not None:
            got = kind_of_content(answer.result)
            draft.require(
                "tools.expected-content",
                got == list(call.content_types),
                f"expected content of the types {', '.join(call.content_types) or 'none'}; got"
                f" {', '.join(got) or 'none'}",
            )
        text = texts_of(answer.result)
        for pattern in call.patterns:
            is_found = await trio.to_thread.run_sync(_matches, pattern, text)
            draft.require(
                "tools.expected-text",
                is_found,
                f"expected text that matches {pattern!r}, got {text[:200]!r}",
            )


def _failed(draft: TestDraft) -> set[str]:
    return {check.kind.name for check in draft.checks if check.verdict == "failed"}


def _as_expected(answer: RequestOutcome, call: ExpectedCall) -> bool:
    if call.error_code is not None:
        return answer.error is not None and answer.error.code == call.error_code
    if answer.error is not None:
        return False
    return answer.result is not None and (answer.result.get("isError") is True) is call.is_error


def _outcome(answer: RequestOutcome, call: ExpectedCall) -> str:
    if call.error_code is not None:
        expected = f"JSON-RPC error {call.error_code}"
    else:
        expected = "a result with isError" if call.is_error else "a result without isError"
    if answer.error is not None:
        return f"expected {expected}, got {error_words(answer.error)}"
    result = answer.result or {}
    got = "one with isError" if result.get("isError") is True else "one without"
    return f"expected {expected}, got {got}: {texts_of(result)[:200]!r}"


def _matches(pattern: str, text: str) -> bool:
    try:
        return regex.search(pattern, text, timeout=_PATTERN_SECONDS) is not None
    except (TimeoutError, regex.error):
        return False
