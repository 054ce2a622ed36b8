"""The tests of one tool: calls with valid, unusual and invalid arguments, concurrent and cancelled calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import mcp_types as types
import trio

from playhead.check.arguments.cases import Case
from playhead.check.arguments.generate import arguments_for, distinct_arguments
from playhead.check.arguments.mine import normalized
from playhead.check.probes.asking import excerpt, text_in
from playhead.check.probes.media import judge_base64_audio, looks_like_audio
from playhead.check.probes.resources import probe_link
from playhead.check.probes.tool_calls import METHOD, ToolCalls
from playhead.check.results import TestDraft, TestResult
from playhead.check.target import RequestOutcome, Target
from playhead.client.session.tool_calls import has_default_hints, needs_task


async def probe_tool(target: Target, tool: types.Tool) -> None:
    """Test `tool`.

    Calls of the expectations file come first, then proposed ones. A tool with an explicit `destructiveHint:
    true` is called only if the options allow it, or if all tools have the protocol's default annotations,
    which say nothing; one that runs only as a task is not called.
    """
    if (why := skip_reason(target, tool)) is not None:
        target.on_test(skipped_test(tool, "all calls", why))
        return
    options = target.options
    calls = ToolCalls(target, tool)
    expected = options.expectations.of_tool(tool.name) if options.expectations is not None else ()
    for index, call in enumerate(expected):
        await calls.call_expected(call, f"expected call {index + 1}")
    await _call_all(calls, "proposed arguments", target.proposals.get(tool.name, ()))
    generated = await trio.to_thread.run_sync(
        partial(arguments_for, tool.input_schema, seed=options.seed, examples=options.examples)
    )
    for remark in generated.remarks:
        target.on_test(skipped_test(tool, "generated arguments", remark))
    await _call_all(calls, "valid arguments", [case for case in generated.valid if case.kind == "valid"])
    await calls.call_without_arguments()
    await probe_media(target, [it.result for it in calls.succeeded], tool=tool.name)
    await _call_all(calls, "arguments that violate the schema", generated.invalid)
    if calls.stop_reason() is None:
        await probe_concurrency(calls)
    if calls.stop_reason() is None:
        await probe_cancellation(calls)
    # This is the last step, because arguments that a schema allows may mean hours of work for a tool.
    await _call_all(calls, "unusual arguments", [case for case in generated.valid if case.kind != "valid"])
    calls.judge_marks()


async def _call_all(calls: ToolCalls, what: str, cases: Iterable[Case]) -> None:
    left = list(cases)
    while left:
        if (why := calls.stop_reason()) is not None:
            calls.target.on_test(skipped_test(calls.tool, what, f"{len(left)} more were not sent: {why}"))
            return
        await calls.call_generated(left.pop(0))


_MACHINE: Final = re.compile(
    r"(?:^|_)(?:volume|brightness|shut_?down|power_?off|reboot|suspend|hibernate|log_?out|lock_?screen"
    r"|wallpaper|wi_?fi|bluetooth|mouse|keyboard|kill_?process|format_?disk|uninstall|mute|unmute|microphone|firewall)"
    r"(?:$|_)"
)
"""Matches the names of tools that change the machine on which their server runs."""
# fmt: off
_LOOKS: Final = frozenset([
    "get", "list", "read", "show", "query", "status", "describe", "check", "find", "search", "info", "is",
])
# fmt: on


def skip_reason(target: Target, tool: types.Tool) -> str | None:
    """Return the reason for not calling a tool, if any."""
    options = target.options
    name = normalized(tool.name)
    if (
        not options.allow_destructive
        and target.is_here
        and (match := _MACHINE.search(name)) is not None
        and not _LOOKS & set(name.split("_"))
    ):
        return (
            f"the tool may change this machine ({match[0].strip('_')}), on which its server runs;"
            " --allow-destructive calls it"
        )
    destructive = tool.annotations is not None and tool.annotations.destructive_hint is True
    if destructive and not (options.allow_destructive or has_default_hints(target.tools)):
        return "the tool is marked as destructive (destructiveHint); --allow-destructive calls it"
    if needs_task(tool.model_dump(by_alias=True)):
        return "the tool runs only as a task, which is not tested"
    return None


def is_read_only(target: Target, tool: types.Tool) -> bool:
    """Return True for a tool with an explicit `readOnlyHint: true`."""
    hints = tool.annotations
    return hints is not None and hints.read_only_hint is True and not has_default_hints(target.tools)


def skipped_test(tool: types.Tool, title: str, why: str) -> TestResult:
    return TestResult(
        subject=f"tool {tool.name}",
        title=title,
        tool=tool.name,
        method=METHOD,
        status="skipped",
        error=why,
    )


MOST_AUDIO: Final = 3
MOST_LINKS: Final = 3
"""Limits the links tested per tool. They tend to have the same defects, and each is read more than once."""


async def probe_media(target: Target, results: Sequence[Mapping[str, Any]], *, tool: str) -> None:
    """Judge the audio and the links in `results`, the unvalidated results of calls to `tool`.

    Errors are ignored. Call it once per tool, so that the same link is read once.
    """
    blocks = [
        block
        for result in results
        if result.get("isError") is not True and isinstance(result.get("content"), list)
        for block in result["content"]
        if isinstance(block, dict)
    ]
    audio: dict[str, tuple[str | None, str | None]] = {}
    links: dict[tuple[str, object], Mapping[str, Any]] = {}
    for block in blocks:
        inner = block.get("resource")
        match block.get("type"):
            case "audio" if isinstance(block.get("data"), str):
                audio.setdefault(block["data"], (text_in(block, "mimeType"), None))
            case "resource" if isinstance(inner, dict) and isinstance(inner.get("blob"), str):
                if looks_like_audio(inner, text_in(inner, "uri")):
                    audio.setdefault(inner["blob"], (text_in(inner, "mimeType"), text_in(inner, "uri")))
            case "resource_link" if isinstance(block.get("uri"), str):
                links.setdefault((block["uri"], block.get("description")), block)
    for base64, (mime_type, uri) in list(audio.items())[:MOST_AUDIO]:
        with target.test(f"tool {tool}", f"its audio ({mime_type})", tool=tool) as draft:
            await judge_base64_audio(draft, base64, mime_type=mime_type, uri=uri)
    for link in list(links.values())[:MOST_LINKS]:
        await probe_link(target, link, tool=tool)


_SERIAL_SECONDS: Final = 10.0
"""Limits the sequential calls that are made for comparison."""
_CONFIRMATIONS: Final = 2


async def probe_concurrency(calls: ToolCalls) -> None:
    """Send `calls_at_once` concurrent calls. Calls nothing if no call has succeeded.

    Answers are mixed up if a call gets the answer of another concurrent call, and never gets that answer when
    it is sent alone. Tools whose answers are all alike, or never the same twice, prove nothing.
    """
    count = calls.target.options.calls_at_once
    if not calls.succeeded or count < 2:
        return
    base = calls.succeeded[0]
    each_ms = min(it.latency_ms for it in calls.succeeded)
    arguments = await trio.to_thread.run_sync(
        distinct_arguments, calls.tool.input_schema, base.case.arguments, count
    )
    one_by_one: list[RequestOutcome] = []
    if len(arguments) == count and each_ms * count / 1000 <= _SERIAL_SECONDS:
        one_by_one = [await calls.ask(one) for one in arguments]
    else:
        arguments = [base.case.arguments] * count
    in_series_ms = sum(it.latency_ms for it in one_by_one) or count * each_ms
    alone = [_answer_key(it) for it in one_by_one]
    # A long poll answers from what is pending, and waits the next time: concurrency is not the reason.
    one_by_one.append(await calls.ask(arguments[0]))
    # A server that runs one call at a time is slow, but correct.
    seconds = calls.target.options.timeout_seconds + in_series_ms / 1000
    with calls.test(f"{count} concurrent calls", [calls.params(one) for one in arguments]) as draft:
        if any(it.failure is not None for it in one_by_one):
            draft.skipped("tools.concurrent", "one of the calls is not answered alone, or only once")
            return
        started = trio.current_time()
        answers = await _at_once(calls, arguments, seconds)
        draft.latency_ms = (trio.current_time() - started) * 1000
        draft.output = excerpt([_answer_value(it) for it in answers])
        unanswered = [it for it in answers if it.failure is not None]
        draft.void = next((it.void for it in answers if it.void is not None), None)
        if unanswered:
            draft.failed(
                "tools.concurrent",
                f"expected an answer to each of {count} concurrent calls, got none to"
                f" {len(unanswered)} of them: {unanswered[0].failure}",
            )
        else:
            together = [_answer_key(it) for it in answers]
            mix_up = await _mixed_answers(calls, arguments, alone, together)
            draft.require("tools.concurrent", mix_up is None, mix_up or "")


async def _at_once(calls: ToolCalls, arguments: Sequence[Any], seconds: float) -> list[RequestOutcome]:
    answers: dict[int, RequestOutcome] = {}

    async def call(index: int) -> None:
        answers[index] = await calls.ask(arguments[index], timeout_seconds=seconds)

    async with trio.open_nursery() as nursery:
        for index in range(len(arguments)):
            nursery.start_soon(call, index)
    return [answers[index] for index in range(len(arguments))]


async def _mixed_answers(
    calls: ToolCalls, arguments: Sequence[Any], alone: Sequence[str | None], together: Sequence[str | None]
) -> str | None:
    """Return a message if answers were mixed up, else None. `alone` may be empty."""
    for index, got in enumerate(together if alone else ()):
        own = alone[index]
        if got is None or own is None or got == own:
            continue
        other = next((at for at, known in enumerate(alone) if known == got and at != index), None)
        if other is None:
            continue
        again = {_answer_key(await calls.ask(arguments[index])) for _ in range(_CONFIRMATIONS)}
        if again == {own}:
            return (
                f"expected the answer to {_brief(arguments[index])}, got that of the concurrent call"
                f" {_brief(arguments[other])}"
            )
    return None


def _answer_key(answer: RequestOutcome) -> str | None:
    """Return the comparable form of a result; None without a result."""
    if answer.result is None:
        return None
    return json.dumps({key: it for key, it in answer.result.items() if key != "_meta"}, sort_keys=True)


def _brief(arguments: object) -> str:
    return json.dumps(arguments, ensure_ascii=False)[:120]


def _answer_value(answer: RequestOutcome) -> Any:
    if answer.result is not None:
        return answer.result
    return str(answer.failure) if answer.error is None else {"error": answer.error.message}


SLOW_SECONDS: Final = 0.3
"""A late answer is judged from this latency on. A faster one may cross the cancellation."""
_LONGEST_SECONDS: Final = 8.0
"""Limits the latency of a tool whose late answer is waited for."""


async def probe_cancellation(calls: ToolCalls) -> None:
    """Cancel one call. Calls nothing if no call has succeeded.

    A result that arrives all the same is a remark, since the specification lets a server finish. The answer
    of a fast tool may cross the cancellation. The server has to survive in any case.
    """
    if not calls.succeeded:
        return
    bearable = [it for it in calls.succeeded if it.latency_ms <= _LONGEST_SECONDS * 1000]
    call = max(bearable or calls.succeeded, key=lambda it: it.latency_ms)
    seconds = call.latency_ms / 1000
    # A tool that was slow only by chance answers now before the cancellation, or before counting starts.
    is_slow = SLOW_SECONDS <= seconds <= _LONGEST_SECONDS
    reconnects = calls.target.session.statistics().reconnects
    with calls.test("a cancelled call", calls.params(call.case.arguments)) as draft:
        with trio.move_on_after(seconds / 4) as scope:
            await calls.ask(call.case.arguments)
        if not scope.cancelled_caught:
            draft.skipped("tools.cancel-survives", "the tool answered before the call could be cancelled")
            return
        if is_slow:
            await _note_late(calls, seconds)
        await _judge_alive(calls, draft, reconnects)


async def _note_late(calls: ToolCalls, seconds: float) -> None:
    """Remark a result that is sent despite the cancellation."""
    session = calls.target.session
    await trio.sleep(seconds / 4)  # wait for answers that were sent before the cancellation arrived
    before = session.protocol_faults().late_results
    await trio.sleep(seconds)
    if session.protocol_faults().late_results != before:
        calls.target.remarks.append(
            f"the tool {calls.tool.name} does not stop when it is cancelled: a call that was cancelled after"
            f" {seconds / 4:.2f} s sent its result more than {seconds / 4:.2f} s later"
        )


async def _judge_alive(calls: ToolCalls, draft: TestDraft, reconnects: int) -> None:
    answer = await calls.target.request("tools/list")
    lost = calls.target.session.statistics().reconnects > reconnects
    draft.require(
        "tools.cancel-survives",
        (answer.failure is None or answer.void is not None) and not lost,
        "expected the server to answer tools/list after a cancellation,"
        f" got: {answer.failure or 'the end of its connection'}",
    )
