"""The command tree, and the last line of defence: nothing prints a traceback at a user."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Annotated

import typer

from playhead import _core
from playhead.cli import call, chat, check, demo, explain, outputs, play, read, schema, serve, tools
from playhead.cli.runner import EXIT_DONE, EXIT_FAILED, fail, stdout_left
from playhead.cli.terminal import Terminal
from playhead.errors import PlayheadError

app = typer.Typer(
    name="playhead",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
serve_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Run one of the example servers.")
app.add_typer(serve_app, name="serve")
schema_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The template server's documents: show, validate messages.",
)
app.add_typer(schema_app, name="schema")

app.command("demo")(demo.demo)
app.command("tools")(tools.tools)
app.command("call")(call.call)
app.command("chat")(chat.chat)
app.command("play")(play.play)
app.command("read")(read.read)
app.command("explain")(explain.explain)
app.command("check")(check.check)
app.command("outputs")(outputs.outputs)
serve_app.command("audio")(serve.audio)
serve_app.command("template")(serve.template)
schema_app.command("validate")(schema.validate)
schema_app.command("show")(schema.show)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"playhead {_core.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """MCP tool results, played, shown and routed while they are still arriving.

    SERVER is a name from an mcpServers file, a URL, or a command line in quotes.
    """


def run(arguments: Sequence[str]) -> int:
    """Run the command line `arguments` (without the program's name); return the exit code."""
    # Without a handler, Python prints what the libraries log (tracebacks, a server's own words) on stderr.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        app(list(arguments), prog_name="playhead")
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else EXIT_DONE
    except BrokenPipeError:
        return stdout_left()
    except (PlayheadError, OSError) as error:
        if isinstance(error, OSError):  # of the help, or of the report: a command's own are caught in it
            error.filename = error.filename or "stdout"
        return fail(error, Terminal(json_output="--json" in arguments), {})
    except Exception as error:  # the outermost frame: a bug of ours must not print a traceback at a user
        if "PLAYHEAD_TRACEBACK" in os.environ:
            raise
        Terminal(json_output=False).fail(
            f"internal error, please report it: {type(error).__name__}: {error}"
            " (PLAYHEAD_TRACEBACK=1 in the environment shows where)"
        )
        return EXIT_FAILED
    return EXIT_DONE
