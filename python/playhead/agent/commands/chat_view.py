"""A chat as a person sees it: the view of a turn, and the questions about it.

The view and its JSON summary are made from events alone, so a recording looks the same. The answer goes to
stdout as it arrives; everything about it (calls, audio, thinking) to stderr, one line each. The model's and
the tools' words are foreign and pass through the terminal's escaping.

Questions are the approval of a call, which options can give in advance, and the questions of a server. There
is one at a time, whoever asks. Text typed before a question does not answer it.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

import trio

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
from playhead.client.session.elicitation import FieldValue, Question, Reply, is_value
from playhead.errors import ToolFailedError, UsageError

if TYPE_CHECKING:
    from playhead.agent.approvals import Approval, ApprovalRequest, ApprovalRule
    from playhead.agent.middleware import TurnResult
    from playhead.client.call_results.processing import ProcessedResult
    from playhead.playback import Player

ReadLine = Callable[[], Awaitable[str | None]]
"""Returns the next line that the person types; None at the end of input."""

_SHOWN_CHARS: Final = 1000
"""The limit for a name, arguments or a reason, which have none of their own; no line is wider."""


class ChatView:
    """Shows events at `terminal`. `verbose` adds thinking, progress and tokens."""

    def __init__(self, terminal: Terminal, *, verbose: bool) -> None:
        self._terminal = terminal
        self._verbose = verbose
        self._thinking = False
        self._mid_line = False

    def __call__(self, event: Event) -> None:
        """Show `event`. Raises `OSError` if stdout is gone or full."""
        match event:
            case TextDelta():
                self._end_thinking()
                self._write(event.text)
            case TextComplete():
                self.end_line()
            case ThinkingDelta() if self._verbose:
                self._think(event.text)
            case ToolPending():
                self._line(f"? {event.tool.name} waits for your approval", "yellow")
            case ToolCallBegin():
                self._line(f"→ {event.tool.name} {_arguments(event.tool)}".rstrip(), "cyan")
            case ToolProgress() if self._verbose:
                of = "" if event.total is None else f"/{event.total:g}"
                self._line(
                    f"… {event.tool.name} {event.progress:g}{of} {event.message or ''}".rstrip(), "dim"
                )
            case ToolCallResponse():
                self._response(event)
            case ToolCallError():
                self._failure(event.tool.name, event.error)
            case AudioStart():
                self._line(f"♪ {event.title or 'audio'}", "magenta")
            case AudioWaiting():
                self._say(waiting_text(event.title, event.seconds, event.last_error, event.patience_seconds))
            case AudioResumed():
                self._line(resumed_text(event.title, event.seconds), "green")
            case AudioEnd() if why := event.error or event.finding:
                self._failure(event.title or "audio", why)
            case ImageComplete():
                self._line(f"image: {event.mime_type}, {human_bytes(event.size_bytes)}", "magenta")
            case Usage() if self._verbose:
                tokens = f"{_count(event.input_tokens)} tokens in, {_count(event.output_tokens)} out"
                self._line(tokens, "dim")
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
        if self._mid_line:
            self._mid_line = False
            self._terminal.write("\n")

    def _write(self, text: str) -> None:
        if text:
            self._terminal.write(text)
            self._mid_line = not text.endswith("\n")

    def _line(self, text: str, style: str) -> None:
        self._end_thinking()
        self.end_line()
        self._terminal.line(text[:_SHOWN_CHARS], style=style)

    def _failure(self, what: str, why: str) -> None:
        """Use as many lines as needed: the end of a reason says what to do."""
        self._say(f"✗ {escape_line(what[:_SHOWN_CHARS])}: {why[:_SHOWN_CHARS]}", "red")

    def _say(self, text: str, style: str = "yellow") -> None:
        self._end_thinking()
        self.end_line()
        self._terminal.say(text, style=style)

    def _response(self, event: ToolCallResponse) -> None:
        if event.result.status == "done":
            self._line(f"✓ {event.tool.name}", "green")
        else:
            self._failure(event.tool.name, event.result.text)

    def _think(self, text: str) -> None:
        self.end_line()
        self._thinking = True
        self._terminal.prompt(text, style="dim")

    def _end_thinking(self) -> None:
        if self._thinking:
            self._thinking = False
            self._terminal.prompt("\n")


def waiting_text(title: str, seconds: float, last_error: object, patience_seconds: float) -> str:
    """Say that audio waits for its server. A failed item may have no title."""
    why = "" if last_error is None else f": {first_line(str(last_error))}"
    return (
        f"{escape_line(title or 'audio')}: no data for {seconds:.0f} s{why};"
        f" giving up after {round(patience_seconds, 1):g} s"
    )


def resumed_text(title: str, seconds: float) -> str:
    return f"{escape_line(title or 'audio')} goes on after {seconds:.0f} s"


async def show_waiting(player: Player, terminal: Terminal) -> None:
    """Say when audio waits for its server, and goes on, until the player closes or this is cancelled.

    For the time after a turn; during one, its events say it."""
    from playhead.playback.state import ItemResumed, ItemWaiting

    with player.events() as events:
        async for event in events:
            match event:
                case ItemWaiting():
                    text = waiting_text(event.title, event.seconds, event.last_error, event.patience_seconds)
                    terminal.say(text, style="yellow")
                case ItemResumed():
                    terminal.say(resumed_text(event.title, event.seconds), style="green")
                case _:
                    pass


def _count(tokens: int | None) -> str:
    return "?" if tokens is None else str(tokens)


def _arguments(tool: ToolRef) -> str:
    """A call's arguments as one line; empty without any."""
    if not tool.arguments:
        return ""
    return escape_line(json.dumps(dict(tool.arguments), ensure_ascii=False, default=str))


class TurnSummary:
    """Keeps the object of `--json` up to date, so that an interrupted turn is reported too."""

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
                self._count("input_tokens", event.input_tokens)
                self._count("output_tokens", event.output_tokens)
            case Failed():
                self._report["ended_by"] = "error"
            case _:
                pass  # only for watching
        self._report["calls"] = list(self._calls.values())
        self._report["text"] = "".join(self._text)

    def _end(self, round_: int, id_: str, status: str, text: str) -> None:
        call = self._calls.get((round_, id_))
        if call is not None:
            call.update(status=status, result=text)

    def _count(self, name: str, tokens: int | None) -> None:
        if tokens is not None:
            self._tokens[name] = (self._tokens[name] or 0) + tokens


def show_outcome(result: TurnResult, terminal: Terminal) -> None:
    """Show the results meant for the user, and why the turn ended if not by an answer."""
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
    """Raise `ToolFailedError` if the turn made calls and each of them was refused: nothing was done."""
    refused = [it.result.name for it in result.outcomes if it.result.status == "denied"]
    if refused and len(refused) == len(result.outcomes):
        calls = "the tool call was" if len(refused) == 1 else f"all {len(refused)} tool calls were"
        names = ", ".join(escape_line(name) for name in dict.fromkeys(refused))
        raise ToolFailedError(f"nothing was done: {calls} refused ({names})")


def exit_code(result: TurnResult) -> int:
    """0 if the model answered, also at a budget; 1 if it refused or was cut short."""
    return EXIT_FAILED if result.ended_by in ("length", "refused", "aborted") else EXIT_DONE


def allowed_rules(patterns: Sequence[str] | None) -> tuple[ApprovalRule, ...]:
    """Parse the values of `--allow`: patterns of a server and a tool, `SERVER/TOOL`. Raises `UsageError`."""
    from playhead.agent.approvals import ApprovalRule

    rules = []
    for pattern in patterns or ():
        server, slash, tool = pattern.partition("/")
        if not (server and slash and tool):
            raise UsageError(f"--allow: expected SERVER/TOOL, such as 'music/*', got {pattern!r}")
        rules.append(ApprovalRule(action="allow", server=server, tool=tool))
    return tuple(rules)


def how_to_allow(request: ApprovalRequest, *, file: Path) -> str:
    """The remedy for a call that needs approval where nobody can be asked; `file` is the one for rules."""
    from playhead.agent.approvals import allowing_rule

    # A server's name may hold a slash, which would end it.
    pattern = f"{request.server.replace('/', '?')}/{request.tool}"
    return f"add --allow {shlex.quote(pattern)}, or {allowing_rule(request, file=str(file))}"


class Questions:
    """Asks at `terminal` and reads the answers with `read`."""

    def __init__(self, terminal: Terminal, read: ReadLine) -> None:
        self._terminal = terminal
        self._read = read
        self._lock = trio.Lock()
        self.is_open = False
        """A question is waiting: the next line answers it. False again if asking is cancelled."""

    async def approve(self, request: ApprovalRequest) -> Approval:
        """Ask about a call. Anything but yes means no, including the end of input."""
        from playhead.agent.approvals import Approval

        says = " (marked as destructive)" if request.hints.destructive else ""
        shown = json.dumps(dict(request.arguments), ensure_ascii=False, indent=2, default=str)
        name = ".".join(escape_line(part) for part in (request.server, request.tool) if part)
        async with self._lock:
            self._terminal.say(f"{name} wants to run{says}, with {shown}", style="yellow", whole=True)
            answer = await self._answer("Run it? y once, a always with these arguments, n no: ")
        choice = (answer or "").strip().lower()
        return Approval(
            allow=choice in ("y", "yes", "a", "always"),
            scope="conversation" if choice in ("a", "always") else "once",
        )

    async def elicit(self, question: Question) -> Reply:
        """Ask a server's question. Never raises: after an invalid answer it asks again."""
        async with self._lock:
            prompt = f"{escape_line(question.server)} asks: {question.message}"
            self._terminal.say(prompt, style="yellow", whole=True)
            if question.url is not None:
                return await self._visit(question.url)
            answer = await self._answer("Answer it? y yes, n no: ")
            if answer is None:
                return Reply(action="cancel")
            if answer.strip().lower() not in ("y", "yes"):
                return Reply(action="decline")
            content: dict[str, FieldValue] = {}
            for name, schema in question.fields.items():
                field = _Field(name, schema, required=name in question.required)
                while (text := await self._answer(field.prompt)) is not None:
                    wrong = field.take(text, content)
                    if wrong is None:
                        break
                    self._terminal.say(wrong, style="red")
                if text is None:
                    return Reply(action="cancel")
            if question.required - content.keys() - _with_defaults(question):
                return Reply(action="cancel")  # a field without a form: nobody could fill it in
            return Reply(action="accept", content=content)

    async def _visit(self, url: str) -> Reply:
        import webbrowser

        self._terminal.say(f"the answer is given on a web page: {escape_line(url)}", whole=True)
        answer = await self._answer("Open it in the browser? y yes, n no: ")
        if answer is None or answer.strip().lower() not in ("y", "yes"):
            return Reply(action="cancel" if answer is None else "decline")
        if not url.lower().startswith(("https://", "http://")):
            self._terminal.say("not opened: expected an http(s) URL", style="red")
            return Reply(action="decline")
        await trio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
        return Reply(action="accept")

    async def _answer(self, prompt: str) -> str | None:
        _forget_typed()
        self._terminal.prompt(prompt)
        self.is_open = True
        try:
            return await self._read()
        finally:
            self.is_open = False


class _Field:
    """One field of a form."""

    def __init__(self, name: str, schema: Any, *, required: bool) -> None:
        self._name = name
        self._schema: dict[str, Any] = dict(schema)
        default = self._schema.get("default")
        self._default = default if is_value(default) else None
        self._required = required and self._default is None
        self._kind = str(self._schema.get("type", "string"))
        self._choices = _choices(self._schema)

    @property
    def prompt(self) -> str:
        """The field's name and the accepted input."""
        about = self._schema.get("description") or self._schema.get("title") or ""
        wanted = " | ".join(self._choices) or {"boolean": "y | n", "array": "a, b, …"}.get(
            self._kind, self._kind
        )
        default = "" if self._default is None else f", empty: {self._default}"
        if not default and not self._required:
            default = ", may be empty"
        named = escape_line(self._name) + (f" ({escape_line(str(about))})" if about else "")
        return f"  {named} [{escape_line(wanted + default)}]: "

    def take(self, text: str, content: dict[str, FieldValue]) -> str | None:
        """Store the typed value in `content`, or return the mistake in it."""
        text = text.strip()
        if not text:
            return f"{self._name} is required" if self._required else None
        if self._choices and text not in self._choices and self._kind != "array":
            return f"expected one of {', '.join(self._choices)}"
        try:
            content[self._name] = self._value(text)
        except (ValueError, KeyError, OverflowError):
            return f"expected {self._kind}, got {text!r}"
        return None

    def _value(self, text: str) -> FieldValue:
        match self._kind:
            case "boolean":
                return {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}[
                    text.lower()
                ]
            case "integer":
                return int(text)
            case "number":
                number = float(text)
                if not math.isfinite(number):
                    raise ValueError(text)
                return number
            case "array":
                items = [item.strip() for item in text.split(",") if item.strip()]
                if self._choices and not set(items) <= set(self._choices):
                    raise ValueError(text)
                return items
            case _:
                return text


def _choices(schema: dict[str, Any]) -> list[str]:
    """The listed values of a field, or of a list's items: `enum`, or titled constants."""
    values: list[str] = []
    items = schema.get("items")
    for place in (schema, items if isinstance(items, dict) else {}):
        for key in ("enum", "oneOf", "anyOf"):
            listed = place.get(key)
            for one in listed if isinstance(listed, list) else ():
                value = one.get("const") if isinstance(one, dict) else one
                if isinstance(value, str):
                    values.append(value)
    return values


def _with_defaults(question: Question) -> set[str]:
    """The fields that get a value if the reply omits them."""
    return {name for name, schema in question.fields.items() if is_value(schema.get("default"))}


def _forget_typed() -> None:
    """Drop pending input: it was typed before the question could be read."""
    if sys.stdin.isatty():
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
