"""The command tree, and the outermost error handler: no user sees a traceback."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.core import TyperGroup

from playhead import _core
from playhead.cli import chat, check, explain, outputs, servers, streams, tools, trust
from playhead.cli.runner import EXIT_DONE, EXIT_FAILED, INVOKED, Invocation, fail, stdout_left
from playhead.cli.terminal import Terminal
from playhead.errors import PlayheadError

app = typer.Typer(
    name="playhead",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
serve_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Run one of the example servers.")
app.add_typer(serve_app, name="serve")
schema_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show the template server's schemas, or validate messages.",
)
app.add_typer(schema_app, name="schema")

app.command("demo")(streams.demo)
app.command("tools")(tools.tools)
app.command("call")(tools.call)
app.command("chat")(chat.chat)
app.command("play")(streams.play)
app.command("read")(streams.read)
app.command("explain")(explain.explain)
app.command("check")(check.check)
app.command("outputs")(outputs.outputs)
app.command("trust")(trust.trust)
serve_app.command("audio")(servers.audio)
serve_app.command("template")(servers.template)
schema_app.command("validate")(servers.validate)
schema_app.command("show")(servers.show)


def _version(value: bool) -> None:
    if value:
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
    INVOKED.set(_invocation(context))


def _invocation(context: typer.Context) -> Invocation:
    name = context.invoked_subcommand
    command = context.command.commands.get(name) if isinstance(context.command, TyperGroup) and name else None
    if command is None:
        return Invocation()
    options = frozenset(option for each in command.params for option in each.opts)
    return Invocation(name=f"{context.command_path} {name}", options=options)


def run(arguments: Sequence[str]) -> int:
    """Run the command line `arguments` (without the program's name); return the exit code."""
    # Without a handler, Python prints the libraries' log records (tracebacks, server text) on stderr.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        app(list(arguments), prog_name="playhead")
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else EXIT_DONE
    except BrokenPipeError:
        return stdout_left()
    except (PlayheadError, OSError) as error:
        if isinstance(error, OSError):  # from the help or the report: commands handle their own
            error.filename = error.filename or "stdout"
        return fail(error, Terminal(json_output="--json" in arguments), {})
    except Exception as error:  # the outermost frame: a bug must not print a traceback
        if "PLAYHEAD_TRACEBACK" in os.environ:
            raise
        Terminal(json_output=False).fail(
            f"internal error, please report it: {type(error).__name__}: {error}"
            " (set PLAYHEAD_TRACEBACK=1 for a traceback)"
        )
        return EXIT_FAILED
    return EXIT_DONE
