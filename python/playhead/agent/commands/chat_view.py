"""The view of a chat: its turns at the terminal, and their summary for `--json`.

Both use only the events, so a replayed recording looks the same. The answer goes to stdout as it arrives.
Calls, audio and thinking go to stderr, one line each. The terminal escapes the text of the model and of
tools, which is untrusted.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, assert_never

from playhead.agent.events import (
    AudioEnd,
    AudioResumed,
    AudioStart,
    AudioWaiting,
    Event,
    Failed,
    ImageComplete,
    ReplyComplete,
    ReplyCreated,
    TextComplete,
    TextDelta,
    ThinkingDelta,
    ToolCallBegin,
    ToolCallError,
    ToolCallResponse,
    ToolComplete,
    ToolInProgress,
    ToolPending,
    ToolProgress,
    ToolRef,
    Usage,
)
from playhead.cli.runner import EXIT_DONE, EXIT_FAILED, Report
from playhead.cli.terminal import Terminal, escape_line, first_line, human_bytes
from playhead.errors import ToolFailedError

if TYPE_CHECKING:
    from playhead.agent.middleware import TurnResult
    from playhead.client.call_results.processing import ProcessedResult
    from playhead.playback import Player
    from playhead.playback.state import PlayerEvent

_SHOWN_CHARS: Final = 1000
"""Limits the text of a name, of arguments or of a reason."""


class ChatView:
    """Shows events at `terminal`. `verbose` adds thinking, progress and tokens."""

    def __init__(self, terminal: Terminal, *, verbose: bool) -> None:
        self._terminal = terminal
        self._verbose = verbose
        self._is_thinking = False
        self._is_within_line = False

    def __call__(self, event: Event) -> None:
        """Show `event`. Raises `OSError` if stdout is gone or full."""
        match event:
            case TextDelta():
                self._end_thinking()
                self._write(event.text)
            case TextComplete():
                self.end_line()
            case ThinkingDelta() if self._verbose:
                self._show_thinking(event.text)
            case ToolPending():
                self._show_line(f"? {event.tool.name} waits for your approval", "yellow")
            case ToolCallBegin():
                self._show_line(f"→ {event.tool.name} {_arguments_line(event.tool)}".rstrip(), "cyan")
            case ToolProgress() if self._verbose:
                of = "" if event.total is None else f"/{event.total:g}"
                self._show_line(
                    f"… {event.tool.name} {event.progress:g}{of} {event.message or ''}".rstrip(), "dim"
                )
            case ToolCallResponse():
                self._show_response(event)
            case ToolCallError():
                self._show_failure(event.tool.name, event.error)
            case AudioStart():
                self._show_line(f"♪ {event.title or 'audio'}", "magenta")
            case AudioWaiting():
                self._show_text(
                    waiting_text(event.title, event.seconds, event.last_error, event.patience_seconds)
                )
            case AudioResumed():
                self._show_line(resumed_text(event.title, event.seconds), "green")
            case AudioEnd() if why := event.error or event.finding:
                self._show_failure(event.title or "audio", why)
            case ImageComplete():
                self._show_line(f"image: {event.mime_type}, {human_bytes(event.size_bytes)}", "magenta")
            case Usage() if self._verbose:
                tokens = f"{_count(event.input_tokens)} tokens in, {_count(event.output_tokens)} out"
                self._show_line(tokens, "dim")
            case Failed():
                self._end_thinking()
                self.end_line()
            case (
                ReplyCreated() | ToolInProgress() | ToolComplete() | ReplyComplete()
                | ThinkingDelta() | ToolProgress() | AudioEnd() | Usage()
            ):  # fmt: skip
                pass
            case _:
                assert_never(event)

    def end_line(self) -> None:
        """Start a new line if the text stopped in the middle of one."""
        if self._is_within_line:
            self._is_within_line = False
            self._terminal.write("\n")

    def _write(self, text: str) -> None:
        if text:
            self._terminal.write(text)
            self._is_within_line = not text.endswith("\n")

    def _show_line(self, text: str, style: str) -> None:
        self._end_thinking()
        self.end_line()
        self._terminal.line(text[:_SHOWN_CHARS], style=style)

    def _show_failure(self, what: str, why: str) -> None:
        """Show a failure on as many lines as needed, because the end of `why` has the remedy."""
        self._show_text(f"✗ {escape_line(what[:_SHOWN_CHARS])}: {why[:_SHOWN_CHARS]}", "red")

    def _show_text(self, text: str, style: str = "yellow") -> None:
        self._end_thinking()
        self.end_line()
        self._terminal.say(text, style=style)

    def _show_response(self, event: ToolCallResponse) -> None:
        if event.result.status == "done":
            self._show_line(f"✓ {event.tool.name}", "green")
        else:
            self._show_failure(event.tool.name, event.result.text)

    def _show_thinking(self, text: str) -> None:
        self.end_line()
        self._is_thinking = True
        self._terminal.prompt(text, style="dim")

    def _end_thinking(self) -> None:
        if self._is_thinking:
            self._is_thinking = False
            self._terminal.prompt("\n")


def waiting_text(title: str, seconds: float, last_error: object, patience_seconds: float) -> str:
    """Return the line about audio that waits for its server. `title` may be empty."""
    why = "" if last_error is None else f": {first_line(str(last_error))}"
    return (
        f"{escape_line(title or 'audio')}: no data for {seconds:.0f} s{why};"
        f" giving up after {round(patience_seconds, 1):g} s"
    )


def resumed_text(title: str, seconds: float) -> str:
    return f"{escape_line(title or 'audio')} goes on after {seconds:.0f} s"


def player_notice(event: PlayerEvent) -> tuple[str, str] | None:
    """Return the line about audio that fails, waits or goes on, and its style; None for other events."""
    from playhead.playback.state import ItemError, ItemResumed, ItemWaiting

    match event:
        case ItemError():
            return f"✗ {event.title or 'audio'}: {event.error}", "red"
        case ItemWaiting():
            text = waiting_text(event.title, event.seconds, event.last_error, event.patience_seconds)
            return text, "yellow"
        case ItemResumed():
            return resumed_text(event.title, event.seconds), "green"
        case _:
            return None


async def show_waiting(player: Player, terminal: Terminal) -> None:
    """Print a line when audio waits for its server, and when it goes on, until the player closes.

    Use it after a turn, because during a turn its events report this. `Player.wait_finished` raises failures.
    """
    from playhead.playback.state import ItemError

    with player.events() as events:
        async for event in events:
            notice = None if isinstance(event, ItemError) else player_notice(event)
            if notice is not None:
                terminal.say(notice[0], style=notice[1])


def _count(tokens: int | None) -> str:
    return "?" if tokens is None else str(tokens)


def _arguments_line(tool: ToolRef) -> str:
    """Format a call's arguments as one line; empty without any."""
    if not tool.arguments:
        return ""
    return escape_line(json.dumps(dict(tool.arguments), ensure_ascii=False, default=str))


class TurnSummary:
    """Updates the object of `--json` with each event, so that it reports an interrupted turn, too."""

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
                self._end_call(event.round, event.tool.id, event.result.status, event.result.text)
            case ToolCallError():
                self._end_call(event.round, event.tool.id, event.status, event.error)
            case Usage():
                self._count("input_tokens", event.input_tokens)
                self._count("output_tokens", event.output_tokens)
            case Failed():
                self._report["ended_by"] = "error"
            case _:
                pass  # not part of the summary
        self._report["calls"] = list(self._calls.values())
        self._report["text"] = "".join(self._text)

    def _end_call(self, round_: int, id_: str, status: str, text: str) -> None:
        call = self._calls.get((round_, id_))
        if call is not None:
            call.update(status=status, result=text)

    def _count(self, name: str, tokens: int | None) -> None:
        if tokens is not None:
            self._tokens[name] = (self._tokens[name] or 0) + tokens


def show_outcome(result: TurnResult, terminal: Terminal) -> None:
    """Show the results meant for the user, and the reason for the turn's end unless the model answered."""
    for outcome in result.outcomes:
        if outcome.processed is not None:
            _show_result(outcome.processed, terminal)
    match result.ended_by:
        case "answer" | "tool_turn":
            pass
        case "aborted" | "length" | "refused" | "depth" | "calls" | "seconds" | "tokens" | "repeats":
            terminal.say(f"({result.reason})", style="yellow")
        case _:
            assert_never(result.ended_by)


def _show_result(processed: ProcessedResult, terminal: Terminal) -> None:
    if processed.text_for_user:
        terminal.show_markdown(processed.text_for_user)
    for output in processed.saved:
        terminal.say(f"saved {escape_line(str(output.path))}", style="dim")
    for error in (processed.handler_error, processed.saving_error):
        if error is not None:
            terminal.say(str(error), style="red")


def raise_if_refused(result: TurnResult) -> None:
    """Raise `ToolFailedError` if the turn made calls and each was refused, so that nothing was done."""
    refused = [outcome.result.name for outcome in result.outcomes if outcome.result.status == "denied"]
    if refused and len(refused) == len(result.outcomes):
        calls = "the tool call was" if len(refused) == 1 else f"all {len(refused)} tool calls were"
        names = ", ".join(escape_line(name) for name in dict.fromkeys(refused))
        raise ToolFailedError(f"nothing was done: {calls} refused ({names})")


def exit_code(result: TurnResult) -> int:
    """Return 0 if the model answered, even at a budget's end; 1 if it refused or was cut short."""
    return EXIT_FAILED if result.ended_by in ("length", "refused", "aborted") else EXIT_DONE
