"""Prompt mode, on the way to the model: a request with tools becomes one of text.

Who wrote a text decides what is done with it. The model's own replies come back to it as they were, tags and
all (`AssistantMessage.raw`). What users, tools, resources and tool descriptions say is made harmless first
(`templates.harmless`): a model that repeats it word for word calls nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import assert_never

from playhead.agent.conversation import (
    AssistantMessage,
    Media,
    Message,
    ModelRequest,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from playhead.agent.templates import NO_MORE_CALLS, PromptTemplate, harmless

DEFAULT_PROMPT = PromptTemplate()


def encode(request: ModelRequest, *, template: PromptTemplate = DEFAULT_PROMPT) -> ModelRequest:
    """`request` for a model of text: without tools, with text and native media as its only parts.

    Messages of the same side are put together (chat templates of local models insist on turns), and empty
    ones left out. Without tools, and without calls in the history, it is given back as it is.
    """
    if not request.tools and not has_calls(request.messages):
        return request
    if request.tools:
        system = template.render(request.tools, system=request.system)
    else:
        system = f"{request.system}\n\n{NO_MORE_CALLS}" if request.system else NO_MORE_CALLS
    return replace(request, messages=tuple(_turns(request.messages)), system=system, tools=())


def _turns(messages: Iterable[Message]) -> Iterator[UserMessage | AssistantMessage]:
    open_turn: UserMessage | AssistantMessage | None = None
    calls: dict[str, ToolCall] = {}
    for message in messages:
        turn: UserMessage | AssistantMessage
        match message:
            case UserMessage():
                turn = UserMessage(parts=tuple(_harmless_part(part) for part in message.parts))
            case AssistantMessage():
                calls = {call.id: call for call in message.calls}
                text = reply_text(message)
                turn = AssistantMessage(parts=(Text(text=text),) if text else ())
            case ToolMessage():
                turn = UserMessage(parts=results_parts(message, calls))
            case _:
                assert_never(message)
        if not turn.parts:
            continue
        if isinstance(open_turn, UserMessage) and isinstance(turn, UserMessage):
            open_turn = UserMessage(parts=open_turn.parts + turn.parts)
        elif isinstance(open_turn, AssistantMessage) and isinstance(turn, AssistantMessage):
            open_turn = AssistantMessage(parts=open_turn.parts + turn.parts)
        else:
            if open_turn is not None:
                yield open_turn
            open_turn = turn
    if open_turn is not None:
        yield open_turn


def _harmless_part(part: Text | Media) -> Text | Media:
    return Text(text=harmless(part.text)) if isinstance(part, Text) else part


def reply_text(message: AssistantMessage) -> str:
    """What the model wrote, tags and all; of a reply that came by other means, what it would have written."""
    if message.provider == "prompt" and message.raw:
        return str(message.raw[0]["text"])
    written = []
    for part in message.parts:
        match part:
            case Text():
                written.append(harmless(part.text))
            case ToolCall():
                written.append(call_text(part))
            case Thinking():
                pass
            case _:
                assert_never(part)
    return "".join(written)


def call_text(call: ToolCall) -> str:
    """A call, as a model writes it."""
    arguments = (
        harmless(call.arguments_text)
        if call.arguments is None
        else json.dumps(dict(call.arguments), ensure_ascii=False)
    )
    return f"<tool_use><name>{_plain(call.name)}</name><arguments>{arguments}</arguments></tool_use>"


def results_parts(message: ToolMessage, calls: Mapping[str, ToolCall]) -> tuple[Text | Media, ...]:
    """The results in their order, each one's media behind it. `calls` has the calls that they answer."""
    parts: list[Text | Media] = []
    for result in message.results:
        text = _result_text(result, calls.get(result.call_id))
        if parts and isinstance(parts[-1], Text):
            parts[-1] = Text(text=f"{parts[-1].text}\n{text}")
        else:
            parts.append(Text(text=text))
        parts.extend(result.media)
    return tuple(parts)


def _result_text(result: ToolResult, call: ToolCall | None) -> str:
    text = result.text
    if call is not None and call.problem and call.problem not in text:
        text = f"{call.problem}. {text}".rstrip()
    tag = "error" if result.is_error else "result"
    name = _plain(result.name)
    return f"<tool_use_result><name>{name}</name><{tag}>{harmless(text)}</{tag}></tool_use_result>"


def _plain(name: str) -> str:
    return name.replace("<", "&lt;")


def has_calls(messages: Iterable[Message]) -> bool:
    return any(
        isinstance(message, ToolMessage) or (isinstance(message, AssistantMessage) and message.calls)
        for message in messages
    )
