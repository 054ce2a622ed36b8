"""An HTTP server of the standard library on loopback, in threads of its own, for tests that are not async."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client may leave at any time."""


@contextmanager
def threaded_http(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve with `handler`. Yields the URL of the server, without a path."""
    with _Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
