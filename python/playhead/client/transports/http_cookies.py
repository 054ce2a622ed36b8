"""The cookies of one HTTP client. Load balancers need them to send a session to one machine."""

from __future__ import annotations

from collections.abc import Iterable
from email.message import Message
from http.cookiejar import CookieJar
from typing import TYPE_CHECKING
from urllib.request import Request

if TYPE_CHECKING:
    from playhead.web_address import WebAddress

Headers = Iterable[tuple[bytes, bytes]]


class Cookies:
    """The cookies that servers have set, by the rules of browsers (RFC 6265)."""

    def __init__(self) -> None:
        self._jar = CookieJar()

    def extract(self, url: WebAddress, headers: Headers) -> None:
        """Save the cookies that an answer from `url` sets with these headers."""
        self._jar.extract_cookies(_Answer(headers), Request(str(url)))  # type: ignore[arg-type]  # all that it uses

    def headers_for(self, url: WebAddress, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Return the header with the cookies for a request of `url`; empty if `headers` have one already."""
        if any(name.lower() == b"cookie" for name, _value in headers):
            return []
        asking = Request(str(url))
        self._jar.add_cookie_header(asking)
        value = asking.get_header("Cookie")
        return [] if value is None else [(b"cookie", value.encode("latin-1"))]


class _Answer:
    """An answer as the jar reads it."""

    def __init__(self, headers: Headers) -> None:
        self._headers = headers

    def info(self) -> Message:
        message = Message()
        for name, value in self._headers:
            message[name.decode("latin-1")] = value.decode("latin-1")
        return message
