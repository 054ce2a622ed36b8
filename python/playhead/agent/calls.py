"""Who runs a model's calls: a hub of MCP servers, or anything else with the same two methods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import trio

from playhead.agent.conversation import Media, Status, ToolCall, ToolResult, ToolSpec
from playhead.errors import DeadlineError, PlayheadError, UnknownToolError
from playhead.results.plan import Disposition, PlaySound, Respond, ShowImage, Turn
from playhead.stream.source import Media as Playable

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

    from playhead.agent.approvals import ApprovalRequest
    from playhead.client.hub import Hub
    from playhead.client.hub_tools import HubTool
    from playhead.client.processing import ProcessedResult

NEAR_NAMES = 3
LISTED_NAMES = 20
"""Of the offered tools, for a model that named none of them; it has the whole list anyway."""
ERROR_CHARS = 2000
"""Of a failure's words that the model gets: what went wrong and what to do, not a whole page."""
GO_ON = Turn(decision="continue", reason="the model decides what comes next")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image in a result, for the user."""

    mime_type: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """What a call came to."""

    result: ToolResult
    """For the model."""
    turn: Turn = GO_ON
    """Whether the model is called again after it."""
    media: tuple[Playable, ...] = ()
    """For the player, in order."""
    pictures: tuple[Picture, ...] = ()
    """For the user; the events name them."""
    processed: ProcessedResult | None = None
    """All of it, where a hub answered."""
    error: Exception | None = None
    """What was raised where the tool didn't answer."""


class ToolRunner(Protocol):
    """What the loop calls tools with. Two optional methods are used where they are there: those of
    `Prompting` and `Describing`."""

    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is offered now. Asked for before every model call, so keep it cheap."""
        ...

    async def call(self, call: ToolCall, *, on_progress: ProgressFnT) -> CallOutcome:
        """Run a call whose name is one of the offered and whose `arguments` are an object.

        Returns what the tool answered, also an error. Raises where there is no answer: the loop makes the
        call's one result of it (`DeadlineError`: timeout; `UnknownToolError`: unknown; any other exception:
        error, with the words of a `PlayheadError`, and of others the class). Cancelled: ends the call on the
        wire.
        """
        ...


@runtime_checkable
class Prompting(Protocol):
    """A runner whose tools bring text for the system prompt."""

    def system_prompt(self, offered: Sequence[ToolSpec]) -> str:
        """To be added while these tools are offered; empty for none."""
        ...


@runtime_checkable
class Describing(Protocol):
    """A runner that knows what approvals go by."""

    def approval_request(self, call: ToolCall) -> ApprovalRequest | None:
        """What somebody is asked about the call; None where the runner doesn't know the tool."""
        ...


class HubRunner:
    """The tools of a hub, under their model names, as they are when a turn asks.

    `images`: whether the model can see: then images go to it natively, beside the line that names them.
    `audio`: whether it can hear: then sound goes to it too, where it is not what the tool was called for (its
    result leaves the turn to the model). A result that is only for the user (`send_result_to_ai=False`) or an
    error brings no media.
    """

    def __init__(self, hub: Hub, *, images: bool = True, audio: bool = False) -> None:
        self._hub = hub
        self._images = images
        self._audio = audio

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(
            ToolSpec(name=tool.model_name, description=tool.description or "", parameters=tool.input_schema)
            for tool in self._hub.tools
        )

    def system_prompt(self, offered: Sequence[ToolSpec]) -> str:
        names = {spec.name for spec in offered}
        prompts = (tool.system_prompt for tool in self._hub.tools if tool.model_name in names)
        return "\n\n".join(dict.fromkeys(prompt for prompt in prompts if prompt))

    def approval_request(self, call: ToolCall) -> ApprovalRequest | None:
        from playhead.agent.approvals import request_for

        tool = self._tool(call.name)
        return None if tool is None else request_for(tool, call.arguments or {})

    async def call(self, call: ToolCall, *, on_progress: ProgressFnT) -> CallOutcome:
        tool = self._tool(call.name)
        if tool is None:
            raise UnknownToolError(f"the tool {call.name!r} is no longer there", name=call.name)
        processed = await self._hub.call_tool(tool, call.arguments, on_progress=on_progress)
        return CallOutcome(
            result=ToolResult(
                call_id=call.id,
                name=call.name,
                text=processed.text_for_model,
                media=self._native(processed),
                status="error" if processed.is_error else "done",
            ),
            turn=processed.turn,
            media=processed.media,
            pictures=tuple(
                Picture(mime_type=part.mime_type, size_bytes=part.size_bytes)
                for part in _parts(processed.result.plan.dispositions)
                if isinstance(part, ShowImage)
            ),
            processed=processed,
        )

    def _tool(self, model_name: str) -> HubTool | None:
        """By its model name only: an id that is none was not offered."""
        return next((tool for tool in self._hub.tools if tool.model_name == model_name), None)

    def _native(self, processed: ProcessedResult) -> tuple[Media, ...]:
        from playhead.config.tools import Delivery

        if processed.is_error or processed.resolution.delivery is Delivery.USER:
            return ()
        hears = self._audio and processed.turn.decision == "continue"
        found: list[Media] = []
        for part in _parts(processed.result.plan.dispositions):
            match part:
                case ShowImage() if self._images:
                    found.append(Media(kind="image", mime_type=part.mime_type, base64=part.base64))
                case PlaySound(base64=str(base64)) if hears:
                    found.append(Media(kind="audio", mime_type=part.mime_type or "audio/mpeg", base64=base64))
                case _:
                    pass
        return tuple(found)


def _parts(dispositions: Iterable[Disposition]) -> Iterable[Disposition]:
    for item in dispositions:
        if isinstance(item, Respond):
            yield from item.parts
        else:
            yield item


# --- one result for every call -----------------------------------------------------------------------


def told(call: ToolCall, status: Status, text: str, *, error: Exception | None = None) -> CallOutcome:
    """The outcome of a call that its tool gave no answer to."""
    result = ToolResult(call_id=call.id, name=call.name, text=text, status=status)
    return CallOutcome(result=result, error=error)


def unknown(call: ToolCall, names: Iterable[str], *, near: bool = True) -> CallOutcome:
    """The outcome of a call of a tool that is not among those offered. `near`: look for names like it."""
    known = tuple(names)
    found = get_close_matches(call.name, known, n=NEAR_NAMES) if near else ()
    hint = (
        f"did you mean {', '.join(found)}?" if found else f"the tools are {', '.join(known[:LISTED_NAMES])}"
    )
    if not known:
        hint = "no tools are offered"
    return told(call, "unknown", f"Tool not found: {_short(call.name)}; {hint}")


def bad_arguments(call: ToolCall, spec: ToolSpec) -> CallOutcome:
    """The outcome of a call whose arguments are no JSON object."""
    came = f"; came {_short(call.arguments_text)!r}" if call.arguments_text else "; nothing came"
    problem = call.problem or f"expected one JSON object{came}"
    properties = spec.parameters.get("properties")
    names = ", ".join(properties) if isinstance(properties, dict) and properties else "none"
    return told(
        call,
        "bad_arguments",
        f"The call of {call.name} was not made: its arguments could not be read: {problem}."
        f" Its parameters: {names}. Call it again with one JSON object.",
    )


def failed(call: ToolCall, error: Exception, names: Iterable[str]) -> CallOutcome:
    """The outcome of a call for which `error` was raised in place of an answer."""
    match error:
        case UnknownToolError():
            # It was offered, and is gone since.
            return replace(unknown(call, (name for name in names if name != call.name)), error=error)
        case DeadlineError() | trio.TooSlowError() | TimeoutError():
            words = str(error) or "no answer came in time"
            return told(call, "timeout", f"The call timed out: {_short(words)}", error=error)
        case PlayheadError():
            return told(call, "error", f"The call failed: {_short(str(error))}", error=error)
        case _:
            # Words of foreign exceptions may quote what a model must not get: a key, a header, a path.
            return told(call, "error", f"The call failed: {type(error).__name__}", error=error)


def _short(text: str) -> str:
    return text if len(text) <= ERROR_CHARS else text[:ERROR_CHARS] + "…"
