"""Run a model's tool calls, with a hub of MCP servers or any other `ToolRunner`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import trio

from playhead.agent.conversation import Attachment, Status, ToolCall, ToolResult, ToolSpec
from playhead.errors import DeadlineError, PlayheadError, UnknownToolError
from playhead.escaping import did_you_mean, shortened
from playhead.results.plan import PlayAudio, ShowImage, TurnDecision
from playhead.stream.source import Playable

if TYPE_CHECKING:
    from playhead.agent.approvals import ApprovalRequest
    from playhead.client.call_results.processing import ProcessedResult
    from playhead.client.hub import Hub
    from playhead.client.hub.catalog import HubTool
    from playhead.client.session.requests import OnMedia, OnProgress
    from playhead.results.responses import StructuredResponse

NEAR_NAMES = 3
LISTED_NAMES = 20
"""Limits the names in the error about an unknown tool. The request to the model has the whole list."""
ERROR_CHARS = 2000
"""Limits the text of a failure for the model. It fits the mistake and the remedy, but not a web page."""
GO_ON = TurnDecision(decision="continue", reason="the model decides what comes next")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultImage:
    """An image in a result, for the user."""

    mime_type: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """The outcome of a call."""

    result: ToolResult
    """The result for the model."""
    turn: TurnDecision = GO_ON
    """The decision whether the loop calls the model again after this call."""
    media: tuple[Playable, ...] = ()
    """The media for the player, in order."""
    pictures: tuple[ResultImage, ...] = ()
    """The images for the user. Events name them."""
    processed: ProcessedResult | None = None
    """The whole result, if a hub answered."""
    response: StructuredResponse | None = None
    """The structured response of a local tool, if any. A hub's is in `processed`."""
    error: Exception | None = None
    """The exception, if the tool didn't answer."""


class ToolRunner(Protocol):
    """Runs tools for the loop. A runner may also have the methods of `Prompting` and `Describing`."""

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools to offer now. The loop calls this before every model call, so it must be fast."""
        ...

    async def call(self, call: ToolCall, *, on_progress: OnProgress, on_media: OnMedia) -> CallOutcome:
        """Run a call of an offered tool, whose `arguments` are an object.

        `on_media` plays audio while the call goes on; the outcome's `media` are without it.

        Returns the tool's answer, including an error. Raises without an answer; the loop turns the
        exception into the call's result (`DeadlineError`: timeout; `UnknownToolError`: unknown; any other
        exception: error, with the message of a `PlayheadError`, and only the class of others). Cancellation
        ends the call on the wire.
        """
        ...


@runtime_checkable
class Prompting(Protocol):
    """A runner whose tools add text to the system prompt."""

    def system_prompt(self, offered: Sequence[ToolSpec]) -> str:
        """Return the text to add while these tools are offered; may be empty."""
        ...


@runtime_checkable
class Describing(Protocol):
    """A runner that can describe a call for approval."""

    def approval_request(self, call: ToolCall) -> ApprovalRequest | None:
        """Make the question about a call; None if the runner doesn't know the tool."""
        ...


class HubRunner:
    """The current tools of a hub, under their model names.

    Set `images` if the model can see: it then gets each image natively, in addition to the line that names
    it. Set `audio` if the model can hear: it then gets audio too, unless the result ends the turn, because
    playing the audio was the purpose of the call. The model gets no media of an error, nor of a result that
    is meant only for the user (`send_result_to_ai=False`).
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

    async def call(self, call: ToolCall, *, on_progress: OnProgress, on_media: OnMedia) -> CallOutcome:
        tool = self._tool(call.name)
        if tool is None:
            raise UnknownToolError(f"the tool {call.name!r} is no longer available", name=call.name)
        processed = await self._hub.call_tool(
            tool, call.arguments, on_progress=on_progress, on_media=on_media
        )
        return CallOutcome(
            result=ToolResult(
                call_id=call.id,
                name=call.name,
                text=processed.text_for_model,
                media=self._native(processed),
                status="error" if processed.is_error else "done",
            ),
            turn=processed.turn,
            media=processed.late_media,
            pictures=tuple(
                ResultImage(mime_type=part.mime_type, size_bytes=part.size_bytes)
                for part in processed.result.plan.parts()
                if isinstance(part, ShowImage)
            ),
            processed=processed,
        )

    def _tool(self, model_name: str) -> HubTool | None:
        """Find a tool by its model name only, because other ids were not offered."""
        return next((tool for tool in self._hub.tools if tool.model_name == model_name), None)

    def _native(self, processed: ProcessedResult) -> tuple[Attachment, ...]:
        from playhead.config.tools import Delivery

        if processed.is_error or processed.resolution.delivery is Delivery.USER:
            return ()
        hears = self._audio and processed.turn.decision == "continue"
        attachments: list[Attachment] = []
        for part in processed.result.plan.parts():
            match part:
                case ShowImage() if self._images:
                    attachments.append(Attachment(kind="image", mime_type=part.mime_type, base64=part.base64))
                case PlayAudio(base64=str(base64)) if hears:
                    attachments.append(
                        Attachment(kind="audio", mime_type=part.mime_type or "audio/mpeg", base64=base64)
                    )
                case _:
                    pass
        return tuple(attachments)


class JoinedRunner:
    """A runner with the tools of several. If two offer a tool with the same name, the model gets the first
    one."""

    def __init__(self, runners: Iterable[ToolRunner]) -> None:
        self._runners = tuple(runners)
        self._by_name: dict[str, tuple[ToolRunner, ToolSpec]] = {}

    def specs(self) -> tuple[ToolSpec, ...]:
        by_name: dict[str, tuple[ToolRunner, ToolSpec]] = {}
        for runner in self._runners:
            for spec in runner.specs():
                by_name.setdefault(spec.name, (runner, spec))
        self._by_name = by_name
        return tuple(spec for _, spec in by_name.values())

    def system_prompt(self, offered: Sequence[ToolSpec]) -> str:
        prompts = [
            runner.system_prompt([spec for spec in offered if self._runner_of(spec.name) is runner])
            for runner in self._runners
            if isinstance(runner, Prompting)
        ]
        return "\n\n".join(prompt for prompt in prompts if prompt)

    def approval_request(self, call: ToolCall) -> ApprovalRequest | None:
        if call.name not in self._by_name:
            return None
        return approval_request(*self._by_name[call.name], call)

    async def call(self, call: ToolCall, *, on_progress: OnProgress, on_media: OnMedia) -> CallOutcome:
        runner = self._runner_of(call.name)
        if runner is None:
            raise UnknownToolError(f"the tool {call.name!r} is no longer available", name=call.name)
        return await runner.call(call, on_progress=on_progress, on_media=on_media)

    def _runner_of(self, name: str) -> ToolRunner | None:
        return self._by_name[name][0] if name in self._by_name else None


def approval_request(runner: ToolRunner, spec: ToolSpec, call: ToolCall) -> ApprovalRequest | None:
    """Make the question about a call: the runner's own, or one without a server. None if the runner doesn't
    know the tool."""
    from playhead.agent.approvals import ApprovalRequest

    if isinstance(runner, Describing):
        return runner.approval_request(call)
    return ApprovalRequest(
        server="", tool=call.name, description=spec.description, arguments=call.arguments or {}
    )


# --- one result for every call -----------------------------------------------------------------------


def refused_outcome(
    call: ToolCall, status: Status, text: str, *, error: Exception | None = None
) -> CallOutcome:
    """Make the outcome of a call that its tool did not answer."""
    result = ToolResult(call_id=call.id, name=call.name, text=text, status=status)
    return CallOutcome(result=result, error=error)


def unknown(call: ToolCall, names: Iterable[str], *, near: bool = True) -> CallOutcome:
    """Make the outcome of a call of a tool that isn't offered. `near`: suggest similar names."""
    known = tuple(names)
    hint = f"the tools are {', '.join(known[:LISTED_NAMES])}" if known else "no tools are offered"
    if near:
        hint = did_you_mean(call.name, known, hint, show=str, most=NEAR_NAMES, joint=", ")
    return refused_outcome(call, "unknown", f"Tool not found: {shortened(call.name, ERROR_CHARS)}; {hint}")


def bad_arguments(call: ToolCall, spec: ToolSpec) -> CallOutcome:
    """Make the outcome of a call whose arguments are not a JSON object."""
    got = repr(shortened(call.arguments_text, ERROR_CHARS)) if call.arguments_text else "nothing"
    problem = call.problem or f"expected one JSON object, got {got}"
    properties = spec.parameters.get("properties")
    names = ", ".join(properties) if isinstance(properties, dict) and properties else "none"
    return refused_outcome(
        call,
        "bad_arguments",
        f"The call of {call.name} was not made: its arguments could not be read: {problem}."
        f" Its parameters: {names}. Call it again with one JSON object.",
    )


def failed(call: ToolCall, error: Exception, names: Iterable[str]) -> CallOutcome:
    """Make the outcome of a call that raised `error` instead of returning an answer."""
    message = shortened(str(error), ERROR_CHARS)
    match error:
        case UnknownToolError():
            # The tool was offered, and has since disappeared.
            return replace(unknown(call, (name for name in names if name != call.name)), error=error)
        case DeadlineError() | trio.TooSlowError() | TimeoutError():
            text = f"The call timed out: {message or 'no answer in time'}"
            return refused_outcome(call, "timeout", text, error=error)
        case PlayheadError():
            return refused_outcome(call, "error", f"The call failed: {message}", error=error)
        case _:
            # Third-party exceptions may quote a key, a header or a path, which a model must not see.
            return refused_outcome(call, "error", f"The call failed: {type(error).__name__}", error=error)
