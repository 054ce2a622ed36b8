"""What the commands that serve over HTTP and WebSocket have in common: who may ask, and TLS."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from playhead.errors import UsageError

WebOrigins = Annotated[
    list[str] | None,
    typer.Option("--web-origin", metavar="URL", help="Pages of this origin may ask; repeatable."),
]
TokenEnv = Annotated[
    str | None,
    typer.Option("--token-env", metavar="NAME", help="The variable that holds a bearer token to ask for."),
]
TlsCertificate = Annotated[
    Path | None, typer.Option("--tls-certificate", metavar="PEM", help="Serve https or wss with this.")
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", metavar="PEM", help="The certificate's key.")]


def token_of(variable: str | None) -> str | None:
    """The bearer token that the user named; None where none was.

    Named, not given: every process of the machine can read a command line.

    Raises:
        UsageError: the variable is not set, or empty.
    """
    if variable is None:
        return None
    token = os.environ.get(variable, "")
    if not token:
        raise UsageError(
            f"expected a token in the environment variable {variable!r} (--token-env): it is empty or not"
            " set; export it, and give its name"
        )
    return token
