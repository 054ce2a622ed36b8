"""Questions to the person at a chat: the approval of a call, and the forms of a server.

The option `--allow` gives an approval in advance. One question is open at a time, an approval or a form. Text
typed before a question does not answer it.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from playhead.cli.terminal import Terminal, escape_line
from playhead.client.session.elicitation import FieldValue, Question, Reply, is_value
from playhead.errors import UsageError

if TYPE_CHECKING:
    from playhead.agent.approvals import Approval, ApprovalRequest, ApprovalRule

ReadLine = Callable[[], Awaitable[str | None]]
"""Returns the next line that the person types; None at the end of input."""


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
    """Return the advice for a call that needs approval if there is nobody to ask. Rules are in `file`."""
    from playhead.config.tools.call_key import allowing_rule

    # A slash in the server's name would end the name in the pattern; `?` matches it.
    pattern = f"{request.server.replace('/', '?')}/{request.tool}"
    rule = allowing_rule(request.server, request.tool, file=str(file))
    return f"add --allow {shlex.quote(pattern)}, or {rule}"


class Questions:
    """Asks at `terminal` and reads the answers with `read`."""

    def __init__(self, terminal: Terminal, read: ReadLine) -> None:
        self._terminal = terminal
        self._read = read
        self._lock = trio.Lock()
        self.is_open = False
        """True while a question waits, and the next line answers it."""

    async def approve(self, request: ApprovalRequest) -> Approval:
        """Ask about a call. Anything but yes means no, including the end of input."""
        from playhead.agent.approvals import Approval

        warning = " (marked as destructive)" if request.hints.destructive else ""
        shown = json.dumps(dict(request.arguments), ensure_ascii=False, indent=2, default=str)
        name = ".".join(escape_line(part) for part in (request.server, request.tool) if part)
        async with self._lock:
            self._terminal.say(f"{name} wants to run{warning}, with {shown}", style="yellow", whole=True)
            answer = await self._read_answer("Run it? y once, a always with these arguments, n no: ")
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
                return await self._ask_to_visit(question.url)
            answer = await self._read_answer("Answer it? y yes, n no: ")
            if answer is None:
                return Reply(action="cancel")
            if answer.strip().lower() not in ("y", "yes"):
                return Reply(action="decline")
            content: dict[str, FieldValue] = {}
            for name, schema in question.fields.items():
                field = _FormField(name, schema, required=name in question.required)
                while (text := await self._read_answer(field.prompt)) is not None:
                    mistake = field.take(text, content)
                    if mistake is None:
                        break
                    self._terminal.say(mistake, style="red")
                if text is None:
                    return Reply(action="cancel")
            if question.required - content.keys() - _with_defaults(question):
                return Reply(action="cancel")  # a required field is not in the schema, so it has no question
            return Reply(action="accept", content=content)

    async def _ask_to_visit(self, url: str) -> Reply:
        import webbrowser

        self._terminal.say(f"the answer is given on a web page: {escape_line(url)}", whole=True)
        answer = await self._read_answer("Open it in the browser? y yes, n no: ")
        if answer is None or answer.strip().lower() not in ("y", "yes"):
            return Reply(action="cancel" if answer is None else "decline")
        if not url.lower().startswith(("https://", "http://")):
            self._terminal.say("not opened: expected an http(s) URL", style="red")
            return Reply(action="decline")
        await trio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
        return Reply(action="accept")

    async def _read_answer(self, prompt: str) -> str | None:
        _discard_typed_input()
        self._terminal.prompt(prompt)
        self.is_open = True
        try:
            return await self._read()
        finally:
            self.is_open = False


class _FormField:
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
        kinds = {"boolean": "y | n", "array": "a, b, …"}
        accepted = " | ".join(self._choices) or kinds.get(self._kind, self._kind)
        default = "" if self._default is None else f", empty: {self._default}"
        if not default and not self._required:
            default = ", may be empty"
        named = escape_line(self._name) + (f" ({escape_line(str(about))})" if about else "")
        return f"  {named} [{escape_line(accepted + default)}]: "

    def take(self, text: str, content: dict[str, FieldValue]) -> str | None:
        """Store the typed value in `content`, or return the mistake in it."""
        text = text.strip()
        if not text:
            return f"{self._name} is required" if self._required else None
        if self._choices and text not in self._choices and self._kind != "array":
            return f"expected one of {', '.join(self._choices)}"
        try:
            content[self._name] = self._parse_value(text)
        except (ValueError, KeyError, OverflowError):
            return f"expected {self._kind}, got {text!r}"
        return None

    def _parse_value(self, text: str) -> FieldValue:
        match self._kind:
            case "boolean":
                values = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
                return values[text.lower()]
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
    """Return the possible values of a field, or of the items of a list, from `enum` or titled constants."""
    values: list[str] = []
    items = schema.get("items")
    for place in (schema, items if isinstance(items, dict) else {}):
        for key in ("enum", "oneOf", "anyOf"):
            choices = place.get(key)
            for choice in choices if isinstance(choices, list) else ():
                value = choice.get("const") if isinstance(choice, dict) else choice
                if isinstance(value, str):
                    values.append(value)
    return values


def _with_defaults(question: Question) -> set[str]:
    """Return the fields that get a value if the reply omits them."""
    return {name for name, schema in question.fields.items() if is_value(schema.get("default"))}


def _discard_typed_input() -> None:
    """Discard input that was typed before the question could be read."""
    if sys.stdin.isatty():
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
