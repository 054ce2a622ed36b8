"""The servers, tools and media that the arguments of a command name."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from playhead.cli import quick_imports
from playhead.cli.parameters import GivenArguments, parse_pairs, parse_size
from playhead.cli.terminal import Terminal, escape_line
from playhead.cli.trust import with_consent
from playhead.cli.views import CallView
from playhead.errors import ProtocolError, RemoteError, ServerError, ToolFailedError, UsageError
from playhead.escaping import did_you_mean
from playhead.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from playhead.cache import PageCache
    from playhead.client import BytesMedia, CallResult, ResourceMedia, Session
    from playhead.client.oauth import ShowUrl
    from playhead.client.session.requests import OnMedia
    from playhead.config.servers import ServerConfig
    from playhead.config.trust import Trust
    from playhead.content import Block
    from playhead.results.candidates import Candidate
    from playhead.results.plan import Policy
    from playhead.stream.options import StreamEvent, StreamOptions

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""RFC 3986, section 3.1. A tool's name has no colon in it (SEP-986)."""


async def find_server(
    server: str,
    terminal: Terminal,
    *,
    config: Path | None,
    trusted: bool,
    allow_origins: Sequence[str] | None = None,
    allow_paths: Sequence[str] | None = None,
) -> ServerConfig:
    """Find the server that an argument names (`resolve_target`), and add permissions (`with_permissions`). It
    asks for consent to `./mcp.json` if needed."""
    from playhead.config.servers import resolve_target

    def load(trust: Trust) -> ServerConfig:
        return resolve_target(server, config, trust=trust)

    target = await with_consent(terminal, load, trusted=trusted)
    terminal.hide(target.secrets)
    return with_permissions(target, allow_origins, allow_paths)


def with_permissions(
    server: ServerConfig, origins: Sequence[str] | None, paths: Sequence[str] | None
) -> ServerConfig:
    """Add the permissions of `--allow-origin` and `--allow-path` to `server`. Raises `UsageError` for an
    invalid value."""
    from playhead.net_guard import parse_origins

    parse_origins(origins or ())
    directories = [os.path.abspath(Path(path).expanduser()) for path in paths or ()]  # noqa: PTH100 - links stay
    for path, directory in zip(paths or (), directories, strict=True):
        if not Path(directory).is_dir():
            raise UsageError(f"--allow-path: expected a directory, got {path!r}")
    return replace(
        server,
        allow_origins=(*server.allow_origins, *(origins or ())),
        allow_paths=(*server.allow_paths, *directories),
    )


@asynccontextmanager
async def connected(
    server: ServerConfig,
    terminal: Terminal,
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - as in Session.call_tool
    modules: Sequence[str] = (),
    cache: str | None = None,
) -> AsyncIterator[Session]:
    """Connect to a server for a `with` block. `--timeout` also bounds the handshake, which a server can
    stall.

    It opens `cache` (`--cache`, by default the server's own), so that the terminal shows warnings about it.

    A server that is a command starts first. While it starts, this imports the client and the `modules` that
    need the session, which takes about as long.
    """
    from playhead.client.transports.server_process import started_early

    async with AsyncExitStack() as stack:
        with terminal.doing(f"connecting to {server.name}"):
            target = await stack.enter_async_context(started_early(server))
            with quick_imports():
                from playhead.client import connect

                for module in modules:
                    import_module(module)
            pages = opened_cache(cache or server.cache, terminal)
            session = await stack.enter_async_context(
                connect(target, limits=limits_for(timeout), show_url=url_shower(terminal), cache=pages)
            )
        yield session


def opened_cache(where: str | None, terminal: Terminal) -> PageCache | None:
    """Open the page cache of `--cache`. Raises `UsageError` if it cannot be used."""
    if where is None:
        return None
    from playhead.cache import open_cache

    return open_cache(where, on_trouble=terminal.warn)


def limits_for(timeout: float | None) -> Limits:
    """Return limits that apply `--timeout` to every response, including the connection and the handshake."""
    if timeout is None:
        return DEFAULT_LIMITS
    return replace(
        DEFAULT_LIMITS,
        connect_seconds=timeout,
        handshake_seconds=timeout,
        page_seconds=timeout,
        tool_seconds=timeout,
    )


def url_shower(terminal: Terminal) -> ShowUrl:
    """Return a function that opens the authorization page in a browser, and prints its URL in case that
    fails."""

    async def show_url(url: str) -> None:
        import webbrowser

        import trio

        terminal.say_anyway(f"to allow the access, open {escape_line(url)}", whole=True)
        await trio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)

    return show_url


def stream_options(
    *,
    strategy: str | None = None,
    page_size: str | None = None,
    in_flight: int | None = None,
    capacity: str | None = None,
    extra: Sequence[str] | None = None,
    size: str | None = None,
    timeout: float | None = None,
    patience: float | None = None,
    max_bytes: str | None = None,
    live: bool = False,
) -> Mapping[str, Any]:
    """Return the fields of `StreamOptions` that the options set. Raises `UsageError`, which names an invalid
    option."""
    from playhead.stream.options import StreamOptions

    def sized(option: str, text: str | None) -> tuple[str, int | None]:
        return option, parse_size(text, option=option) if text else None

    options: dict[str, tuple[str, Any]] = {
        "strategy": ("--strategy", strategy),
        "page_bytes": sized("--page-size", page_size),
        "page_bytes_max": sized("--page-size", page_size),
        "in_flight": ("--in-flight", in_flight),
        "capacity_bytes": sized("--capacity", capacity),
        "extra_arguments": ("--arg", parse_pairs(extra, option="--arg") if extra else None),
        "size_bytes": sized("--size", size),
        "timeout": ("--timeout", timeout),
        "patience_seconds": ("--patience", patience),
        "max_bytes": sized("--max-bytes", max_bytes),
        "live": ("--live", live or None),
    }
    given = {name: value for name, (_, value) in options.items() if value is not None}
    try:
        StreamOptions(**given)
    except UsageError as error:
        name, _, rest = str(error).partition(":")
        option, _ = options.get(name, (name, None))
        raise UsageError(f"{option}:{rest}") from error
    return given


def options_for(
    session: Session,
    given: Mapping[str, Any],
    *,
    profile: Literal["play", "save"],
    on_event: Callable[[StreamEvent], None],
) -> StreamOptions:
    """Build stream options: the fields in `given` override the server's settings in the servers file."""
    return replace(session.default_options(), profile=profile, on_event=on_event, **given)


def is_uri(what: str) -> bool:
    """Return True for a URI; everything else is a tool's name."""
    return _URI.match(what) is not None


async def arguments_for(
    session: Session, tool: str, given: GivenArguments, *, force: bool = False, advice: str = ""
) -> dict[str, Any]:
    """Return the arguments with the types of the tool's input schema. This lists the tools if there are
    arguments.

    If the server does not list `tool`, the schema is unknown. Raises as `GivenArguments.for_tool`.
    """
    tools = await _tools_by_name(session) if given else {}
    schema = tools.get(tool, {}).get("inputSchema")
    return given.for_tool(tool, schema, force=force, advice=advice)


async def _tools_by_name(session: Session) -> dict[str, dict[str, Any]]:
    """Return the tools by name; none if the server cannot list them."""
    try:
        return {tool["name"]: tool for tool in await session.list_tool_fields()}
    except RemoteError:
        return {}


async def call_tool(
    session: Session,
    tool: str,
    arguments: Mapping[str, Any],
    terminal: Terminal,
    *,
    timeout: float | None,  # noqa: ASYNC109 - as in Session.call_tool
    policy: Policy | None = None,
    on_media: OnMedia | None = None,
) -> CallResult:
    """Call a tool, and show its progress at the terminal.

    If the server does not list the tool, the error suggests similar names.
    """
    view = CallView(tool=tool)

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        view.progress, view.total, view.message = progress, total, message or view.message

    try:
        with terminal.showing(lambda: view):
            result = await session.call_tool(
                tool,
                arguments,
                timeout=timeout,
                policy=policy,
                on_progress=on_progress if terminal.is_live else None,
                on_media=on_media,
            )
    except ServerError as error:
        if hint := await _hint_if_unlisted(session, tool):
            message = f"{error}; {hint}"
            raise ServerError(
                message, code=error.code, data=error.data, server_message=error.server_message
            ) from error
        raise
    # Some frameworks refuse an unknown tool with a result in place of an error.
    if result.is_error and "tool" in result.text.lower() and (hint := await _hint_if_unlisted(session, tool)):
        raise ToolFailedError(f"tool {escape_line(tool)} failed: {result.text}; {hint}")
    return result


async def _hint_if_unlisted(session: Session, tool: str) -> str:
    """Return a hint if the server lists tools but not this one; otherwise an empty string."""
    tools = await _tools_by_name(session)
    if not tools or tool in tools:
        return ""
    return did_you_mean(tool, tools, "`playhead tools` lists the tools", most=3)


async def find_media(
    session: Session,
    what: str,
    given: GivenArguments,
    terminal: Terminal,
    on_media: OnMedia | None = None,
    *,
    playable: bool,
    timeout: float | None = None,  # noqa: ASYNC109 - as in Session.call_tool
) -> Sequence[ResourceMedia | BytesMedia]:
    """Return the media of `what`, the WHAT of `playhead play` and `playhead read`; at least one, unless
    `on_media` got everything.

    These are the resource at a URI, the links and blobs of a tool's result, or the chunks of a queue tool.
    `on_media` is as in `Session.call_tool`. Raises `ToolFailedError` if the tool returned isError,
    `ProtocolError` if its result contains nothing to read, and `UsageError` as `arguments_for`, or for
    arguments of a URI.
    """
    from playhead.stream.strategies import is_queue_schema

    if is_uri(what):
        if given:
            raise UsageError(f"{what!r} is a URI, which takes no arguments; --arg passes one with each read")
        return [session.media(what)]
    listed = (await _tools_by_name(session)).get(what, {})
    arguments = given.for_tool(what, listed.get("inputSchema"))
    if what == session.default_options().poll_tool or is_queue_schema(listed.get("outputSchema")):
        # A result of a call would have the first chunks, so the stream calls the tool.
        return [session.queue(what, arguments)]
    result = await call_tool(session, what, arguments, terminal, timeout=timeout, on_media=on_media)
    raise_tool_error(what, result)
    # Without audio, play the first other resource: the user asked for it.
    media = (result.media or result.resources[:1]) if playable else result.resources
    if not media:
        wanted = "audio" if playable else "a resource link or a blob"
        if result.plan.refused:
            refused = "".join(f"\n{refusal(each)}" for each in result.plan.refused)
            raise UsageError(
                f"expected {wanted} that is allowed in the answer of tool {what!r}, got:{refused}"
            )
        got = ", ".join(sorted({_type_of_block(block) for block in result.blocks})) or "nothing"
        raise ProtocolError(
            f"expected {wanted} in the answer of tool {what!r}, got {got}; `playhead call --candidates` shows"
            " the answer, and what was tried of it"
        )
    return [each for each in media if each.uri not in result.early_uris]


def refusal(candidate: Candidate) -> str:
    """Describe a candidate that is not allowed, with the option that allows it."""
    address = f"{escape_line(candidate.address)}, in " if candidate.address else ""
    return f"{address}{escape_line(candidate.place)}, is not allowed: {remedy(candidate)}"


def remedy(candidate: Candidate) -> str:
    """Return the option that allows a candidate."""
    assert candidate.verdict is not None
    assert candidate.verdict.permission is not None
    setting, value = candidate.verdict.permission
    option = {"allow_origins": "--allow-origin", "allow_paths": "--allow-path"}[setting]
    return f"{option} {escape_line(shlex.quote(value))} allows it ({setting} in the servers file)"


def _type_of_block(block: Block) -> str:
    from playhead.content import UnknownBlock

    if (fields := block.fields) is not None:
        return str(fields["type"])
    assert isinstance(block.content, UnknownBlock)
    return block.content.kind or "no block"


def raise_tool_error(tool: str, result: CallResult) -> None:
    """Raise `ToolFailedError` with the text of the result if it has isError."""
    if result.is_error:
        raise ToolFailedError(f"tool {escape_line(tool)} failed: {result.text or '(it gave no reason)'}")
