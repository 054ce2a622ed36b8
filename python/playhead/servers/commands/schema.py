"""`playhead schema`: print the schema of the template server's messages, or validate messages against it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import trio
import typer

from playhead.cli import parameters as p
from playhead.cli.runner import EXIT_DONE, EXIT_FAILED, Report, run_command
from playhead.cli.terminal import Terminal
from playhead.errors import UsageError
from playhead.escaping import counted

Document = Literal["messages", "openapi"]


def validate(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="One message, an array of them, or JSON lines; - is stdin.",
            show_default=False,
        ),
    ],
    json_output: p.Json = False,
) -> None:
    """Validate messages against the template server's schema.

    Accepts requests, notifications, results and errors of both directions and
    every revision of MCP. Exit code 1 if a message is invalid, 2 if FILE can't
    be read or isn't JSON.
    """

    async def command(terminal: Terminal, report: Report) -> int:
        from playhead.servers.template.documents import find_departures, read_messages

        name = "stdin" if file == "-" else file
        try:
            messages = read_messages(await trio.to_thread.run_sync(_read_text, file, abandon_on_cancel=True))
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from None
        findings = await trio.to_thread.run_sync(find_departures, messages, abandon_on_cancel=True)
        wrong = len({finding.message for finding in findings})
        report.update(
            messages=len(messages),
            wrong_messages=wrong,
            findings=[
                {
                    "message": finding.message,
                    "line": finding.line,
                    "label": finding.label,
                    "path": finding.finding.path,
                    "expected": finding.finding.expected,
                    "got": finding.finding.got,
                }
                for finding in findings
            ],
        )
        for finding in findings:
            terminal.show(f"{name}: {finding}")
        terminal.say(f"{counted(len(messages), 'message')}, {f'{wrong} invalid' if wrong else 'all valid'}")
        return EXIT_FAILED if findings else EXIT_DONE

    run_command(command, json_output=json_output)


def show(
    document: Annotated[
        Document,
        typer.Argument(
            metavar="DOCUMENT",
            help="JSON Schema of the messages, or the OpenAPI document of the HTTP endpoints.",
        ),
    ] = "messages",
) -> None:
    """Print one of the documents."""

    async def command(terminal: Terminal, _report: Report) -> int:
        from playhead.servers.template.documents import openapi_text, schema_text

        terminal.show((schema_text() if document == "messages" else openapi_text()).rstrip("\n"))
        return EXIT_DONE

    run_command(command, json_output=False)


def _read_text(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"byte {error.start}: expected UTF-8, got other bytes") from None
