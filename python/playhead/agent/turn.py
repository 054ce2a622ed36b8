"""One turn while it runs: its budgets, its end, and what it has added to the history so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from playhead.agent.budgets import Budgets, Meter
from playhead.agent.conversation import Message
from playhead.errors import UsageError


class Turn:
    """A handle for whoever starts a turn (`run_turn(…, turn=Turn())`): `abort` it from any task of the same
    trio run. One for each turn."""

    def __init__(self) -> None:
        self._meter: Meter | None = None
        self._messages: list[Message] = []
        self._scopes: list[trio.CancelScope] = []
        self._aborted = False
        self.callback_error: Exception | None = None
        """What the event callback raised; the loop notes it, to tell it from a call's failure."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was added to the history so far: whole rounds, every call with its result. Also after a
        cancellation and a failure, when there is no `TurnResult`."""
        return tuple(self._messages)

    @property
    def aborted(self) -> bool:
        return self._aborted

    def abort(self) -> None:
        """End the turn where it is: the model's reply and the calls that run are cancelled, on the wire too.

        `run_turn` then returns with `ended_by="aborted"`, what came of the reply, and one "cancelled" result
        for each call that was open, so that the history can go on. Before the turn: it ends as it begins.
        After it, or a second time: does nothing.
        """
        self._aborted = True
        for scope in self._scopes:
            scope.cancel()

    # --- for the loop ------------------------------------------------------------------------------

    def begin(self, budgets: Budgets) -> None:
        """Start counting. Raises `UsageError` where it was started before."""
        if self._meter is not None:
            raise UsageError("this Turn was used before: make a new one for each turn")
        self._meter = Meter(budgets, clock=trio.current_time)

    @property
    def meter(self) -> Meter:
        """What was used."""
        assert self._meter is not None, "a turn's meter runs from its begin"
        return self._meter

    def add(self, *messages: Message) -> None:
        """Add to the history what belongs together."""
        self._messages += messages

    @contextmanager
    def abortable(self) -> Iterator[None]:
        """What runs inside is what `abort` cancels."""
        with trio.CancelScope() as scope:
            self._scopes.append(scope)
            try:
                yield
            finally:
                self._scopes.remove(scope)
