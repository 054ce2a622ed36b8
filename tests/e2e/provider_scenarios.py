"""The scenarios that a conversation with each provider goes through.

A test that is to have the same events every time needs every race decided. So the tools answer when they are
let (`Scenario.finish`), after the reply that calls them is over, and a reply whose calls end while it still
streams waits for that (`Hold`, released by the event `Scenario.release_on`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from playhead.agent.approvals import Approval, ApprovalRequest, Approvals
from playhead.agent.events import (
    AudioEnd,
    Event,
    ToolCallError,
    ToolCallResponse,
    ToolPending,
    Usage,
    to_json,
)
from playhead.limits import DEFAULT_LIMITS, Limits
from tests.servers.providers.script import ARGUMENT_CUTS, Ask, Hold, Part, Refuse, Reply, Say, Think
from tests.servers.toolbox import Toolbox

THOUGHT = Think("They want to hear it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A turn: what the model says in its rounds, and what is decided by the test."""

    name: str
    replies: Callable[[], tuple[Reply, ...]]
    finish: tuple[tuple[str, ...], ...] = ()
    """For each round, the labels of its calls in the order in which they answer."""
    statuses: tuple[str, ...]
    """Of all results, in the order of the calls."""
    release_on: type[Event] | None = None
    """The event that lets a held reply go on."""
    is_approved: bool = False
    """Somebody is asked, and says no."""
    ended_by: str = "answer"
    limits: Limits = DEFAULT_LIMITS


def echo(call_id: str, label: str, times: int | None = None) -> Ask:
    arguments = {"label": label} if times is None else {"label": label, "times": times}
    return Ask(call_id, "box__echo", json.dumps(arguments))


SCENARIOS = (
    Scenario(
        name="two-parallel-calls",
        replies=lambda: (
            Reply(Say("Just a moment."), echo("id_a", "a", 2), echo("id_b", "b")),
            Reply(Say("Both are done.")),
        ),
        finish=(("b", "a"),),
        statuses=("done", "done"),
    ),
    Scenario(
        name="nested-second-round",
        replies=lambda: (
            Reply(Say("First this."), echo("id_a", "a")),
            Reply(Say("Then that."), echo("id_b", "b"), echo("id_c", "c")),
            Reply(Say("Now it is done.")),
        ),
        finish=(("a",), ("b", "c")),
        statuses=("done", "done", "done"),
    ),
    Scenario(
        name="image-result",
        replies=lambda: (Reply(Say("Let me look."), Ask("id_a", "box__image")), Reply(Say("A pixel."))),
        finish=(("image",),),
        statuses=("done",),
    ),
    Scenario(
        name="audio-result",
        replies=lambda: (Reply(Say("With pleasure."), Ask("id_a", "box__audio"), echo("id_b", "b")),),
        finish=(("audio", "b"),),
        statuses=("done", "done"),
        ended_by="tool_turn",
    ),
    Scenario(
        name="denied-call",
        replies=lambda: (
            Reply(Say("I will wipe it."), echo("id_a", "a"), Ask("id_b", "box__wipe"), Hold()),
            Reply(Say("As you like.")),
        ),
        finish=(("ask", "a"),),
        statuses=("done", "denied"),
        release_on=ToolPending,
        is_approved=True,
    ),
    Scenario(
        name="unknown-tool",
        replies=lambda: (
            Reply(Say("I know one."), Ask("id_a", "box__ecko", '{"label": "a"}'), echo("id_b", "b")),
            Reply(Say("I see.")),
        ),
        finish=(("b",),),
        statuses=("unknown", "done"),
    ),
    Scenario(
        name="timeout",
        replies=lambda: (
            Reply(Say("This may take long."), echo("id_a", "never"), Hold()),
            Reply(Say("It took too long.")),
        ),
        statuses=("timeout",),
        release_on=ToolCallError,
        limits=Limits(tool_seconds=0.2),
    ),
    Scenario(
        name="bad-arguments",
        replies=lambda: (
            Reply(Say("Like this."), Ask("id_a", "box__echo", '["a", 1]'), echo("id_b", "b")),
            Reply(Say("I will do better.")),
        ),
        finish=(("b",),),
        statuses=("bad_arguments", "done"),
    ),
    Scenario(
        name="arguments-against-the-schema",
        replies=lambda: (
            Reply(Say("Like this."), Ask("id_a", "box__echo", '{"label": "a", "times": "two"}'), Hold()),
            Reply(Say("I will do better.")),
        ),
        statuses=("error",),
        release_on=ToolCallResponse,
    ),
    Scenario(
        name="failing-tool",
        replies=lambda: (Reply(Say("I try."), Ask("id_a", "box__fail")), Reply(Say("It is out of order."))),
        finish=(("fail",),),
        statuses=("error",),
    ),
    Scenario(
        name="thinking",
        replies=lambda: (
            Reply(THOUGHT, Say("Just a moment."), echo("id_a", "a")),
            Reply(Say("Done.")),
        ),
        finish=(("a",),),
        statuses=("done",),
    ),
)


def in_tags(reply: Reply) -> Reply:
    """The reply of a model that knows no calls: it writes them into its text."""
    parts: list[Part] = []
    for part in reply.parts:
        if isinstance(part, Ask):
            text = f"<tool_use><name>{part.name}</name><arguments>{part.arguments}</arguments></tool_use>"
            parts.append(Say(text, ARGUMENT_CUTS))
        else:
            parts.append(part)
    return Reply(*parts, input_tokens=reply.input_tokens, output_tokens=reply.output_tokens)


@dataclass(slots=True)
class Stage:
    """Keeps the events of a turn, and decides what may go on."""

    scenario: Scenario
    box: Toolbox
    script: list[Reply | Refuse]
    events: list[Event] = field(default_factory=list)
    _due: list[str] = field(default_factory=list)

    async def on_event(self, event: Event) -> None:
        self.events.append(event)
        if self.scenario.release_on is not None and isinstance(event, self.scenario.release_on):
            for hold in self._holds():
                hold.released.set()
        if isinstance(event, Usage) and event.round <= len(self.scenario.finish):
            self._due = list(self.scenario.finish[event.round - 1])
            self._let_next()
        elif isinstance(event, ToolCallResponse | ToolCallError):
            self._let_next()

    async def ask(self, _request: ApprovalRequest) -> Approval:
        await self.box.let["ask"].wait()
        return Approval(allow=False)

    @property
    def approvals(self) -> Approvals | None:
        return Approvals(ask=self.ask) if self.scenario.is_approved else None

    def _let_next(self) -> None:
        if self._due:
            self.box.let[self._due.pop(0)].set()

    def _holds(self) -> Iterable[Hold]:
        for reply in self.script:
            if isinstance(reply, Reply):
                yield from (part for part in reply.parts if isinstance(part, Hold))


def told(events: Iterable[Event]) -> str:
    """Events as the golden files have them: without what providers choose (their name, the ids of calls),
    without the end of a sound, which comes when the player is done, and without pydantic's version."""
    names: dict[str, str] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: renamed(key, each) for key, each in value.items()}
        return [plain(each) for each in value] if isinstance(value, list) else value

    def renamed(key: str, value: Any) -> Any:
        if key == "id":
            return names.setdefault(value, f"call-{len(names) + 1}")
        return f"({key})" if key in ("provider", "model") else plain(value)

    lines = [plain(json.loads(to_json(event))) for event in events if not isinstance(event, AudioEnd)]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return re.sub(r"(errors\.pydantic\.dev)/[0-9.]+", r"\1", text)
