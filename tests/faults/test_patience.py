"""Patience: a stream gives up only when its reader has starved, and sends few requests.

All in simulated time, against a moody resource in this process. Its log gives the requests per second.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import trio
import trio.testing

from playhead.errors import (
    ConnectionLostError,
    DeadlineError,
    HttpStatusError,
    PlayheadError,
    StreamBrokenError,
)
from playhead.stream.answer import Page
from playhead.stream.options import StreamEvent, StreamOptions, StreamStatistics, StreamWaiting
from playhead.stream.reader import RangeStream, open_stream
from tests.faults.verdicts import retries_in_the_busiest_second
from tests.servers.moods import (
    Fault,
    FaultKind,
    Mood,
    MoodyPages,
    MoodyResource,
    Outage,
    OutageKind,
    Stall,
    truth,
)

MP3_BYTES_PER_SECOND = 40_000
CD_BYTES_PER_SECOND = 176_400
PATIENCE_SECONDS = 60.0
BACKOFF_MAX_SECONDS = 5.0
"""Between two tries of the head page, without the jitter's half."""

BIG = 4_000_000
LONG = 24_000_000
LATENCY_SECONDS = 0.05
AT_OUTAGE_SECONDS = 0.3
"""In the middle of LONG: no more than a ring's 3 MiB arrive per latency, so it takes 0.38 s or longer."""

STEP_SECONDS = 0.1


@dataclass(slots=True, kw_only=True)
class Heard:
    """The bytes of a reader, and its waits."""

    data: bytearray = field(default_factory=bytearray)
    error: PlayheadError | None = None
    seconds: float = 0.0
    waits: list[tuple[int, float]] = field(default_factory=list)
    """Each wait: at which offset, and for how long."""
    events: list[StreamEvent] = field(default_factory=list)
    statistics: StreamStatistics | None = None

    @property
    def longest_wait(self) -> float:
        return max((seconds for offset, seconds in self.waits if offset > 0), default=0.0)


async def listen(
    resource: MoodyResource,
    *,
    bytes_per_second: float | None = None,
    options: StreamOptions | None = None,
    size_bytes: int | None = None,
    trickles: bool = False,
) -> Heard:
    """Read to the end or to the error, at once or as a player of `bytes_per_second` does."""
    heard = Heard()
    pages = MoodyPages(resource, trickles=trickles)
    chosen = options or StreamOptions(on_event=heard.events.append)
    started = trio.current_time()
    with trio.fail_after(3000):
        async with open_stream(
            pages, options=chosen, size_bytes=size_bytes, last_received=pages.last_received
        ) as stream:
            try:
                await _take_all(stream, heard, bytes_per_second)
            except PlayheadError as error:
                heard.error = error
            heard.seconds = trio.current_time() - started
            heard.statistics = stream.statistics()
    return heard


async def _take_all(stream: RangeStream, heard: Heard, bytes_per_second: float | None) -> None:
    step_bytes = None if bytes_per_second is None else int(bytes_per_second * STEP_SECONDS)
    due = trio.current_time()
    while True:
        before = trio.current_time()
        chunk = await stream.receive_some(step_bytes)
        if (waited := trio.current_time() - before) > 0:
            heard.waits.append((len(heard.data), waited))
            due += waited
        if not chunk:
            return
        heard.data += chunk
        if bytes_per_second is not None:
            due += len(chunk) / bytes_per_second
            await trio.sleep_until(due)


def exact(heard: Heard, resource: MoodyResource) -> bool:
    return heard.error is None and bytes(heard.data) == truth(resource.mood)


def asked_again(resource: MoodyResource) -> int:
    """Reads of bytes for which an earlier read had asked: hedges, retries, and evidence of the end."""
    asked = [(entry.start, entry.end) for entry in resource.log]
    return sum(
        any(start < known_end and known_start < end for known_start, known_end in asked[:number])
        for number, (start, end) in enumerate(asked)
    )


# --- stalls and outages ----------------------------------------------------------------------------------


@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize("seconds", [5.0, 20.0, 45.0])
async def test_a_stall_costs_its_time_and_nothing_else(
    autojump_clock: trio.testing.MockClock, seconds: float, serial: bool
) -> None:
    stall = Stall(at_seconds=AT_OUTAGE_SECONDS, seconds=seconds)
    resource = MoodyResource(Mood(size_bytes=LONG, delay_seconds=LATENCY_SECONDS, stall=stall, serial=serial))
    heard = await listen(resource)
    assert exact(heard, resource), heard.error
    honest = MoodyResource(Mood(size_bytes=LONG, delay_seconds=LATENCY_SECONDS, serial=serial))
    assert heard.seconds < seconds + (await listen(honest)).seconds + BACKOFF_MAX_SECONDS
    # Not all reads: pages grow to 200 or to 400 KiB, by the order in which trio runs tasks of one instant.
    assert asked_again(resource) <= asked_again(honest) + seconds


@pytest.mark.parametrize("serial", [False, True])
async def test_patience_ends_too_if_not_one_byte_has_arrived(
    autojump_clock: trio.testing.MockClock, serial: bool
) -> None:
    await trio.sleep(10)  # no time of this clock is that of its start
    resource = MoodyResource(Mood(size_bytes=LONG, delay_seconds=1000.0, serial=serial))
    heard = await listen(resource, options=StreamOptions(patience_seconds=3.0, timeout=30.0))
    assert isinstance(heard.error, StreamBrokenError)
    assert heard.seconds == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize("how", ["hang-up", "503", "-32603"])
@pytest.mark.parametrize("seconds", [5.0, 20.0, 45.0])
async def test_during_an_outage_only_the_head_is_tried_at_most_twice_a_second(
    autojump_clock: trio.testing.MockClock, how: OutageKind, seconds: float
) -> None:
    over = AT_OUTAGE_SECONDS + seconds
    outage = Outage(after_seconds=AT_OUTAGE_SECONDS, until_seconds=over, how=how)
    resource = MoodyResource(Mood(size_bytes=LONG, delay_seconds=LATENCY_SECONDS, outage=outage))
    heard = await listen(resource)
    assert exact(heard, resource), heard.error
    assert heard.seconds < over + BACKOFF_MAX_SECONDS + 5
    during = [entry for entry in resource.log if AT_OUTAGE_SECONDS <= entry.arrived_at < over]
    assert during, "nothing was asked during the outage"
    # The same JSON-RPC error, three times, may be how the server says that the file is over.
    allowed = 3 if how == "-32603" else 2
    assert retries_in_the_busiest_second(resource.log, until=over) <= allowed
    heads = {entry.start for entry in during if entry.arrived_at > AT_OUTAGE_SECONDS + 2}
    assert len(heads) <= 1, f"more than the head page was retried: {sorted(heads)}"
    assert heard.statistics is not None
    assert len(during) <= heard.statistics.in_flight_max + 2 + seconds


@pytest.mark.parametrize(
    ("how", "cause"),
    [("hang-up", ConnectionLostError), ("503", HttpStatusError), ("silent", DeadlineError)],
)
async def test_a_server_that_stays_dead_ends_the_read_after_patience_with_the_offset(
    autojump_clock: trio.testing.MockClock, how: OutageKind, cause: type[PlayheadError]
) -> None:
    resource = MoodyResource(
        Mood(size_bytes=BIG, delay_seconds=LATENCY_SECONDS, outage=Outage(from_offset=300_000, how=how))
    )
    heard = await listen(resource)
    assert isinstance(heard.error, StreamBrokenError)
    assert isinstance(heard.error.__cause__, cause)
    assert heard.error.offset == len(heard.data) <= 300_000
    assert heard.data == truth(resource.mood)[: len(heard.data)]
    assert PATIENCE_SECONDS <= heard.seconds < PATIENCE_SECONDS + 2 * BACKOFF_MAX_SECONDS
    assert str(heard.error.offset) in str(heard.error)
    assert len(resource.log) < 20 + 2 * PATIENCE_SECONDS


@pytest.mark.parametrize("seconds", [3.0, 10.0])
async def test_patience_is_what_the_options_say(
    autojump_clock: trio.testing.MockClock, seconds: float
) -> None:
    resource = MoodyResource(Mood(size_bytes=BIG, outage=Outage(from_offset=300_000)))
    heard = await listen(resource, options=StreamOptions(patience_seconds=seconds))
    assert isinstance(heard.error, StreamBrokenError)
    assert seconds <= heard.seconds < seconds + BACKOFF_MAX_SECONDS


# --- a listener, whose buffer outlasts the outage --------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "bytes_per_second", "seconds"),
    [
        (how, rate, seconds)
        for how in ("stall", "503", "hang-up")
        for rate, seconds in (
            (MP3_BYTES_PER_SECOND, 5.0),
            (MP3_BYTES_PER_SECOND, 20.0),
            (MP3_BYTES_PER_SECOND, 45.0),
            (CD_BYTES_PER_SECOND, 5.0),
            (CD_BYTES_PER_SECOND, 12.0),
        )
        # After an error the next try may be 5 s away, so that 12 s would empty a ring of CD audio.
        if how == "stall" or (rate, seconds) != (CD_BYTES_PER_SECOND, 12.0)
    ],
)
async def test_a_listener_hears_nothing_of_an_outage_that_its_buffer_outlasts(
    autojump_clock: trio.testing.MockClock, how: str, bytes_per_second: int, seconds: float
) -> None:
    at = 20.0
    mood = Mood(size_bytes=bytes_per_second * 100, delay_seconds=LATENCY_SECONDS)
    if how == "stall":
        mood = replace(mood, stall=Stall(at_seconds=at, seconds=seconds))
    else:
        kind: OutageKind = "503" if how == "503" else "hang-up"
        mood = replace(mood, outage=Outage(after_seconds=at, until_seconds=at + seconds, how=kind))
    resource = MoodyResource(mood)
    heard = await listen(resource, bytes_per_second=bytes_per_second)
    assert exact(heard, resource), heard.error
    assert heard.longest_wait == 0.0
    assert retries_in_the_busiest_second(resource.log, until=at + seconds) <= 2


async def test_patience_runs_only_while_the_reader_starves(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The outage lasts two minutes; the ring holds 75 s of it, and patience the rest."""
    outage = Outage(after_seconds=20.0, until_seconds=140.0, how="503")
    resource = MoodyResource(
        Mood(size_bytes=MP3_BYTES_PER_SECOND * 240, delay_seconds=LATENCY_SECONDS, outage=outage)
    )
    heard = await listen(resource, bytes_per_second=MP3_BYTES_PER_SECOND)
    assert exact(heard, resource), heard.error
    assert 0 < heard.longest_wait < PATIENCE_SECONDS


async def test_a_listener_of_a_dead_server_hears_the_buffer_out_before_the_error(
    autojump_clock: trio.testing.MockClock,
) -> None:
    resource = MoodyResource(
        Mood(
            size_bytes=MP3_BYTES_PER_SECOND * 240,
            delay_seconds=LATENCY_SECONDS,
            outage=Outage(after_seconds=20.0, how="hang-up"),
        )
    )
    heard = await listen(resource, bytes_per_second=MP3_BYTES_PER_SECOND)
    assert isinstance(heard.error, StreamBrokenError)
    audio_seconds = len(heard.data) / MP3_BYTES_PER_SECOND
    assert audio_seconds > 20 + 70, "the ring had less than 70 s in it"
    assert audio_seconds + PATIENCE_SECONDS <= heard.seconds + STEP_SECONDS
    assert heard.seconds < audio_seconds + PATIENCE_SECONDS + 2 * BACKOFF_MAX_SECONDS


# --- slow and failing pages ------------------------------------------------------------------------------


@pytest.mark.parametrize("serial", [False, True])
async def test_pages_of_three_seconds_are_slow_and_nothing_else(
    autojump_clock: trio.testing.MockClock, serial: bool
) -> None:
    resource = MoodyResource(Mood(size_bytes=BIG, delay_seconds=3.0, serial=serial))
    heard = await listen(resource)
    assert exact(heard, resource), heard.error
    assert heard.statistics is not None
    assert heard.statistics.retries == 0
    assert heard.statistics.hedges <= 2
    assert not any(entry.answered_at is None for entry in resource.log if entry.start < BIG), "cancelled"


async def test_a_page_that_trickles_for_longer_than_the_timeout_is_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    resource = MoodyResource(Mood(size_bytes=200_000, delay_seconds=45.0))
    heard = await listen(resource, trickles=True)
    assert exact(heard, resource), heard.error
    assert heard.statistics is not None
    assert heard.statistics.retries == 0
    answered = {entry.start for entry in resource.log if entry.answered_at is not None}
    cancelled = [entry for entry in resource.log if entry.start < 200_000 and entry.answered_at is None]
    assert len(cancelled) <= heard.statistics.hedges, "the loser of a hedge, and no other, is cancelled"
    assert all(entry.start in answered for entry in cancelled)


@pytest.mark.parametrize("every", [20, 5])
@pytest.mark.parametrize(("kind", "retry_after"), [("-32603", None), ("503", None), ("503", 2), ("429", 2)])
async def test_one_page_in_so_many_that_fails_is_read_again(
    autojump_clock: trio.testing.MockClock, kind: FaultKind, retry_after: int | None, every: int
) -> None:
    fault = Fault(kind=kind, every=every, retry_after_seconds=retry_after)
    resource = MoodyResource(Mood(size_bytes=BIG, delay_seconds=LATENCY_SECONDS, fault=fault))
    heard = await listen(resource)
    assert exact(heard, resource), heard.error
    failed = [entry for entry in resource.log if entry.kind == "error"]
    assert failed
    for entry in failed if retry_after is not None else ():
        assert entry.answered_at is not None
        allowed_at = entry.answered_at + (retry_after or 0)
        early = [
            other
            for other in resource.log
            if entry.answered_at <= other.arrived_at < allowed_at and other.start <= entry.start < other.end
        ]
        assert not early, "asked again before the server's Retry-After"


async def test_a_retry_after_beyond_patience_ends_a_read_at_once_and_names_the_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    outage = Outage(from_offset=300_000, how="429", retry_after_seconds=600)
    resource = MoodyResource(Mood(size_bytes=BIG, delay_seconds=LATENCY_SECONDS, outage=outage))
    heard = await listen(resource)
    assert isinstance(heard.error, StreamBrokenError)
    assert "600 s" in str(heard.error)
    assert heard.data == truth(resource.mood)[: len(heard.data)]
    assert heard.seconds < 5


@pytest.mark.parametrize("share", [0.9, 0.1])
async def test_a_server_that_drops_the_connection_in_every_page_ends_in_few_requests(
    autojump_clock: trio.testing.MockClock, share: float
) -> None:
    resource = MoodyResource(Mood(size_bytes=BIG, delay_seconds=0.5, cut_share=share))
    heard = await listen(resource, trickles=True)
    assert isinstance(heard.error, StreamBrokenError)
    assert heard.data == b""
    assert heard.seconds < PATIENCE_SECONDS + 3 * BACKOFF_MAX_SECONDS
    assert len(resource.log) < 20 + 2 * PATIENCE_SECONDS
    assert retries_in_the_busiest_second(resource.log) <= 2


async def test_a_page_that_broke_off_is_asked_for_by_half(autojump_clock: trio.testing.MockClock) -> None:
    resource = MoodyResource(Mood(size_bytes=BIG, delay_seconds=0.5, cut_share=0.9))
    await listen(resource, trickles=True)
    heads = [entry.end - entry.start for entry in resource.log if entry.start == 0]
    assert min(heads) <= heads[0] // 2


# --- before the first byte, and the events ---------------------------------------------------------------


@pytest.mark.parametrize("how", ["503", "429", "hang-up"])
async def test_a_busy_server_before_the_first_byte_is_waited_for(
    autojump_clock: trio.testing.MockClock, how: OutageKind
) -> None:
    outage = Outage(after_seconds=0.0, until_seconds=20.0, how=how, retry_after_seconds=2)
    resource = MoodyResource(Mood(size_bytes=BIG, delay_seconds=LATENCY_SECONDS, outage=outage))
    heard = await listen(resource)
    assert exact(heard, resource), heard.error
    assert retries_in_the_busiest_second(resource.log, until=20.0) <= 2


@pytest.mark.parametrize("begins", [False, True])
async def test_a_first_read_without_an_end_breaks_when_it_was_said_to(
    begins: bool, autojump_clock: trio.testing.MockClock
) -> None:
    heard, events = 0.0, list[StreamEvent]()

    async def read(start: int, end: int) -> Page:
        nonlocal heard
        await trio.sleep(1)
        heard = trio.current_time() if begins else 0.0
        await trio.sleep_forever()
        raise AssertionError("woken")

    options = StreamOptions(patience_seconds=2.0, timeout=30.0, on_event=events.append)
    began = trio.current_time()
    with pytest.raises(StreamBrokenError):
        async with open_stream(read, options=options, last_received=lambda: heard) as stream:
            await stream.receive_some()
    waited = trio.current_time() - began
    if not begins:
        assert waited == pytest.approx(2.0, abs=0.1)
        assert events == []
        return
    (event,) = events
    assert isinstance(event, StreamWaiting)
    assert event.ended_by == "timeout"
    assert event.patience_seconds == pytest.approx(31.0, abs=0.1)
    assert waited == pytest.approx(31.0, abs=0.1)
