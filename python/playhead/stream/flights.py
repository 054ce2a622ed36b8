"""The reads that are on the wire: one task and one cancel scope each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

from playhead._core import Request
from playhead.errors import PlayheadError
from playhead.stream.page import Page, ReadRange
from playhead.stream.statistics import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """One read."""

    request: Request
    scope: trio.CancelScope
    sent_at: float


class Flights:
    """Sends reads, and hands on what came of those that somebody still waits for."""

    def __init__(self, read_range: ReadRange, *, tally: Tally) -> None:
        self._read_range = read_range
        self._tally = tally
        self._flights: dict[int, Flight] = {}

    @property
    def asked_to(self) -> int:
        """The highest end of what is asked for now; 0 without a read."""
        return max((flight.request.end for flight in self._flights.values()), default=0)

    def send(
        self,
        request: Request,
        nursery: trio.Nursery,
        *,
        done: Callable[[Request, Page | PlayheadError], None],
    ) -> None:
        """Read `request` in a task; `done(request, page or error)` is called in it, and does not wait."""
        flight = Flight(request=request, scope=trio.CancelScope(), sent_at=trio.current_time())
        self._flights[request.id] = flight
        self._tally.sent()
        self._tally.hedges += request.is_hedge
        self._tally.retries += request.attempt > 0 and not request.is_hedge
        nursery.start_soon(self._read, flight, done)

    async def _read(self, flight: Flight, done: Callable[[Request, Page | PlayheadError], None]) -> None:
        request = flight.request
        outcome: Page | PlayheadError | None = None
        try:
            with flight.scope:
                outcome = await self._read_range(request.start, request.end)
        except PlayheadError as error:
            outcome = error
        finally:
            self._tally.in_flight -= 1
        # Dropped, nobody waits for it any more: a seek, a deadline, a copy that was faster.
        if self._flights.pop(request.id, None) is not None and outcome is not None:
            done(request, outcome)

    def drop(self, request_id: int) -> Flight | None:
        """Cancel a read, on the wire too; None where it is not in flight."""
        flight = self._flights.pop(request_id, None)
        if flight is not None:
            flight.scope.cancel()
        return flight

    def drop_all(self) -> None:
        for request_id in list(self._flights):
            self.drop(request_id)
