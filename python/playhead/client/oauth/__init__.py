"""OAuth for servers over HTTP: the SDK's flows, tokens in a file, and a person asked only while connecting.

`build` is imported when a server's settings ask for OAuth: it loads the SDK's OAuth and its dependencies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

ShowUrl = Callable[[str], Awaitable[None]]
"""Leads the user's browser to a URL, or asks the user to open it. An exception ends the connection
attempt."""
