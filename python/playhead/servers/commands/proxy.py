"""`playhead serve proxy`: a player in front of any host."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer

from playhead.cli import quick_imports
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.sinks import SinkName, check_sink, make_sink
from playhead.cli.terminal import Terminal
from playhead.config.directories import state_directory
from playhead.errors import UsageError
from playhead.servers.commands.example_servers import (
    Port,
    TlsCertificate,
    TlsKey,
    TokenEnv,
    WebOrigins,
    token_of,
)
from playhead.servers.listening import Transport
from playhead.servers.proxy import OnCall, ProxyOptions, server_names


def proxy(
    servers: Annotated[list[str], typer.Argument(metavar="SERVER", help="The servers to stand in front of.")],
    transport: Annotated[Transport, typer.Option(help="How hosts connect.")] = "stdio",
    host: Annotated[str, typer.Option(help="Address to listen on (HTTP and WebSocket).")] = "127.0.0.1",
    port: Port = 3002,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The mcpServers file that names the servers.")
    ] = None,
    sink: SinkName = None,
    on_call: Annotated[
        OnCall, typer.Option(help="What to do with the audio while a tool of a server runs.")
    ] = "duck",
    keep_audio: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVER", help="Pass audio of this server to the host unplayed; repeatable."),
    ] = None,
    keep_links: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVER", help="Leave links to audio in this server's results; repeatable."),
    ] = None,
    media_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve media addresses and a page on this port."),
    ] = None,
    web_origin: WebOrigins = None,
    token_env: TokenEnv = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
) -> None:
    """Serve other servers' tools to a host, and play their audio here."""
    for flag, chosen in (("--keep-audio", keep_audio), ("--keep-links", keep_links)):
        for name in chosen or ():
            if name not in servers:
                raise UsageError(f"{flag}: expected one of the servers of this command, got {name!r}")
    names = server_names(servers)
    stdout_has = "the messages to the host" if transport == "stdio" else ""
    if sink != "none":
        check_sink(sink, stdout_has=stdout_has)
    options = ProxyOptions(
        transport=transport,
        host=host,
        port=port,
        on_call=on_call,
        keep_audio=tuple(names[each] for each in keep_audio or ()),
        keep_links=tuple(names[each] for each in keep_links or ()),
        media_port=media_port,
        state_directory=state_directory(os.environ),
        web_origins=tuple(web_origin or ()),
        token=token_of(token_env),
        tls_certificate=tls_certificate,
        tls_key=tls_key,
    )

    async def command(_terminal: Terminal, _report: Report) -> int:
        with quick_imports():
            from playhead.client.transports.server_process import StartedServer, started_early
            from playhead.config.servers import resolve_target
            from playhead.config.tools import default_approval_policy
        targets = {names[each]: resolve_target(each, config) for each in servers}
        async with AsyncExitStack() as stack:
            early: dict[str, StartedServer] = {}
            for name, target in targets.items() if transport == "stdio" else ():
                started = await stack.enter_async_context(started_early(target))
                if isinstance(started, StartedServer):
                    early[name] = started
            with quick_imports():  # while the servers start
                from playhead.playback import Player
                from playhead.servers.proxy.proxy_server import serve
                from playhead.servers.proxy.result_audio import ResultAudio, missing_device
            audio = None
            if sink != "none":
                speaker = make_sink(sink, real_time=True, stdout_has=stdout_has)
                player = await stack.enter_async_context(Player(speaker))
                audio = ResultAudio(player=player, options=options)
                if sink in (None, "device"):
                    audio.missing_device = missing_device
            await serve(targets, audio, options, policy=default_approval_policy(), early=early)
        return EXIT_DONE

    run_command(command, json_output=False)
