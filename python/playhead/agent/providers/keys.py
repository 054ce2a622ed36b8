"""API keys: what can be one."""

from __future__ import annotations

from playhead.errors import UsageError


def checked_key(api_key: str, *, provider: str) -> str:
    """`api_key`, where it can be sent in a header.

    Raises `UsageError` where it can't; the message doesn't quote it, as that of the HTTP library would.
    """
    if not api_key:
        raise UsageError(f"expected an API key for {provider}, got an empty one")
    if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise UsageError(
            f"expected an API key for {provider} in printable ASCII without spaces, got something else: was"
            " it copied with a line's end?"
        )
    return api_key
