"""Load: clients that repeat a request, and the figures of their answers.

The engine (`run_load`, `LoadMeter`) knows no server. A request is a function that returns a `LoadAnswer`.
`probe_load` repeats the requests that a server answered before, over the connection of the check. In
`playhead fleet` a request is a whole play (`PlayRecord`); `fleet_figures` joins the records of all processes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from playhead.check.options import LoadPlan
from playhead.check.probes.asking import error_words
from playhead.check.results import LoadFigures, TestResult, successful_requests
from playhead.check.target import STILL_RATE_LIMITED, Target, is_rate_limited

_MOST_READS: Final = 3
"""Limits the resources that are read under load, because the figures of all tend to be alike."""
_MILLISECONDS: Final = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAnswer:
    """The outcome of one request."""

    size_bytes: int = 0
    failure: str | None = None
    """The reason why no usable answer arrived; None for a success."""


@dataclass(slots=True)
class LoadMeter:
    """Collects answers, of any number of clients, and computes the figures."""

    latencies_ms: list[float] = field(default_factory=list)
    """The latencies of successful requests."""
    size_bytes: int = 0
    failures: int = 0
    first_failure: str | None = None

    def add(self, answer: LoadAnswer, latency_ms: float) -> None:
        """Count one answer."""
        if answer.failure is not None:
            self.failures += 1
            self.first_failure = self.first_failure or answer.failure
            return
        self.latencies_ms.append(latency_ms)
        self.size_bytes += answer.size_bytes

    def figures(self, *, subject: str, method: str, clients: int, seconds: float) -> LoadFigures:
        """Return the figures of everything that was added within `seconds`."""
        ordered = sorted(self.latencies_ms)
        return LoadFigures(
            subject=subject,
            method=method,
            clients=clients,
            requests=len(ordered) + self.failures,
            failures=self.failures,
            first_failure=self.first_failure,
            seconds=seconds,
            p50_ms=percentile(ordered, 0.50),
            p95_ms=percentile(ordered, 0.95),
            requests_per_second=len(ordered) / seconds if seconds > 0 else 0.0,
            bytes_per_second=self.size_bytes / seconds if seconds > 0 else 0.0,
        )


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile of ascending values, a value that did occur; None without any."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


async def run_load(plan: LoadPlan, request: Callable[[], Awaitable[LoadAnswer]]) -> tuple[LoadMeter, float]:
    """Send requests as `plan` says; return their meter and the seconds that they took.

    All clients call `request` at once. It reports its failures in the answer; an exception from it ends the
    load. Cancellation cancels the requests in flight, and nothing is returned.
    """
    meter = LoadMeter()
    started = trio.current_time()

    async def client() -> None:
        for _ in range(plan.requests):
            sent = trio.current_time()
            answer = await request()
            meter.add(answer, (trio.current_time() - sent) * _MILLISECONDS)

    with trio.move_on_after(plan.seconds):
        async with trio.open_nursery() as nursery:
            for _ in range(plan.clients):
                nursery.start_soon(client)
    return meter, trio.current_time() - started


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayRecord:
    """One play of an item of a fleet's play list."""

    item: int
    failure: str | None = None
    first_audio_ms: float | None = None
    """The time from the request for the item to its first frame; None if none was played."""
    underruns: int = 0
    reads: int = 0
    """The number of `resources/read` that the server received."""
    hedges: int = 0
    """The number of second reads of a late page."""
    size_bytes: int = 0
    server_bytes: int = 0
    cache_bytes: int = 0
    pcm_sha256: str | None = None
    """The digest of everything that was played; None if it was not played to its end."""


def fleet_figures(plays: Sequence[PlayRecord]) -> dict[str, object]:
    """Return the figures of the plays of all processes, for `--json`.

    `different` counts the items whose plays were not all the same audio. `audio_sha256` has the digest of
    each item's PCM, by its place in the play list, to compare with the digest of its source.
    """
    first_audio = sorted(play.first_audio_ms for play in plays if play.first_audio_ms is not None)
    digests: dict[int, set[str]] = {}
    for play in plays:
        if play.pcm_sha256 is not None:
            digests.setdefault(play.item, set()).add(play.pcm_sha256)
    return {
        "plays": len(plays),
        "failed": sum(play.failure is not None for play in plays),
        "first_failure": next((play.failure for play in plays if play.failure is not None), None),
        "first_audio_p50_ms": percentile(first_audio, 0.50),
        "first_audio_p95_ms": percentile(first_audio, 0.95),
        "underruns": sum(play.underruns for play in plays),
        "different": sum(len(of_item) > 1 for of_item in digests.values()),
        "audio_sha256": {str(item): min(of_item) for item, of_item in sorted(digests.items())},
        "reads": sum(play.reads for play in plays),
        "hedges": sum(play.hedges for play in plays),
        "bytes": sum(play.size_bytes for play in plays),
        "server_bytes": sum(play.server_bytes for play in plays),
        "cache_bytes": sum(play.cache_bytes for play in plays),
    }


async def probe_load(
    target: Target, plan: LoadPlan, tests: Sequence[TestResult], on_figures: Callable[[LoadFigures], None]
) -> None:
    """Repeat one successful call of each tool in `tests`, and one read of some resources.

    Each repeated request is a test, and `on_figures` receives its figures. Destructive tools that the options
    don't allow have no successful call, and so are not called.
    """
    chosen = list(_repeatable(tests))
    if not chosen:
        why = "no request was answered with a result that could be repeated"
        target.on_test(TestResult(subject="load", title=str(plan), status="skipped", error=why))
    for test in chosen:
        on_figures(await _measure(target, plan, test))


def _repeatable(tests: Sequence[TestResult]) -> Iterator[TestResult]:
    """Choose the first reads, and the first successful call of each tool.

    Reads come first: a server may drop what a tool made when many calls have followed.
    """
    for method, most in (("resources/read", _MOST_READS), ("tools/call", None)):
        first: dict[str, TestResult] = {}
        for test in successful_requests(tests, method):
            first.setdefault(test.subject, test)
        yield from list(first.values())[:most]


async def _measure(target: Target, plan: LoadPlan, test: TestResult) -> LoadFigures:
    method, params = test.method, test.input
    assert method is not None, "a successful request has a method"
    assert isinstance(params, Mapping), "and complete parameters"
    title = f"load {plan}"
    with target.test(test.subject, title, tool=test.tool, method=method, input=params) as draft:

        async def request() -> LoadAnswer:
            answer = await target.request_once(method, params, timeout_seconds=target.options.timeout_seconds)
            if is_rate_limited(answer):
                draft.void = STILL_RATE_LIMITED
            if answer.result is None:
                failure = str(answer.failure) if answer.error is None else error_words(answer.error)
                return LoadAnswer(failure=failure)
            if answer.result.get("isError") is True:
                return LoadAnswer(failure="a result with isError")
            text = json.dumps(answer.result, ensure_ascii=False, separators=(",", ":"))
            return LoadAnswer(size_bytes=len(text.encode("utf-8", "surrogatepass")))

        meter, seconds = await run_load(plan, request)
        figures = meter.figures(subject=test.subject, method=method, clients=plan.clients, seconds=seconds)
        if figures.requests == 0:
            why = f"no request was answered within {plan.seconds:g} s"
            draft.failed("load.answered", f"expected results, as for a single client; {why}")
        else:
            draft.require(
                "load.answered",
                figures.failures == 0,
                f"expected {figures.requests} results, as for a single client, got"
                f" {figures.requests - figures.failures}; the first failure: {figures.first_failure}",
            )
    return figures
