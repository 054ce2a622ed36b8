"""What is said about a turn that is over, beside what its events have shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from playhead.cli.runner import EXIT_DONE, EXIT_FAILED
from playhead.cli.terminal import Terminal, escape_line

if TYPE_CHECKING:
    from playhead.agent.middleware import TurnResult
    from playhead.client.processing import ProcessedResult


def tell_outcome(result: TurnResult, terminal: Terminal) -> None:
    """Show what results have for the user, and why the turn ended where it was not by an answer."""
    for outcome in result.outcomes:
        if outcome.processed is not None:
            _tell_result(outcome.processed, terminal)
    match result.ended_by:
        case "answer" | "tool_turn":
            pass
        case "aborted" | "length" | "refused" | "depth" | "calls" | "seconds" | "tokens" | "repeats":
            terminal.say(f"({result.reason})", style="yellow")
        case _:
            assert_never(result.ended_by)


def _tell_result(processed: ProcessedResult, terminal: Terminal) -> None:
    if processed.text_for_user:
        terminal.show_markdown(processed.text_for_user)
    for output in processed.saved:
        terminal.say(f"saved {escape_line(str(output.path))}", style="dim")
    for error in (processed.handler_error, processed.saving_error):
        if error is not None:
            terminal.say(str(error), style="red")


def exit_code(result: TurnResult) -> int:
    """0 where the model answered, also at a budget; 1 where it was cut short or refused."""
    return EXIT_FAILED if result.ended_by in ("length", "refused", "aborted") else EXIT_DONE
