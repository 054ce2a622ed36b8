"""Access control of servers, by `Host`, `Origin` and bearer token.

The checks are the same for HTTP and for WebSocket, where they precede the upgrade:

| status | if |
|---|---|
| 421 | `Host` does not name this server: a page whose name points to its address (DNS rebinding) |
| 403 | `Origin`, which every browser sends, is not allowed; programs send none, and pass |
| 401 | the bearer token is missing or wrong |

A WebSocket needs these checks more than HTTP does, because a browser lets any page open one to any address,
and passes every message to the page.
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from playhead.errors import UsageError
from playhead.web_address import DEFAULT_PORTS, WebAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The rules that allow requests. `for_host` returns the usual ones."""

    hosts: frozenset[str]
    """The names and addresses that `Host` may have, without a port; IPv6 in brackets."""
    origins: frozenset[str] = frozenset()
    """The origins of pages that other servers serve, as `scheme://host[:port]`."""
    token: str | None = field(default=None, repr=False)
    """The token that `Authorization: Bearer …` must carry; None requires none."""

    @classmethod
    def for_host(cls, host: str, *, web_origins: Iterable[str] = (), token: str | None = None) -> Access:
        """Return the rules of a server that listens on `host`.

        The allowed hosts are those of loopback and `host` itself and, for a server on every address, this
        machine's name. The allowed origins include the server's own pages, which have the scheme and port of
        the request.

        Args:
            host: the address that it listens on.
            web_origins: other origins whose pages to allow, `https://app.example.org`.
            token: see `Access.token`.

        Raises:
            UsageError: a web origin is invalid, or the token cannot be sent in a header.
        """
        names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host.lower()}
        if host in ("0.0.0.0", "::"):
            machine = socket.gethostname().lower()
            names |= {machine, f"{machine}.local"}
        if token is not None and (
            not token or not token.isascii() or not token.isprintable() or " " in token
        ):
            raise UsageError(
                "expected a token of printable ASCII characters without spaces, got another or an empty one"
            )
        return cls(
            hosts=frozenset(names),
            origins=frozenset(_check_origin(origin) for origin in web_origins),
            token=token,
        )

    def protect(self, app: ASGIApp, *, without_token: Iterable[str] = ()) -> ASGIApp:
        """Put `app` behind these checks.

        Pages of `origins` get the CORS headers that a browser needs, for preflights, too.

        Args:
            app: any ASGI application; its `lifespan` is passed through.
            without_token: paths that need no token (`/health`), so that a monitor needs no secret. A path
                that ends with a slash stands for every path that begins with it.
        """
        open_paths = frozenset(without_token)
        open_prefixes = tuple(path for path in open_paths if path.endswith("/"))

        async def checked(scope: Scope, receive: Receive, send: Send) -> None:
            refusal = None
            if scope["type"] in ("http", "websocket"):
                is_open = scope["path"] in open_paths or scope["path"].startswith(open_prefixes)
                refusal = self.refusal(Headers(scope=scope), scope["scheme"], needs_token=not is_open)
            await (refusal or app)(scope, receive, send)

        if not self.origins:
            return checked
        return CORSMiddleware(
            checked,
            allow_origins=sorted(self.origins),
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("mcp-session-id", "mcp-protocol-version", "www-authenticate"),
        )

    def refusal(self, headers: Headers, scheme: str, *, needs_token: bool = True) -> PlainTextResponse | None:
        """Return the answer to a request that is refused; None if it is allowed.

        The answer is an ASGI application for HTTP and, before the upgrade, for WebSocket.
        """
        hosts = headers.getlist("host")
        scheme = {"ws": "http", "wss": "https"}.get(scheme, scheme)
        if len(hosts) != 1 or _split_port(hosts[0], scheme)[0] not in self.hosts:
            return _refusal_response(421, "the Host header is not a name of this server")
        if not all(self._allows_origin(origin, scheme, hosts[0]) for origin in headers.getlist("origin")):
            return _refusal_response(403, "this Origin is not allowed; the server's --web-origin allows it")
        if self.token is None or not needs_token:
            return None
        credentials = headers.getlist("authorization")
        if not credentials:
            return _refusal_response(
                401, "expected a bearer token (Authorization: Bearer …), got none", challenge="Bearer"
            )
        if len(credentials) != 1 or not self._is_right_token(credentials[0]):
            return _refusal_response(
                401, "the bearer token is wrong", challenge='Bearer error="invalid_token"'
            )
        return None

    def _allows_origin(self, origin: str, scheme: str, host: str) -> bool:
        page_scheme, _, place = origin.lower().partition("://")
        name, port = _split_port(place, page_scheme)
        # A page may use any name of the server, but only the port of this request: another port is another
        # program.
        is_own = name in self.hosts and (page_scheme, port) == (scheme, _split_port(host, scheme)[1])
        return is_own or origin.lower() in self.origins

    def _is_right_token(self, credentials: str) -> bool:
        scheme, _, token = credentials.partition(" ")
        # All digests have the same length, so the time of the comparison does not reveal the token's length.
        digests = (sha256(text.strip().encode()).digest() for text in (token, self.token or ""))
        return scheme.lower() == "bearer" and hmac.compare_digest(*digests)


def _split_port(place: str, scheme: str) -> tuple[str, int | None]:
    name, _, port = place.lower().rpartition(":")
    if name and port.isascii() and port.isdigit():
        return name, int(port[:6])
    return place.lower(), DEFAULT_PORTS.get(scheme)


def _check_origin(text: str) -> str:
    try:
        url = WebAddress.parse(text)
    except ValueError:
        url = WebAddress.parse("")
    origin = f"{url.scheme}://{url.host_and_port}"
    if url.scheme not in ("http", "https") or not url.host or str(url).rstrip("/") != origin:
        raise UsageError(
            f"expected a web origin like https://app.example.org, without path, query or user, got {text!r}"
        )
    return origin


def _refusal_response(status: int, why: str, *, challenge: str | None = None) -> PlainTextResponse:
    headers = {"connection": "close"}
    if challenge is not None:
        headers["www-authenticate"] = challenge
    return PlainTextResponse(why, status_code=status, headers=headers)
