"""TLS of connections: the system's authorities or those of the servers file, and why a handshake failed."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from playhead.errors import ConfigError

if TYPE_CHECKING:
    from playhead.config.servers import ServerConfig


def default_tls_context() -> ssl.SSLContext:
    """Return a context that trusts the system's authorities, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.

    Shared by all sessions until one of the two variables changes: loading takes 40 ms and more.
    """
    return _load_authorities(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=1)
def _load_authorities(_file: str | None, _directory: str | None) -> ssl.SSLContext:
    import httpcore2  # not for a WebSocket without TLS

    return httpcore2.default_ssl_context()  # reads the two variables itself


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """Return the context for a server; None for the default one, which a URL without TLS needs only if the
    server redirects to its `https:` origin. Raises `ConfigError` for an unusable file."""
    if config.tls_verify and config.tls_authorities is None and config.tls_certificate is None:
        if urlsplit(config.url or "").scheme.lower() in ("https", "wss"):
            return default_tls_context()
        return None
    with _naming(config, "authorities", config.tls_authorities):
        if config.tls_verify:
            context = ssl.create_default_context(cafile=config.tls_authorities)
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            if config.tls_authorities is not None:
                context.load_verify_locations(config.tls_authorities)  # a wrong file is an error all the same
    if config.tls_certificate is not None:
        with _naming(config, "certificate", config.tls_certificate):
            context.load_cert_chain(config.tls_certificate, config.tls_key)
    return context


@contextmanager
def _naming(config: ServerConfig, key: str, path: str | None) -> Iterator[None]:
    try:
        yield
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"server {config.name!r}: expected tls.{key} to be a PEM file, got {path} ({error})"
        ) from error


def tls_reason(error: BaseException, *, has_entry: bool = True) -> str | None:
    """Return why TLS failed and what to set, if it caused `error`; HTTP libraries only chain the cause.

    `has_entry` means that the connection follows the `tls` keys of an entry of the servers file.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    match cause:
        case None:
            return None
        case ssl.SSLCertVerificationError():
            key = "tls.authorities" if has_entry else "SSL_CERT_FILE"
            return (
                f"certificate verification failed ({cause.verify_message}); set {key} to a PEM file of the"
                " issuing CA if you trust it"
            )
        case _:
            reason = (getattr(cause, "reason", None) or type(cause).__name__).replace("_", " ").lower()
            more = ", and does it require a client certificate (tls.certificate, tls.key)"
            return (
                f"TLS failed ({reason}); does the server speak https on this port{more if has_entry else ''}?"
            )
