"""The cookies of one HTTP client: balancers keep a session on one machine with them.

The jar is the standard library's, loaded with the first cookie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from http.cookiejar import CookieJar

    from playhead.client.transports.http_client import HttpRequest, HttpResponse


class Cookies:
    """The cookies that servers have set, by the rules of browsers (RFC 6265)."""

    def __init__(self) -> None:
        self._jar: CookieJar | None = None

    def extract(self, response: HttpResponse) -> None:
        """Take the cookies that an answer sets."""
        if "set-cookie" not in response.headers:
            return
        from http.cookiejar import CookieJar

        if self._jar is None:
            self._jar = CookieJar()
        self._jar.extract_cookies(_Answer(response), _urllib_request(response.request))  # type: ignore[arg-type]  # all that it uses

    def headers_for(self, request: HttpRequest) -> list[tuple[bytes, bytes]]:
        """The header with the cookies for `request`, unless it has one already."""
        if self._jar is None or any(name.lower() == b"cookie" for name, _value in request.headers):
            return []
        asking = _urllib_request(request)
        self._jar.add_cookie_header(asking)
        value = asking.get_header("Cookie")
        return [] if value is None else [(b"cookie", value.encode("latin-1"))]


class _Answer:
    """An answer as the jar reads it."""

    def __init__(self, response: HttpResponse) -> None:
        self._response = response

    def info(self) -> Any:
        from email.message import Message

        headers = Message()
        for name, value in self._response.raw_headers:
            headers[name.decode("latin-1")] = value.decode("latin-1")
        return headers


def _urllib_request(request: HttpRequest) -> Any:
    from urllib.request import Request

    return Request(str(request.url))
