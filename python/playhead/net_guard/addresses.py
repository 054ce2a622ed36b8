"""Check the addresses to connect to."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import trio

from playhead.errors import BlockedAddressError

_IPV4_COMPATIBLE = IPv6Network("::/96")
_NAT64 = IPv6Network("64:ff9b::/96")

Address = IPv4Address | IPv6Address


def why_not_global(address: Address) -> str | None:
    """The reason why an address may not be reached; None if it may.

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
