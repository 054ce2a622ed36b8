"""Responses as OpenAI streams it, made of the official SDK's types."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, assert_never

from openai.types import responses as types
from openai.types.responses.response_reasoning_item import Summary
from openai.types.responses.response_reasoning_summary_part_added_event import Part as AddedPart
from openai.types.responses.response_reasoning_summary_part_done_event import Part as DonePart
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails
from pydantic import BaseModel

from tests.servers.providers.script import Ask, Broken, Frame, Hold, Reply, Say, Think, interleaved


def frames(reply: Reply, *, model: str, number: int) -> Iterator[Frame]:
    """The body of the answer."""
    wire = _Wire(reply, model, number)
    yield wire.event(types.ResponseCreatedEvent, response=wire.response("in_progress"))
    yield wire.event(types.ResponseInProgressEvent, response=wire.response("in_progress"))
    for part in reply.groups():
        match part:
            case Say():
                yield from wire.message(part)
            case Think():
                yield from wire.reasoning(part)
            case tuple():
                yield from wire.calls(part)
            case Hold():
                yield part
            case Broken(how="error"):
                yield wire.event(types.ResponseErrorEvent, code="server_error", message="overloaded")
                return
            case Broken():
                yield part
                return
            case _:
                assert_never(part)
    yield wire.event(types.ResponseCompletedEvent, response=wire.response("completed"))


_NAMES: dict[type[BaseModel], str] = {
    types.ResponseCreatedEvent: "response.created",
    types.ResponseInProgressEvent: "response.in_progress",
    types.ResponseCompletedEvent: "response.completed",
    types.ResponseErrorEvent: "error",
    types.ResponseOutputItemAddedEvent: "response.output_item.added",
    types.ResponseOutputItemDoneEvent: "response.output_item.done",
    types.ResponseContentPartAddedEvent: "response.content_part.added",
    types.ResponseContentPartDoneEvent: "response.content_part.done",
    types.ResponseTextDeltaEvent: "response.output_text.delta",
    types.ResponseTextDoneEvent: "response.output_text.done",
    types.ResponseFunctionCallArgumentsDeltaEvent: "response.function_call_arguments.delta",
    types.ResponseFunctionCallArgumentsDoneEvent: "response.function_call_arguments.done",
    types.ResponseReasoningSummaryPartAddedEvent: "response.reasoning_summary_part.added",
    types.ResponseReasoningSummaryPartDoneEvent: "response.reasoning_summary_part.done",
    types.ResponseReasoningSummaryTextDeltaEvent: "response.reasoning_summary_text.delta",
    types.ResponseReasoningSummaryTextDoneEvent: "response.reasoning_summary_text.done",
}


class _Wire:
    """One response while it is made: its items, and the numbers that its events have."""

    def __init__(self, reply: Reply, model: str, number: int) -> None:
        self._reply = reply
        self._model = model
        self._number = number
        self._output: list[Any] = []
        self._sequence = count()

    def event(self, kind: type[BaseModel], **fields: Any) -> bytes:
        made = kind(type=_NAMES[kind], sequence_number=next(self._sequence), **_fill(kind, fields))
        data = made.model_dump_json(exclude_unset=True)
        return f"event: {_NAMES[kind]}\ndata: {data}\n\n".encode()

    def response(self, status: Any) -> types.Response:
        given, made = self._reply.input_tokens, self._reply.output_tokens
        usage = types.ResponseUsage(
            input_tokens=given,
            output_tokens=made,
            total_tokens=given + made,
            input_tokens_details=InputTokensDetails.model_construct(cached_tokens=0),
            output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
        )
        return types.Response(
            id=f"resp_{self._number}",
            created_at=1_790_000_000,
            model=self._model,
            object="response",
            output=list(self._output),
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
            status=status,
            error=None,
            incomplete_details=None,
            usage=usage if status == "completed" else None,
        )

    def message(self, part: Say) -> Iterator[bytes]:
        index, name = self._next("msg")
        place = {"item_id": name, "output_index": index, "content_index": 0}
        text = types.ResponseOutputText(annotations=[], text=part.text, type="output_text")
        empty = text.model_copy(update={"text": ""})

        def item(status: Any, *content: Any) -> types.ResponseOutputMessage:
            return types.ResponseOutputMessage(
                id=name, content=list(content), role="assistant", status=status, type="message"
            )

        yield self.event(types.ResponseOutputItemAddedEvent, output_index=index, item=item("in_progress"))
        yield self.event(types.ResponseContentPartAddedEvent, **place, part=empty)
        for delta in part.deltas:
            yield self.event(types.ResponseTextDeltaEvent, **place, delta=delta, logprobs=[])
        yield self.event(types.ResponseTextDoneEvent, **place, text=part.text, logprobs=[])
        yield self.event(types.ResponseContentPartDoneEvent, **place, part=text)
        yield self._done(index, item("completed", text))

    def reasoning(self, part: Think) -> Iterator[bytes]:
        index, name = self._next("rs")
        place = {"item_id": name, "output_index": index, "summary_index": 0}

        def item(*summary: Summary) -> types.ResponseReasoningItem:
            # What is absent is null on this wire, which requests don't take back.
            return types.ResponseReasoningItem(
                id=name,
                summary=list(summary),
                type="reasoning",
                encrypted_content=part.signature,
                content=None,
                status=None,
            )

        yield self.event(types.ResponseOutputItemAddedEvent, output_index=index, item=item())
        added = AddedPart(text="", type="summary_text")
        yield self.event(types.ResponseReasoningSummaryPartAddedEvent, **place, part=added)
        yield self.event(types.ResponseReasoningSummaryTextDeltaEvent, **place, delta=part.text)
        yield self.event(types.ResponseReasoningSummaryTextDoneEvent, **place, text=part.text)
        done = DonePart(text=part.text, type="summary_text")
        yield self.event(types.ResponseReasoningSummaryPartDoneEvent, **place, part=done)
        yield self._done(index, item(Summary(text=part.text, type="summary_text")))

    def calls(self, calls: tuple[Ask, ...]) -> Iterator[bytes]:
        """All begin, their arguments are interleaved, and they end in order."""

        def item(index: int, status: Any, arguments: str) -> types.ResponseFunctionToolCall:
            call, (_, name) = calls[index], places[index]
            return types.ResponseFunctionToolCall(
                id=name,
                call_id=call.id,
                name=call.name,
                arguments=arguments,
                type="function_call",
                status=status,
            )

        places = [self._next("fc") for _ in calls]
        for number, (index, _) in enumerate(places):
            begun = item(number, "in_progress", "")
            yield self.event(types.ResponseOutputItemAddedEvent, output_index=index, item=begun)
        for number, delta in interleaved(calls):
            index, name = places[number]
            yield self.event(
                types.ResponseFunctionCallArgumentsDeltaEvent, item_id=name, output_index=index, delta=delta
            )
        for number, (index, name) in enumerate(places):
            text = calls[number].arguments
            yield self.event(
                types.ResponseFunctionCallArgumentsDoneEvent,
                item_id=name,
                output_index=index,
                name=calls[number].name,
                arguments=text,
            )
            yield self._done(index, item(number, "completed", text))

    def _next(self, kind: str) -> tuple[int, str]:
        """A place in the output, and an id for the item that will be there."""
        self._output.append(None)
        index = len(self._output) - 1
        return index, f"{kind}_{self._number}_{index}"

    def _done(self, index: int, item: Any) -> bytes:
        self._output[index] = item
        return self.event(types.ResponseOutputItemDoneEvent, output_index=index, item=item)


def _fill(kind: type[BaseModel], fields: dict[str, Any]) -> dict[str, Any]:
    """An error event has a `param`, which is null where no parameter was wrong."""
    return {"param": None, **fields} if kind is types.ResponseErrorEvent else fields
