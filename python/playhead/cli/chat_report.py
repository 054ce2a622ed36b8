"""The one object of `playhead chat --json`, put together from a turn's events: also of a recording's."""

from __future__ import annotations

from typing import Any

from playhead.agent.events import (
    Event,
    Failed,
    ReplyCreated,
    TextDelta,
    ToolCallError,
    ToolCallResponse,
    ToolInProgress,
    Usage,
)
from playhead.cli.runner import Report


class Told:
    """Keeps `report` up to date, so that it also says how far an interrupted turn came."""

    def __init__(self, report: Report) -> None:
        self._text: list[str] = []
        self._calls: dict[tuple[int, str], dict[str, Any]] = {}
        self._tokens: dict[str, int | None] = {"input_tokens": None, "output_tokens": None}
        self._report = report
        report.update(text="", rounds=0, calls=[], usage=self._tokens, ended_by=None, reason="")

    def __call__(self, event: Event) -> None:
        match event:
            case ReplyCreated():
                self._text.clear()
                self._report.update(text="", rounds=event.round)
            case TextDelta():
                self._text.append(event.text)
            case ToolInProgress():
                call = {
                    "id": event.tool.id,
                    "name": event.tool.name,
                    "arguments": event.tool.arguments,
                    "status": "cancelled",
                    "result": "",
                }
                self._calls[event.round, event.tool.id] = call
            case ToolCallResponse():
                self._end(event.round, event.tool.id, event.result.status, event.result.text)
            case ToolCallError():
                self._end(event.round, event.tool.id, event.status, event.error)
            case Usage():
                for name, value in (
                    ("input_tokens", event.input_tokens),
                    ("output_tokens", event.output_tokens),
                ):
                    if value is not None:
                        self._tokens[name] = (self._tokens[name] or 0) + value
            case Failed():
                self._report["ended_by"] = "error"
            case _:
                pass  # what is only to be watched
        self._report["calls"] = list(self._calls.values())
        self._report["text"] = "".join(self._text)

    def _end(self, round_: int, id_: str, status: str, text: str) -> None:
        call = self._calls.get((round_, id_))
        if call is not None:
            call.update(status=status, result=text)

    def _count(self, name: str, tokens: int | None) -> None:
        if tokens is not None:
            self._tokens[name] = (self._tokens[name] or 0) + tokens
