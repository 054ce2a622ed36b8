"""The proxies of the environment: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, and `NO_PROXY` against them.

`NO_PROXY` has names (with all names below them), `.name` or `*.name` (only those below), addresses, networks,
each with a port if it has one, and `*`, as curl documents it; `scheme://` in front limits an entry to one
scheme. An entry that cannot be read is ignored, as by curl and Go. This machine is reached without a proxy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Final

import httpcore2

from playhead.errors import ConfigError
from playhead.net_guard import is_loopback
from playhead.redaction import redacted_url
from playhead.web_address import WebAddress

_SCHEMES: Final = ("http", "https", "all")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, with the credentials in its URL."""

    url: WebAddress = field(repr=False)

    def connection(self, origin: httpcore2.Origin, **settings: Any) -> httpcore2.AsyncConnectionInterface:
        """Return a new connection to `origin` through the proxy. Raises `ConfigError` without SOCKS
        support."""
        place = replace(self.url, userinfo="")
        where = httpcore2.URL(scheme=place.scheme, host=place.host, port=place.port, target=place.target)
        credentials = self.url.credentials
        auth = None if credentials is None else (credentials[0].encode(), credentials[1].encode())
        kind: type[httpcore2.AsyncConnectionPool] = httpcore2.AsyncHTTPProxy
        if place.scheme in ("socks5", "socks5h"):
            if find_spec("socksio") is None:
                raise ConfigError(
                    f"the proxy {redacted_url(str(place))} of the environment speaks SOCKS, which needs the"
                    " package socksio: pip install socksio"
                )
            kind = httpcore2.AsyncSOCKSProxy
        return kind(proxy_url=where, proxy_auth=auth, **settings).create_connection(origin)  # type: ignore[call-arg]  # of both


@dataclass(frozen=True, slots=True)
class _Exception:
    """An entry of `NO_PROXY`."""

    scheme: str
    """The scheme; empty for all schemes."""
    host: str
    """Empty for a network."""
    port: int | None
    has_names_below: bool = False
    is_below_only: bool = False
    network: IPv4Network | IPv6Network | None = None

    def covers(self, url: WebAddress) -> bool:
        if self.scheme not in ("", url.scheme) or self.port not in (None, url.port):
            return False
        if self.network is not None:
            try:
                return ip_address(url.host) in self.network
            except ValueError:
                return False
        if url.host == self.host:
            return not self.is_below_only
        return self.has_names_below and url.host.endswith("." + self.host)


class Proxies:
    """The proxy of each URL, if any."""

    def __init__(self, proxies: Mapping[str, Proxy], exceptions: tuple[_Exception, ...]) -> None:
        """`proxies` by scheme, or `all`."""
        self._proxies = dict(proxies)
        self._exceptions = exceptions

    def proxy_for(self, url: WebAddress) -> Proxy | None:
        """Return the proxy for `url`, if any."""
        if not self._proxies or is_loopback(str(url)):
            return None
        if any(each.covers(url) for each in self._exceptions):
            return None
        return self._proxies.get(url.scheme) or self._proxies.get("all")

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Proxies:
        """Read what `urllib.request.getproxies` returns: `http`, `https`, `all` and `no`.

        Raises `ConfigError` for a proxy whose URL cannot be used.
        """
        entries = [entry for entry in map(str.strip, settings.get("no", "").split(",")) if entry]
        if "*" in entries:
            return NO_PROXIES
        proxies = {scheme: _proxy(settings[scheme]) for scheme in _SCHEMES if settings.get(scheme)}
        exceptions = tuple(each for each in map(_exception, entries) if each is not None)
        return cls(proxies, exceptions)


NO_PROXIES: Final = Proxies({}, ())


def environment_proxies() -> Proxies:
    """Return the proxies of the environment or, on macOS and Windows without any, those of the system."""
    if sys.platform not in ("darwin", "win32") and not any(
        name.lower().endswith("_proxy") for name in os.environ
    ):
        return NO_PROXIES  # urllib.request alone takes 30 ms to import
    from urllib.request import getproxies

    return Proxies.of(getproxies())


def _proxy(text: str) -> Proxy:
    url = text if "://" in text else f"http://{text}"
    try:
        parsed = WebAddress.parse(url)
    except ValueError as error:
        raise ConfigError(
            f"expected the URL of a proxy in the environment, got {redacted_url(url)!r} ({error})"
        ) from None
    if parsed.scheme not in ("http", "https", "socks5", "socks5h") or not parsed.host:
        raise ConfigError(
            "expected the URL of a proxy in the environment to begin with http://, https:// or socks5://, got"
            f" {redacted_url(url)!r}"
        )
    return Proxy(parsed)


def _exception(entry: str) -> _Exception | None:
    scheme, mark, rest = entry.partition("://")
    if not mark:
        scheme, rest = "all", entry
    scheme = "" if scheme == "all" else scheme.lower()
    address, _slash, _bits = rest.strip("[]").partition("/")
    try:
        ip_address(address.strip("[]"))
    except ValueError:
        pass
    else:
        try:
            network = ip_network(rest.replace("[", "").replace("]", ""), strict=False)
        except ValueError:
            return None
        return _Exception(scheme, "", None, network=network)
    is_below_only = rest.startswith(("*.", "."))
    try:
        place = WebAddress.parse(f"{scheme or 'all'}://{rest.removeprefix('*').removeprefix('.')}")
    except ValueError:
        return None
    if not place.host or place.path not in ("", "/"):
        return None
    exact = (bool(mark) and not rest.startswith("*")) or place.host == "localhost"
    return _Exception(scheme, place.host, place.port, has_names_below=not exact, is_below_only=is_below_only)
