"""The command tree, and the outermost error handler: no user sees a traceback."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from playhead.cli import quick_imports
from playhead.errors import PlayheadError

if TYPE_CHECKING:
    from playhead.cli.runner import Invocation
    from playhead.cli.terminal import Terminal

COMMANDS: Final = {
    "demo": ("cli.streams", "Ask the example server for music and play it while it arrives."),
    "tools": ("cli.tools", "List a server's tools."),
    "ls": ("cli.listing", "List a server's tools, resources, templates and prompts."),
    "discover": ("config.commands.discover", "List the servers that other MCP clients have configured."),
    "call": ("cli.tools", "Call a tool, show its result and play its audio."),
    "chat": ("agent.commands.chat", "Chat with a model that can call your servers' tools."),
    "play": ("cli.play", "Play audio from a server, the web or files while it arrives."),
    "read": ("cli.streams", "Read a resource in byte ranges and save it."),
    "fleet": (
        "check.commands.fleet",
        "Play with many players in many processes, and report the cost.",
    ),
    "explain": (
        "cli.explain",
        "Show how a tool is configured, or how ranges are read, and why.",
    ),
    "check": ("check.commands.check", "Test a server and report its defects."),
    "outputs": ("config.commands.outputs", "List the saved results of tools, newest first."),
    "trust": ("cli.trust", "Accept a directory's mcp.json and playhead-tools.toml."),
    "serve audio": (
        "servers.commands.example_servers",
        "Serve music and speech over MCP, read in ranges.",
    ),
    "serve template": (
        "servers.commands.example_servers",
        "Serve an example of every feature of MCP.",
    ),
    "serve proxy": (
        "servers.commands.proxy",
        "Serve other servers' tools to a host, and play their audio here.",
    ),
    "schema validate": ("servers.commands.schema", "Validate messages against the template server's schema."),
    "schema show": ("servers.commands.schema", "Print one of the documents."),
}
"""Each command as a user types it, with its module below `playhead` and its summary. The command is the
function in that module whose name is the last word; its docstring begins with the summary. A module is
imported only when its command runs, because importing all modules takes longer than any one command needs to
start. Only this table and `open_model` lead from the core to the commands of `agent`, `check` and
`servers`."""
_GROUPS: Final = {
    "serve": "Run an example server, or a proxy that plays audio for a host.",
    "schema": "Show the template server's schemas, or validate messages.",
}


class _LazyGroup(TyperGroup):
    """A group of commands. It has their names and summaries, and imports only the command that runs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        typed = f"{self.name} {name}" if self.name in _GROUPS else name
        if name is not None and typed in COMMANDS:
            command = self.commands[name] = load_command(typed)
        return name, command, rest

    def invoke(self, ctx: Any) -> object:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            from playhead.cli.parameters import unusable_value

            error.message = unusable_value(error)
            raise


def open_model(choice: str, *, base_url: str | None, terminal: Terminal) -> Any:
    """Open a model for a command outside of `agent`; see `answering` there."""
    answering = import_module("playhead.agent.commands.single_question").answering
    return answering(choice, base_url=base_url, terminal=terminal)


def load_command(typed: str) -> Any:
    """Import a command of `COMMANDS` and return it with its options, as typer's command object."""
    module, _ = COMMANDS[typed]
    name = typed.rpartition(" ")[2]
    with quick_imports():
        function = getattr(import_module(f"playhead.{module}"), name)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(function)
    return typer.main.get_command(alone)


app = typer.Typer(
    name="playhead",
    cls=_LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


def _add_commands() -> None:
    groups = {
        name: typer.Typer(cls=_LazyGroup, no_args_is_help=True, rich_markup_mode=None, help=summary)
        for name, summary in _GROUPS.items()
    }
    for typed, (_, summary) in COMMANDS.items():
        group, _, name = typed.rpartition(" ")
        groups.get(group, app).command(name, help=summary)(lambda: None)
    for name, group_app in groups.items():
        app.add_typer(group_app, name=name)


_add_commands()


def _version(value: bool) -> None:
    if value:
        from playhead import _core

        typer.echo(f"playhead {_core.__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Play, show and route MCP tool results while they are still arriving.

    SERVER is a name from an mcpServers file, a URL, or a command line in quotes.
    """
    from playhead.cli.runner import INVOKED

    INVOKED.set(_invocation(context))


def _invocation(context: typer.Context) -> Invocation:
    from playhead.cli.runner import Invocation

    name = context.invoked_subcommand
    command = context.command.commands.get(name) if isinstance(context.command, TyperGroup) and name else None
    if command is None:
        return Invocation()
    options = frozenset(option for each in command.params for option in each.opts)
    return Invocation(name=f"{context.command_path} {name}", options=options)


def run(arguments: Sequence[str]) -> int:
    """Run the command line `arguments` (without the program's name); return the exit code."""
    # Without a handler, Python prints log records of libraries, with tracebacks and a server's text, on
    # stderr.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        app(list(arguments), prog_name="playhead")
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else 0
    except Exception as error:  # the outermost frame: a bug must not print a traceback
        if "PLAYHEAD_TRACEBACK" in os.environ and not isinstance(error, PlayheadError | OSError):
            raise
        return _report(error, json_output="--json" in arguments)
    return 0


def _report(error: Exception, *, json_output: bool) -> int:
    """Report an error that no command handled, and return the exit code."""
    from playhead.cli.runner import EXIT_FAILED, fail, give_up_stdout
    from playhead.cli.terminal import Terminal

    if isinstance(error, BrokenPipeError):
        return give_up_stdout()
    if isinstance(error, OSError):  # from the help or the report: commands handle their own
        error.filename = error.filename or "stdout"
    if isinstance(error, PlayheadError | OSError):
        return fail(error, Terminal(json_output=json_output), {})
    Terminal(json_output=False).fail(
        f"internal error, please report it: {type(error).__name__}: {error}"
        " (set PLAYHEAD_TRACEBACK=1 for a traceback)"
    )
    return EXIT_FAILED
