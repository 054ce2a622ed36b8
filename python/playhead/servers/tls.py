"""A server's certificate and key."""

from __future__ import annotations

import ssl
from pathlib import Path

from playhead.errors import UsageError


def tls_context(certificate: Path, key: Path | None = None) -> ssl.SSLContext:
    """What `serve_app` takes to speak TLS 1.2 or newer.

    Args:
        certificate: PEM: the server's own, then the chain.
        key: PEM, without a passphrase; None where it is in the same file.

    Raises:
        UsageError: a file cannot be read, or the two are not a certificate and its key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION
    try:
        # An empty passphrase: without one, OpenSSL would ask for it on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        what = f"{certificate} and {key}" if key is not None else str(certificate)
        raise UsageError(
            f"expected a certificate and its key in PEM, without a passphrase, in {what}: {error}"
        ) from error
    return context
