"""Requests of httpx2 whose URL is printed without its secrets (`playhead.redaction`)."""

from __future__ import annotations

from typing import Any

import httpx2

from playhead.redaction import redacted_url


class RedactedURL(httpx2.URL):
    """A URL that is requested in full and printed without its secrets (`redaction.redacted_url`).

    httpx2 logs `str(request.url)` of every request at INFO, and many servers take a key in the query. The
    request itself is made from the URL's parts, so only the printed form differs; no logger has to be
    configured.
    """

    def __str__(self) -> str:
        return redacted_url(str(httpx2.URL(self)))

    def join(self, url: httpx2.URL | str) -> httpx2.URL:
        """Resolve a redirect against the whole URL: httpx2 would take what is printed."""
        return httpx2.URL(self).join(url)

    def __repr__(self) -> str:
        return f"RedactedURL({str(self)!r})"


def redact_query(request: httpx2.Request, query: bytes = b"") -> None:
    """Hide the query of `request`, and add `query` if it has none: the SDK gets the URL without it.

    A redirect within the origin passes through here again and keeps the query.
    """
    parts: dict[str, Any] = {"query": request.url.query or query} if request.url.query or query else {}
    request.url = RedactedURL(request.url, **parts)
