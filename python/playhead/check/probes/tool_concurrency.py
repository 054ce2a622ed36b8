"""Several calls of one tool at once: is each answered, and with its own answer?

Only one thing proves that answers were mixed: a call is answered with what belongs to another call of the
same moment, and never with that when it is alone. Tools whose answers are all alike, or never the same twice,
prove nothing either way.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import trio

from playhead.check.arguments import distinct_arguments
from playhead.check.probes import tool_kinds as kinds
from playhead.check.probes.asking import TOO_OFTEN, sent, shown
from playhead.check.probes.tool_calls import METHOD, ToolCalls
from playhead.check.results import TestDraft
from playhead.check.target import Answer

_SERIAL_SECONDS: Final = 10.0
"""The calls one by one, for comparison, may take this long together."""
_CONFIRMATIONS: Final = 2


async def probe_concurrency(calls: ToolCalls) -> None:
    """Send `calls_at_once` calls at the same moment. Calls nothing where no call before succeeded."""
    count = calls.target.options.calls_at_once
    if not calls.succeeded or count < 2:
        return
    base = calls.succeeded[0]
    each_ms = min(it.latency_ms for it in calls.succeeded)
    arguments = await trio.to_thread.run_sync(
        distinct_arguments, calls.tool.input_schema, base.case.arguments, count
    )
    one_by_one: list[Answer] = []
    if len(arguments) == count and each_ms * count / 1000 <= _SERIAL_SECONDS:
        one_by_one = [await calls.ask(one) for one in arguments]
    else:
        arguments = [base.case.arguments] * count
    in_series_ms = sum(it.latency_ms for it in one_by_one) or count * each_ms
    alone = [_key(it) for it in one_by_one]
    draft = TestDraft(
        subject=calls.subject,
        title=f"{count} calls at once",
        tool=calls.tool.name,
        method=METHOD,
        input=sent([calls.params(one) for one in arguments]),
    )
    # A server that takes one call after the other is slow, and within its rights.
    seconds = calls.target.options.timeout_seconds + in_series_ms / 1000
    started = trio.current_time()
    answers = await _at_once(calls, arguments, seconds)
    draft.latency_ms = (trio.current_time() - started) * 1000
    draft.output = shown([_shown(it) for it in answers])
    unanswered = [it for it in answers if it.failure is not None]
    if any(it.too_often for it in answers):
        draft.void = TOO_OFTEN
    if any(it.failure is not None for it in one_by_one):
        draft.skipped(kinds.CONCURRENT, "one of the calls was not answered when it was alone either")
    elif unanswered:
        draft.failed(
            kinds.CONCURRENT,
            f"expected an answer to each of {count} calls at once, came none to {len(unanswered)} of them:"
            f" {unanswered[0].failure}",
        )
    else:
        mixed = await _mixed(calls, arguments, alone, [_key(it) for it in answers])
        draft.require(kinds.CONCURRENT, mixed is None, mixed or "")
    calls.found(draft.done())


async def _at_once(calls: ToolCalls, arguments: Sequence[Any], seconds: float) -> list[Answer]:
    answers: dict[int, Answer] = {}

    async def call(index: int) -> None:
        answers[index] = await calls.ask(arguments[index], timeout_seconds=seconds)

    async with trio.open_nursery() as nursery:
        for index in range(len(arguments)):
            nursery.start_soon(call, index)
    return [answers[index] for index in range(len(arguments))]


async def _mixed(
    calls: ToolCalls, arguments: Sequence[Any], alone: Sequence[str | None], together: Sequence[str | None]
) -> str | None:
    """What proves that answers were mixed, or None."""
    for index, came in enumerate(together if alone else ()):
        own = alone[index]
        if came is None or own is None or came == own:
            continue
        other = next((at for at, known in enumerate(alone) if known == came and at != index), None)
        if other is None:
            continue
        again = {_key(await calls.ask(arguments[index])) for _ in range(_CONFIRMATIONS)}
        if again == {own}:
            return (
                f"expected the answer to {_brief(arguments[index])}, came the one to"
                f" {_brief(arguments[other])}, which was under way at the same time"
            )
    return None


def _key(answer: Answer) -> str | None:
    if answer.result is None:
        return None
    return json.dumps({key: it for key, it in answer.result.items() if key != "_meta"}, sort_keys=True)


def _brief(arguments: object) -> str:
    return json.dumps(arguments, ensure_ascii=False)[:120]


def _shown(answer: Answer) -> Any:
    if answer.result is not None:
        return answer.result
    return str(answer.failure) if answer.error is None else {"error": answer.error.message}
