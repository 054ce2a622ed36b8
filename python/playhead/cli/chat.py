"""`playhead chat`: a model with the tools of your servers, in a terminal, a pipe or a script."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from playhead.cli import parameters as p
from playhead.cli.chat_models import ProviderName, text_of
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.terminal import Terminal
from playhead.errors import UsageError


def chat(
    message: Annotated[
        str | None,
        typer.Argument(metavar="MESSAGE", help="What to say. [default: stdin, or a conversation]"),
    ] = None,
    provider: Annotated[ProviderName | None, typer.Option(help="How the model is spoken to.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="The model's name there.")] = None,
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Another address of the same API, e.g. a local one.")
    ] = None,
    servers: Annotated[
        str | None, typer.Option(metavar="A,B", help="Servers of the file to use. [default: all]")
    ] = None,
    config: p.ConfigFile = None,
    tool_config: p.ToolConfigFile = None,
    sink: p.SinkName = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT|@FILE", help="The system prompt.", show_default=False)
    ] = None,
    prompt_template: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --provider prompt: how the tools are told of."),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the events in a new file.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Show a recording; no model, no server.")
    ] = None,
    pace: Annotated[
        float | None,
        typer.Option(metavar="N", help="With --replay: 1 as recorded, 2 twice as fast. [default: at once]"),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show thinking, progress and tokens too.")
    ] = False,
    json_output: p.Json = False,
) -> None:
    """Talk with a model that has your servers' tools.

    Music that they give plays on while you type. Keys are taken from
    OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY or GOOGLE_API_KEY.
    With --json sound is played only where --sink says into what.
    """
    if replay is not None:
        _check_replay(message=message, record=record)
        _replay(replay, pace=pace, verbose=verbose, json_output=json_output)
    if pace is not None:
        raise UsageError("--pace belongs to --replay")
    if provider is None or not model:
        missing = "--provider" if provider is None else "--model"
        raise UsageError(f"{missing} is missing: say how a model is spoken to, and its name there")
    if prompt_template is not None and provider != "prompt":
        raise UsageError("--prompt-template belongs to --provider prompt; other models are offered tools")
    from playhead.cli.chat_models import is_readable, opened_model
    from playhead.cli.chat_setup import Setup, run_chat
    from playhead.cli.sinks import make_sink

    said = _message(message, json_output=json_output)
    template = None if prompt_template is None else text_of(prompt_template, option="--prompt-template")
    setup = Setup(
        model=opened_model(
            provider,
            model,
            base_url=base_url,
            template=template,
            template_name=str(prompt_template),
            environment=os.environ,
        ),
        message=said,
        servers=None if servers is None else tuple(name.strip() for name in servers.split(",")),
        config=config,
        tool_config=tool_config,
        # A conversation is heard in real time, so that its commands have something to act on.
        sink=None if json_output and sink is None else make_sink(sink, real_time=said is None),
        system=_system(system),
        record=record,
        verbose=verbose,
    )

    async def command(terminal: Terminal, report: Report) -> int:
        if is_readable(base_url):
            terminal.say("--base-url is no https: the network can read the key and the talk", style="yellow")
        return await run_chat(setup, terminal, report)

    run_command(command, json_output=json_output)


def _system(given: str | None) -> str:
    if given is None or not given.startswith("@"):
        return given or ""
    return text_of(Path(given[1:]), option="--system")


def _message(given: str | None, *, json_output: bool) -> str | None:
    """What is said in the one turn; None for a conversation at the terminal."""
    if given is None and sys.stdin.isatty():
        if json_output:
            raise UsageError("--json needs a MESSAGE: a conversation is no object")
        return None
    text = sys.stdin.buffer.read().decode("utf-8", "replace") if given is None else given
    if not text.strip():
        raise UsageError("the message is empty: give a MESSAGE, or write one to stdin")
    return text


def _check_replay(*, message: str | None, record: Path | None) -> None:
    if message is not None or record is not None:
        raise UsageError("--replay shows a recording: it goes with no MESSAGE and no --record")


def _replay(path: Path, *, pace: float | None, verbose: bool, json_output: bool) -> None:
    """Show the recording at `path`, as the turn looked. Does not return."""

    async def command(terminal: Terminal, report: Report) -> int:
        import trio

        from playhead.agent import record
        from playhead.agent.events import Event, Failed
        from playhead.cli.chat_report import Told
        from playhead.cli.chat_view import View

        view, told = View(terminal, verbose=verbose), Told(report)

        def show(event: Event) -> None:
            view(event)
            told(event)
            if isinstance(event, Failed):
                terminal.fail(event.error)

        recording = await trio.to_thread.run_sync(record.read_recording, path)
        await record.replay(recording, show, pace=pace)
        view.end_line()
        if recording.broken_end is not None:
            terminal.say(f"the recording breaks off: {recording.broken_end}", style="yellow")
        if recording.unknown:
            terminal.say(f"{recording.unknown} events are unknown to this version", style="yellow")
        return EXIT_DONE

    run_command(command, json_output=json_output)
