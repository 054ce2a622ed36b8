"""Guard against server-side request forgery: fetch URLs chosen by others from public addresses only.

A tool argument, a link in a result or a redirect must not make this process read the private network. So:

* URLs are `http` or `https`, without a user name, control characters, or a number that merely resolves to an
  address (`127.1`, `0x7f000001`): `check_url`;
* a name is resolved once, all of its addresses must be global, and the connection goes to the checked
  address, never to a second lookup (which a hostile name server could answer differently):
  `client.transports.http_network`, the only way for a guarded client to open a socket;
* a redirect is a new request of the same client, so each hop is checked again;
* an origin that the user allowed (exact scheme, host and port) is reached at any address.

The Host header and the TLS server name keep the name from the URL. Proxies from the environment are not used:
they would resolve the name in our place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import NoReturn
from urllib.parse import urlsplit

import trio

from playhead.errors import BlockedAddressError, UsageError
from playhead.redaction import redacted_url
from playhead.web_address import WebAddress

__all__ = [
    "Origin",
    "check_url",
    "parse_origins",
    "why_not_global",
]


REDIRECTS = 5
"""Limits the redirects to follow per request. Browsers and curl follow more (20, 50) than media need."""
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?", re.ASCII)
# A last label that is a number makes a host an IPv4 address, whatever its form (WHATWG, "ends in a number").
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?", re.ASCII)
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Scheme, host and port: the unit that a user allows."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: WebAddress) -> Origin:
        """Return the origin of a checked URL."""
        return cls(scheme=url.scheme, host=url.host, port=url.effective_port)

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Parse `http://host:port` (the port is optional), as a person writes an allowed origin.

        Raises:
            UsageError: `text` is not an origin, or has a path, a query or a fragment.
        """
        url = check_url(text)
        if url.target != "/" or url.fragment:
            raise UsageError(f"expected an origin like http://host:port, without a path; got {text!r}")
        return cls.of(url)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_origins(texts: Iterable[str]) -> frozenset[Origin]:
    """Parse several origins; see `Origin.parse`."""
    return frozenset(Origin.parse(text) for text in texts)


def check_url(url: str | WebAddress) -> WebAddress:
    """Parse a URL strictly. The address behind its host is not checked here.

    Raises:
        BlockedAddressError: not http or https, a user name, a control character or space, a missing or
            malformed host or port, an address in a form other than four decimal numbers or IPv6.
    """
    text = str(url)
    if _UNPRINTABLE.search(text) or "\\" in text:
        _refuse(text, "it contains a space, a backslash, a control character or a non-ASCII character")
    try:
        parsed = WebAddress.parse(text)
    except ValueError as error:
        _refuse(text, str(error))
    if parsed.scheme not in ("http", "https"):
        _refuse(text, f"expected http or https, got {parsed.scheme or 'a relative URL'!r}")
    if parsed.userinfo or "@" in text.split("//", 1)[-1].split("/", 1)[0]:
        _refuse(text, "it contains a user name or password")
    if parsed.port is not None and not 0 < parsed.port < 65536:
        _refuse(text, f"port {parsed.port} is out of range")
    host = parsed.host
    if ":" in host:
        if not _is_literal(host) or "%" in host:
            _refuse(text, f"its host {host!r} is not an IPv6 address without a zone")
    elif _NUMERIC.fullmatch(host):
        if not _is_literal(host):
            _refuse(text, f"its host {host!r} is a disguised address; write it as four decimal numbers")
    elif not _NAME.fullmatch(host):
        _refuse(text, f"its host {host!r} is not a valid host name")
    return parsed


def _refuse(url: str, reason: str) -> NoReturn:
    raise BlockedAddressError(
        f"will not fetch {redacted_url(url)[:200]!r}: {reason}. Expected an http or https URL of a public"
        " host, or of an origin that you have allowed"
    )


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


# --- addresses ----------------------------------------------------------------------------------------------

_IPV4_COMPATIBLE = IPv6Network("::/96")
_NAT64 = IPv6Network("64:ff9b::/96")

Address = IPv4Address | IPv6Address


def why_not_global(address: Address) -> str | None:
    """Return the reason why an address may not be reached; None if it may.

    An IPv6 address that stands for an IPv4 address (mapped, compatible, 6to4, NAT64, Teredo) is checked as
    both: a gateway would forward the connection to the IPv4 address.
    """
    if address.is_multicast:
        return "is a multicast address"
    if isinstance(address, IPv6Address):
        for embedded in _embedded(address):
            if (reason := why_not_global(embedded)) is not None:
                return f"stands for {embedded}, which {reason}"
        if address.ipv4_mapped is not None or address in _NAT64:
            return None
        if address.is_site_local:
            return "is not a global address"
    if not address.is_global or address.is_reserved:
        return "is a loopback address" if address.is_loopback else "is not a global address"
    return None


def is_loopback(url: str) -> bool:
    """Return whether the host of `url` is this machine, by its name or number alone, without a lookup."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def resolve(host: str, port: int) -> list[Address]:
    """Resolve a host once and return its addresses, all of them checked.

    Raises:
        BlockedAddressError: one of the addresses may not be reached. One is enough: a name that mixes
            global and private addresses has no legitimate use here.
        OSError: the name does not resolve.
    """
    found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(ip_address(entry[4][0]) for entry in found))
    for address in addresses:
        if (reason := why_not_global(address)) is not None:
            where = f"{host!r} resolves to {address}" if str(address) != host else str(address)
            raise BlockedAddressError(
                f"will not connect to {where} (port {port}): it {reason}, and the URL was not chosen by you. "
                f"Allow the origin http://{_bracketed(host)}:{port} (or https://) if you trust it"
            )
    return addresses


def _embedded(address: IPv6Address) -> Iterator[IPv4Address]:
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    elif address in _NAT64 or (address in _IPV4_COMPATIBLE and int(address) > 1):
        yield IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
