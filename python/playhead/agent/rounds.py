"""One reply, from its pieces to what it adds to the history; its calls are in jobs.py."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from playhead.agent.calls import CallOutcome
from playhead.agent.conversation import AssistantMessage, Message, Text, ToolCall, ToolMessage
from playhead.agent.events import (
    Event,
    ReplyComplete,
    ReplyCreated,
    TextComplete,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from playhead.agent.jobs import Job, Jobs
from playhead.agent.middleware import Context
from playhead.agent.model import CallReady, CallStarted, ReplyEnd, ReplyPiece
from playhead.agent.model import TextDelta as TextPiece
from playhead.agent.model import ThinkingDelta as ThinkingPiece


class Round:
    """One call of the model, with the calls that it asks for."""

    def __init__(self, context: Context, jobs: Jobs) -> None:
        self._context = context
        self._jobs = jobs
        self._said: list[str | Job] = []
        """Runs of text, and the calls between them."""
        self._text: list[str] = []
        """Of the newest reply; there are several where a middleware tries again."""
        self._message: AssistantMessage | None = None
        self._is_open = False
        """A reply was created, and its end not told."""
        self._ordered: tuple[Job, ...] = ()

    async def emit(self, event: Event) -> None:
        """Tell `event`; a reply that is created (again, by a middleware that retries) begins anew."""
        if isinstance(event, ReplyCreated):
            self._text.clear()
            self._said = [said for said in self._said if isinstance(said, Job)]  # their calls did run
            self._is_open = True
        await self._context.emit(event)

    async def on_piece(self, piece: ReplyPiece) -> None:
        """Tell of a piece, and start the call that it completes."""
        number = self._context.round
        match piece:
            case TextPiece():
                self._text.append(piece.text)
                self._said.append(piece.text)
                await self.emit(TextDelta(round=number, text=piece.text))
            case ThinkingPiece():
                await self.emit(ThinkingDelta(round=number, text=piece.text))
            case CallStarted():
                pass
            case CallReady():
                job = self._jobs.add(piece.call)
                self._said.append(job)
                await self._jobs.start(job)
            case ReplyEnd():
                usage = piece.usage
                await self._end_reply(piece.stop)
                await self.emit(
                    Usage(round=number, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
                )
            case _:
                assert_never(piece)
        await self._context.on_piece(piece)

    async def _end_reply(self, stop: str) -> None:
        self._is_open = False
        if text := "".join(self._text):
            await self.emit(TextComplete(round=self._context.round, text=text))
        await self.emit(ReplyComplete(round=self._context.round, stop=stop))

    async def take(self, message: AssistantMessage) -> None:
        """The reply as it goes into the history; its calls that no piece told of start now."""
        self._message = message
        for call in self._jobs.missing(message.calls):
            await self._jobs.start(self._jobs.add(call))

    def close(self) -> tuple[Message, ...]:
        """What the round adds to the history: the reply, and one result for each of its calls, in their
        order; a call that has none is cancelled. Waits for nothing."""
        message = self._cut_short() if self._message is None else self._message
        calls = message.calls
        self._ordered = self._jobs.close(calls)
        # Also calls that ran, and that the reply in the end doesn't have: the model must know of them.
        if [job.call.id for job in self._ordered] != [call.id for call in calls]:
            jobs = iter(self._ordered)
            parts = [
                replace(part, id=next(jobs).call.id) if isinstance(part, ToolCall) else part
                for part in message.parts
            ]
            # The provider's own blocks hold other calls than have results here, and it would refuse them.
            message = replace(message, parts=(*parts, *(job.call for job in jobs)), raw=())
        self._message = message
        if not message.parts and not message.raw:
            return ()
        if not self._ordered:
            return (message,)
        return message, ToolMessage(results=tuple(outcome.result for outcome in self.outcomes))

    @property
    def message(self) -> AssistantMessage:
        """The reply, of a round that is closed: what came of it, where it was cut short."""
        assert self._message is not None, "a round is closed before its message is asked for"
        return self._message

    @property
    def outcomes(self) -> tuple[CallOutcome, ...]:
        """What the calls came to, of a round that is closed, in the order of the message."""
        return tuple(job.outcome for job in self._ordered if job.outcome is not None)

    async def tell_end(self) -> None:
        """Tell what a closed round has not told yet."""
        if self._is_open:
            await self._end_reply("aborted")
        await self.tell_calls()

    async def tell_calls(self) -> None:
        """Tell the calls' ends alone: of a round that failed, whose reply has none."""
        await self._jobs.tell_end(self._ordered)

    def _cut_short(self) -> AssistantMessage:
        """Without what the model said to itself: its provider takes thinking back only whole and signed."""
        parts: list[Text | ToolCall] = []
        run = ""
        for said in (*self._said, None):
            if isinstance(said, str):
                run += said
                continue
            if run.strip():
                parts.append(Text(text=run.rstrip()))
            run = ""
            if said is not None:
                parts.append(said.call)
        return AssistantMessage(parts=tuple(parts))
