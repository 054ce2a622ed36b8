"""One read at a time, tried again until it is answered: for the few that the planner does not plan.

Those are the questions that settle what a server does with ranges, and pages too big for the ring.
"""

from __future__ import annotations

import random

import trio

from playhead.errors import DeadlineError, RangePastEndError, StreamBrokenError, TransportError
from playhead.limits import Limits
from playhead.stream.answer import Answer, measure
from playhead.stream.page import ReadRange
from playhead.stream.statistics import Tally

BACKOFF_SECONDS = 0.1
"""The second retry waits about this long, and each one after it twice as long; the first does not wait."""


class PatientReader:
    """Reads ranges one by one, each until it is answered.

    `timeout` is the longest wait for one try, in seconds; `max_tries` bounds the tries of one read.
    """

    def __init__(
        self,
        read_range: ReadRange,
        *,
        timeout: float,
        max_tries: int,
        limits: Limits,
        tally: Tally,
        size_bytes: int | None,
        ranged: bool = True,
        seed: int = 0,
    ) -> None:
        self._read_range = read_range
        self._timeout = timeout
        self._max_tries = max_tries
        self._limits = limits
        self._tally = tally
        self._size_bytes = size_bytes
        self._ranged = ranged
        self._jitter = random.Random(seed)

    async def read(self, start: int, end: int) -> Answer:
        """The answer to `[start, end)`, as long as it may be. An end is an answer of no bytes with its proof.

        Raises `StreamBrokenError` when no try was answered, `LimitError` and `TextContentError` as `measure`
        does, and the server's own error. Cancelled: the read on the wire is cancelled too.
        """
        for tries in range(1, self._max_tries + 1):
            try:
                return await self._try(start, end)
            except StreamBrokenError:
                raise
            except TransportError as error:
                if tries == self._max_tries:
                    raise broken(start, tries, error) from error
            if tries > 1:
                # Half to all of the step, so that many streams do not come back at once (RFC 8445's reasons).
                step: float = BACKOFF_SECONDS * 2 ** (tries - 1)
                await trio.sleep(step * self._jitter.uniform(0.5, 1.0))
            self._tally.retries += 1
        raise AssertionError("the last try returns or raises")

    async def _try(self, start: int, end: int) -> Answer:
        self._tally.sent()
        try:
            with trio.fail_after(self._timeout):
                page = await self._read_range(start, end)
        except RangePastEndError:
            return Answer(offset=start, blobs=(), n_bytes=0, proof="416")
        except trio.TooSlowError as error:
            raise DeadlineError(late(start, end, self._timeout)) from error
        finally:
            self._tally.in_flight -= 1
        answer = measure(
            page,
            offset=start,
            data_end=self._tally.data_end,
            size_bytes=self._size_bytes,
            block_bytes=self._limits.block_bytes,
            ranged=self._ranged,
        )
        self._tally.mime_type = self._tally.mime_type or page.mime_type
        self._tally.received_bytes += answer.n_bytes
        return answer


def late(start: int, end: int, seconds: float) -> str:
    return f"read of [{start}, {end}): expected an answer within {seconds:.3g} s, got none; raise --timeout"


def broken(offset: int, tries: int, cause: TransportError | None) -> StreamBrokenError:
    """The error of a page that ran out of tries."""
    return StreamBrokenError(
        f"stream at byte {offset}: expected a page, got none in {tries} tries (last: {cause}); "
        "check the connection and the server, then read again",
        offset=offset,
        tries=tries,
    )
