"""URLs that keep their query to themselves: many servers take a key there, and HTTP libraries log URLs."""

from __future__ import annotations

from typing import Any

import httpx2


class QuietURL(httpx2.URL):
    """A URL that is requested whole and printed without its query, and without a name and password in it.

    httpx2 logs `str(request.url)` of every request at INFO. What goes over the wire is made from the URL's
    parts, so only what is shown differs. No logger has to be configured, and other users' log lines stay.
    """

    def __str__(self) -> str:
        return str(httpx2.URL(self, userinfo=b"", query=None, fragment=None))

    def __repr__(self) -> str:
        return f"QuietURL({str(self)!r})"


def quiet(request: httpx2.Request, query: bytes) -> None:
    """Hide the query of `request`, and put `query` on it where it has none: the SDK is given none.

    A redirect within the origin comes through here again, and keeps the query as well.
    """
    kept: dict[str, Any] = {"query": request.url.query or query} if request.url.query or query else {}
    request.url = QuietURL(request.url, **kept)
