"""Reading without the planner: one answer after the other, kept as text and fed as the reader advances.

For servers that ignore ranges, or whose pages do not fit the ring, and for the strategy `whole`. While one
answer is fed the next is read, so two are held at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NoReturn

import trio

from playhead._core import Pipe
from playhead.errors import PlayheadError
from playhead.stream.answer import Answer
from playhead.stream.inlet import Inlet
from playhead.stream.patient import PatientReader
from playhead.stream.statistics import EndedBy, Tally


class Sequential:
    """Feeds the pipe from its tail to the end, and again from a new tail after each `restart`.

    `page_bytes` is what is asked for at once; None: every answer is the whole resource, whatever is asked
    for. `prove(offset, proof)` is told the end.
    """

    def __init__(
        self,
        *,
        pipe: Pipe,
        inlet: Inlet,
        patient: PatientReader,
        tally: Tally,
        answers: Iterable[Answer],
        page_bytes: int | None,
        end: int | None,
        prove: Callable[[int, EndedBy], None],
    ) -> None:
        self._pipe = pipe
        self._inlet = inlet
        self._patient = patient
        self._tally = tally
        self._ready = deque(answers)
        self._feeding: Answer | None = None
        self._page_bytes = page_bytes
        self._end = end
        self._prove = prove
        self._scope = trio.CancelScope()

    def restart(self) -> None:
        """Go on from the pipe's tail, wherever a seek has put it."""
        self._scope.cancel()

    async def run(self) -> NoReturn:
        """Read and feed until cancelled. Raises what reading and storing raise."""
        while True:
            with trio.CancelScope() as self._scope:
                await self._feed_all()
                if not self._scope.cancel_called:  # a seek, just now: the tail is not the end
                    self._inlet.close()
                await trio.sleep_forever()

    async def _feed_all(self) -> None:
        failure: PlayheadError | None = None
        async with trio.open_nursery() as nursery:
            send, receive = trio.open_memory_channel[Answer | PlayheadError](0)
            nursery.start_soon(self._fetch, send)
            try:
                async for item in receive:
                    if isinstance(item, PlayheadError):
                        raise item
                    self._feeding = item  # a seek inside it finds it here
                    del item
                    await self._inlet.feed(self._feeding)
                    self._feeding = None  # let go as soon as it is fed
            except PlayheadError as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _fetch(self, send: trio.MemorySendChannel[Answer | PlayheadError]) -> None:
        async with send:
            at = self._pipe.tail
            if self._feeding is not None:
                self._ready.appendleft(self._feeding)
                self._feeding = None
            try:
                while self._end is None or at < self._end:
                    answer = await self._next(at)
                    if answer is None:
                        return
                    at = answer.end
                    await send.send(answer)
                    del answer
            except PlayheadError as error:
                await send.send(error)

    async def _next(self, at: int) -> Answer | None:
        """The answer that holds `at`; None: the end is there."""
        while self._ready:
            answer = self._ready.popleft()
            if answer.offset <= at < answer.end:
                return answer
        if self._page_bytes is None:
            answer = await self._patient.read(0, max(1, self._end or 0))
            self._conclude(answer.end, "whole")
        else:
            answer = await self._patient.read(at, at + self._page_bytes)
            if answer.proof is not None:
                self._conclude(answer.end, answer.proof)
        if answer.n_bytes:
            self._tally.pages += 1
        return answer if answer.offset <= at < answer.end else None

    def _conclude(self, end: int, proof: EndedBy) -> None:
        self._end = end
        self._prove(end, proof)
