"""`playhead serve`: the example servers."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Annotated, Final

import typer

from playhead.cli import quick_imports
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.terminal import Terminal
from playhead.errors import UsageError
from playhead.extras import require_extra
from playhead.servers.audio import AudioServerOptions, MixerKind
from playhead.servers.listening import ListenOptions, Transport

Port = Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65535)]
WebOrigins = Annotated[
    list[str] | None,
    typer.Option("--web-origin", metavar="URL", help="Allow web pages of this origin; repeatable."),
]
TokenEnv = Annotated[
    str | None,
    typer.Option(
        "--token-env",
        metavar="NAME",
        help="Environment variable with the bearer token that clients must send.",
    ),
]
TlsCertificate = Annotated[
    Path | None, typer.Option("--tls-certificate", metavar="PEM", help="Serve https or wss with this.")
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", metavar="PEM", help="The certificate's key.")]
Dial = Annotated[
    str | None,
    typer.Option(
        "--dial",
        metavar="URL",
        help="Connect to this WebSocket endpoint (wss://) and serve there, instead of listening; ${NAME} is"
        " replaced by that environment variable.",
    ),
]
LISTENING: Final = {
    "transport": "--transport",
    "host": "--host",
    "port": "--port",
    "web_origins": "--web-origin",
    "token": "--token-env",
    "tls_certificate": "--tls-certificate",
    "tls_key": "--tls-key",
}
"""The command-line options of a server that listens, by the field of its options."""


def token_of(variable: str | None) -> str | None:
    """Return the bearer token from the environment variable that the user named, if any.

    The command line has the name of the variable instead of the token, because every process on the machine
    can read a command line. Raises `UsageError` if the variable is unset or empty.
    """
    if variable is None:
        return None
    token = os.environ.get(variable, "")
    if not token:
        raise UsageError(
            f"expected a token in the environment variable {variable!r} (--token-env): it is empty or not"
            " set; export it first"
        )
    return token


def endpoint_of(dial: str | None) -> str | None:
    """Return the URL of `--dial` with the value of each `${NAME}`. Raises `UsageError` if one is not set."""
    if dial is None:
        return None
    from playhead.config.document import expand

    try:
        return expand(dial, os.environ)
    except ValueError as error:
        raise UsageError(f"--dial: {error}; export it first") from None


def audio(
    transport: Annotated[Transport, typer.Option(help="How clients connect.")] = "stdio",
    host: Annotated[str, typer.Option(help="Address to listen on (HTTP and WebSocket).")] = "127.0.0.1",
    port: Port = 3001,
    library: Annotated[Path | None, typer.Option(metavar="DIR", help="Directory with music.")] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Allow reads from this non-public origin; repeatable."),
    ] = None,
    mixer: Annotated[
        MixerKind, typer.Option(help="Set the system volume, or only remember the number.")
    ] = "system",
    dial: Dial = None,
    web_origin: WebOrigins = None,
    token_env: TokenEnv = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
) -> None:
    """Serve music and speech over MCP, read in ranges."""
    from playhead.config.directories import state_directory

    options = AudioServerOptions(
        transport=transport,
        dial=endpoint_of(dial),
        host=host,
        port=port,
        library=library,
        state_directory=state_directory(os.environ),
        allow_origins=tuple(allow_origin or ()),
        mixer=mixer,
        mixer_environment=os.environ,
        web_origins=tuple(web_origin or ()),
        token=token_of(token_env),
        tls_certificate=tls_certificate,
        tls_key=tls_key,
    )

    _serve("playhead.servers.audio.audio_server", options)


def template(
    transport: Annotated[
        Transport,
        typer.Option(help="How clients connect; ws and http differ only in the printed URL."),
    ] = "ws",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Port = 8030,
    search_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Search engine with JSON answers; {query} is replaced by the query."
        ),
    ] = None,
    search_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Allow this non-public origin for the search engine; repeatable."),
    ] = None,
    dial: Dial = None,
    web_origin: WebOrigins = None,
    token_env: TokenEnv = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
) -> None:
    """Serve an example of every feature of MCP."""
    from playhead.servers.template import TemplateServerOptions

    options = TemplateServerOptions(
        transport=transport,
        dial=endpoint_of(dial),
        host=host,
        port=port,
        search_url=search_url,
        search_origins=tuple(search_origin or ()),
        web_origins=tuple(web_origin or ()),
        token=token_of(token_env),
        tls_certificate=tls_certificate,
        tls_key=tls_key,
    )

    _serve("playhead.servers.template.serve", options, extra_for="the template server's metrics")


def _serve(module: str, options: ListenOptions, *, extra_for: str | None = None) -> None:
    if options.dial is not None:
        default = type(options)()
        unused = [
            flag for name, flag in LISTENING.items() if getattr(options, name) != getattr(default, name)
        ]
        if unused:
            raise UsageError(f"--dial listens on no port: it does not go with {', '.join(unused)}")

    async def command(_terminal: Terminal, _report: Report) -> int:
        if extra_for is not None:
            require_extra("serve", extra_for)
        with quick_imports():
            serve = import_module(module).serve
        await serve(options)
        return EXIT_DONE

    run_command(command, json_output=False)
