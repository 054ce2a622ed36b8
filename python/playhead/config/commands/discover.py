"""`playhead discover`: the servers that other MCP clients have configured."""

from __future__ import annotations

from dataclasses import asdict

import trio

from playhead.cli import parameters as p
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.terminal import Terminal
from playhead.escaping import counted


def discover(json_output: p.Json = False) -> None:
    """List the servers that other MCP clients have configured.

    Each with its client, name, transport, and the name of its program or the
    origin of its URL. Nothing is started, and nothing else of the files is
    shown.
    """

    async def command(terminal: Terminal, report: Report) -> int:
        from playhead.config.clients import ClientServer, UnreadableFile, client_servers

        entries = await trio.to_thread.run_sync(lambda: [*client_servers()])
        servers = [entry for entry in entries if isinstance(entry, ClientServer)]
        problems = [entry for entry in entries if isinstance(entry, UnreadableFile)]
        report["servers"] = [asdict(server) for server in servers]
        report["problems"] = [asdict(problem) for problem in problems]
        for problem in problems:
            terminal.say(f"{problem.client}: {problem.path}: {problem.reason}", style="yellow")
        terminal.show_rows((each.client, each.name, each.transport, each.target) for each in servers)
        terminal.say(f"{counted(len(servers), 'server')} of other clients; none was started")
        return EXIT_DONE

    run_command(command, json_output=json_output)
