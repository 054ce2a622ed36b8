"""The address of a web server or of a file there: a URL in parts, normalised as it is requested.

This module parses and encodes like httpx2 without importing it: that takes 20 ms, and nothing else in a play
needs it. It refuses what httpx2 refuses, and also an authority that parsers disagree about: a backslash, a
character outside RFC 3986, section 3.2.2, and a port that is not decimal digits after a colon.
`tests/property/test_web_address_laws.py` compares this module with httpx2. `urllib.parse` does not do the
parsing, because it drops tabs and line ends without an error; `join` gives it only what was parsed here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import quote, unquote, urljoin

DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
URL_CHARS_MAX: Final = 65_536
_URL: Final = re.compile(  # RFC 3986, appendix B
    r"(?:([a-zA-Z][a-zA-Z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?"
)
_AUTHORITY: Final = re.compile(r"(?:(.*)@)?(\[[^\]@]*\]|[^:@\[\]]*)(?::([0-9]{0,5}))?")
_REGISTERED_NAME: Final = re.compile(r"[a-z0-9._~!$&'()*+,;=%-]*")
_FOUR_NUMBERS: Final = re.compile(r"[0-9]+(?:\.[0-9]+){3}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_ENCODED: Final = re.compile("(%[A-Fa-f0-9]{2})")
# The characters that the WHATWG's URL standard leaves as they are, next to letters, digits and `-._~`.
_IN_USER: Final = "!$%&'()*+,:"
_IN_PATH: Final = "!$%&'()*+,/:;=@[\\]^|"
_IN_QUERY: Final = _IN_PATH + "?`{}"
_IN_FRAGMENT: Final = _IN_PATH + "?#{}"


@dataclass(frozen=True, slots=True)
class WebAddress:
    """An absolute URL or a reference, each part in ASCII."""

    scheme: str
    """Lower case; empty for a reference."""
    userinfo: str
    """`user:password`, percent-encoded; empty if absent."""
    host: str
    """Lower case; a name of other letters in its IDNA form, an IPv6 address without its brackets."""
    port: int | None
    """None for the default port of the scheme."""
    path: str
    query: str | None
    fragment: str | None

    @classmethod
    def parse(cls, text: str) -> WebAddress:
        """Parse a URL or a reference. Raises `ValueError`, whose text does not quote a user or password."""
        if len(text) > URL_CHARS_MAX:
            raise ValueError(f"expected a URL of at most {URL_CHARS_MAX} characters, got {len(text)}")
        if (control := _CONTROL.search(text)) is not None:
            raise ValueError(f"it contains the control character {control[0]!r} at {control.start()}")
        parts = _URL.fullmatch(text)
        assert parts is not None, "every text without a line end matches"
        scheme = (parts[1] or "").lower()
        authority = _AUTHORITY.fullmatch(parts[2] or "")
        if authority is None:
            raise ValueError("expected host or host:port after //, with a port of decimal digits")
        port = int(authority[3]) if authority[3] else None
        if port == DEFAULT_PORTS.get(scheme):
            port = None
        userinfo, host, path = escaped(authority[1] or "", _IN_USER), _ascii_host(authority[2]), parts[3]
        has_authority = bool(userinfo or host or port is not None)
        if has_authority and path and not path.startswith("/"):
            raise ValueError("expected a path that begins with /")
        if not has_authority and not scheme and path.startswith(("//", ":")):
            raise ValueError(f"expected a relative path, got {path[:2]!r} at its start")
        if scheme or has_authority:
            path = _without_dots(path)
        return cls(
            scheme,
            userinfo,
            host,
            port,
            escaped(path, _IN_PATH),
            None if parts[4] is None else escaped(parts[4], _IN_QUERY),
            None if parts[5] is None else escaped(parts[5], _IN_FRAGMENT),
        )

    def join(self, reference: str) -> WebAddress:
        """Resolve a reference, such as a `Location`, against this address. Raises `ValueError`."""
        return WebAddress.parse(urljoin(str(self), str(WebAddress.parse(reference))))

    @property
    def effective_port(self) -> int:
        """The port, or the default one. Raises `KeyError` for a scheme without one."""
        return DEFAULT_PORTS[self.scheme] if self.port is None else self.port

    @property
    def credentials(self) -> tuple[str, str] | None:
        """User and password, decoded; None if the address has neither."""
        user, _, password = self.userinfo.partition(":")
        return (unquote(user), unquote(password)) if user or password else None

    @property
    def host_and_port(self) -> str:
        """The value of a Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def target(self) -> str:
        """Path and query, as a request line has them."""
        return (self.path or "/") + ("" if self.query is None else f"?{self.query}")

    def __str__(self) -> str:
        authority = f"{self.userinfo}@" if self.userinfo else ""
        authority += self.host_and_port
        return (
            (f"{self.scheme}:" if self.scheme else "")
            + (f"//{authority}" if authority else "")
            + self.path
            + ("" if self.query is None else f"?{self.query}")
            + ("" if self.fragment is None else f"#{self.fragment}")
        )


def escaped(text: str, safe: str) -> str:
    """Percent-encode `text`, but not its escapes. Raises `ValueError` for a lone surrogate."""
    parts = _ENCODED.split(text)
    parts[::2] = (quote(part, safe=safe) for part in parts[::2])
    return "".join(parts)


def _ascii_host(host: str) -> str:
    if host.startswith("["):
        return _literal(host[1:-1], IPv6Address)
    if _FOUR_NUMBERS.fullmatch(host):
        return _literal(host, IPv4Address)
    if not host.isascii():
        import idna  # trio has loaded it

        try:
            return idna.encode(host.lower()).decode("ascii")
        except idna.IDNAError as error:
            raise ValueError(f"its host {host[:80]!r} is not a valid name ({error})") from None
    if not _REGISTERED_NAME.fullmatch(host.lower()):
        raise ValueError(f"its host {host[:80]!r} is not a valid host name")
    return host.lower()


def _literal(host: str, kind: type[IPv4Address | IPv6Address]) -> str:
    try:
        kind(host)
    except ValueError:
        raise ValueError(f"its host {host[:80]!r} is not an IP address") from None
    return host


def _without_dots(path: str) -> str:
    """Resolve the segments `.` and `..`."""
    segments = path.split("/")
    if "." not in segments and ".." not in segments:
        return path
    result: list[str] = []
    for segment in segments:
        if segment == "..":
            if result not in ([], [""]):
                result.pop()
        elif segment != ".":
            result.append(segment)
    return "/".join(result)
