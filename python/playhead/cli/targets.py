"""From the words of the command line to something that can be read or played."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from playhead.cli.parameters import parse_pairs, parse_size
from playhead.cli.terminal import Terminal, escape_line
from playhead.errors import ProtocolError, ToolFailedError, UsageError
from playhead.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from playhead.client import BytesMedia, CallResult, ResourceMedia, Session
    from playhead.config.servers import ServerConfig
    from playhead.content import Block
    from playhead.stream.options import StreamOptions

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""RFC 3986, section 3.1. A tool's name has no colon in it (SEP-986)."""


_OPTIONS: Final = {
    "strategy": "--strategy",
    "page_bytes": "--page-size",
    "in_flight": "--in-flight",
    "capacity_bytes": "--capacity",
    "size_bytes": "--size",
    "timeout": "--timeout",
    "max_bytes": "--max-bytes",
}


def connected(
    server: str | ServerConfig, *, config: Path | None, timeout: float | None
) -> AbstractAsyncContextManager[Session]:
    """`playhead.connect`; `--timeout` is for the handshake too: one server hangs, npx fetches another."""
    from playhead.client import connect

    return connect(server, config=config, limits=limits_for(timeout), show_url=show_url)


def limits_for(timeout: float | None) -> Limits:
    """The limits under which `--timeout` is the handshake's time too."""
    return DEFAULT_LIMITS if timeout is None else replace(DEFAULT_LIMITS, handshake_seconds=timeout)


async def show_url(url: str) -> None:
    """Lead the person to the page where the access is allowed: in a browser, and in words in case none opens.

    On stderr also beside `--json`: a program waits for its person like everybody else.
    """
    import webbrowser

    import trio

    Terminal(json_output=False).say(f"to allow the access, open {escape_line(url)}", whole=True)
    await trio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)


def stream_options(
    *,
    strategy: str | None,
    page_size: str | None,
    in_flight: int | None,
    capacity: str | None,
    extra: Sequence[str] | None,
    size: str | None,
    timeout: float | None,
    max_bytes: str | None,
) -> StreamOptions:
    """The streaming options that were given; what was not given keeps its default."""
    from playhead.stream.options import StreamOptions

    given: dict[str, Any] = {
        "strategy": strategy,
        "page_bytes": parse_size(page_size, option="--page-size") if page_size else None,
        "in_flight": in_flight,
        "capacity_bytes": parse_size(capacity, option="--capacity") if capacity else None,
        "extra_arguments": parse_pairs(extra, option="--arg") if extra else None,
        "size_bytes": parse_size(size, option="--size") if size else None,
        "timeout": timeout,
        "max_bytes": parse_size(max_bytes, option="--max-bytes") if max_bytes else None,
    }
    try:
        return StreamOptions(**{name: value for name, value in given.items() if value is not None})
    except UsageError as error:
        name, _, rest = str(error).partition(":")
        raise UsageError(f"{_OPTIONS.get(name, name)}:{rest}") from error


def is_uri(what: str) -> bool:
    """Whether `what` is a URI; everything else is a tool's name."""
    return _URI.match(what) is not None


async def find_media(
    session: Session, what: str, arguments: Mapping[str, Any], *, playable: bool
) -> ResourceMedia | BytesMedia:
    """What `playhead play` and `playhead read` mean by WHAT: a URI, or a tool's first link or blob.

    Raises `ToolFailedError` where the tool answered with isError, and `ProtocolError` where its answer holds
    nothing that can be read.
    """
    if is_uri(what):
        return session.media(what)
    result = await session.call_tool(what, arguments)
    raise_tool_error(what, result)
    # What doesn't say that it is sound is played all the same where there is nothing else: it was asked for.
    found = ((*result.media, *result.resources) if playable else result.resources)[:1]
    if not found:
        wanted = "sound" if playable else "a resource link or a blob"
        came = ", ".join(sorted({_kind(block) for block in result.blocks})) or "nothing"
        raise ProtocolError(
            f"expected {wanted} in the answer of tool {what!r}, got {came}; `playhead call` shows the answer"
        )
    return found[0]


def _kind(block: Block) -> str:
    from playhead.content import UnknownBlock

    return block.content.kind or "no block" if isinstance(block.content, UnknownBlock) else block.content.type


def raise_tool_error(tool: str, result: CallResult) -> None:
    """Raise `ToolFailedError` with the tool's own words where the result says isError."""
    if result.is_error:
        raise ToolFailedError(f"tool {escape_line(tool)} failed: {result.text or '(it gave no reason)'}")


def server_name(session: Session) -> str:
    """What the server calls itself, else what it was connected as."""
    return session.server_info.name if session.server_info is not None else session.name
