"""`playhead serve`: the example servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.serving import TlsCertificate, TlsKey, TokenEnv, WebOrigins, token_of
from playhead.cli.terminal import Terminal
from playhead.servers.audio.options import AudioServerOptions, MixerKind, Transport
from playhead.servers.template.options import TemplateServerOptions
from playhead.servers.template.options import Transport as TemplateTransport


def audio(
    transport: Annotated[Transport, typer.Option(help="How clients connect.")] = "stdio",
    host: Annotated[str, typer.Option(help="Where HTTP and WebSocket listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Their port; 0 takes a free one.", min=0, max=65535)] = 3001,
    library: Annotated[Path | None, typer.Option(metavar="DIR", help="A folder of music.")] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="An origin that may be read although it is not public; repeatable."),
    ] = None,
    mixer: Annotated[
        MixerKind, typer.Option(help="Set the system's volume, or only keep the number.")
    ] = "system",
    web_origin: WebOrigins = None,
    token_env: TokenEnv = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
) -> None:
    """Serve music over MCP: musicPlayer, set_volume, and ranged reads of what they link to."""
    options = AudioServerOptions(
        transport=transport,
        host=host,
        port=port,
        library=library,
        allow_origins=tuple(allow_origin or ()),
        mixer=mixer,
        web_origins=tuple(web_origin or ()),
        token=token_of(token_env),
        tls_certificate=tls_certificate,
        tls_key=tls_key,
    )

    async def command(_terminal: Terminal, _report: Report) -> int:
        from playhead.servers.audio.serve import serve

        await serve(options)
        return EXIT_DONE

    run_command(command, json_output=False)


def template(
    transport: Annotated[
        TemplateTransport,
        typer.Option(help="How clients connect; ws and http differ in the URL that is printed only."),
    ] = "ws",
    host: Annotated[str, typer.Option(help="Where it listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = 8030,
    search_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A search engine with JSON answers; {query} stands for the words."),
    ] = None,
    search_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="An origin it may have although it is not public; repeatable."),
    ] = None,
    web_origin: WebOrigins = None,
    token_env: TokenEnv = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
) -> None:
    """Serve one of everything over MCP, to copy from: four tools, resources and prompts."""
    options = TemplateServerOptions(
        transport=transport,
        host=host,
        port=port,
        search_url=search_url,
        search_origins=tuple(search_origin or ()),
        web_origins=tuple(web_origin or ()),
        token=token_of(token_env),
        tls_certificate=tls_certificate,
        tls_key=tls_key,
    )

    async def command(_terminal: Terminal, _report: Report) -> int:
        from playhead.servers.template.serve import serve

        await serve(options)
        return EXIT_DONE

    run_command(command, json_output=False)
