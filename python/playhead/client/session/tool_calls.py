"""Calls of a session's tools, directly or as tasks.

A call that may have run is repeated only if no answer arrived and the tool declares that it is idempotent.

With tasks (MCP 2025-11-25, experimental there and removed in the revision after it) the server answers at
once, and the result is fetched later. Only a tool with `execution.taskSupport: "required"` is called as a
task. The caller sees the same result, the same progress and the same deadline.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, Unpack

import trio

from playhead.client.session.arrivals import Arrivals
from playhead.client.session.requests import OnProgress, Send, SendOptions
from playhead.config.servers import ServerConfig
from playhead.errors import (
    ConnectionLostError,
    DeadlineError,
    HttpStatusError,
    PlayheadError,
    ProtocolError,
    ServerError,
    UsageError,
)
from playhead.limits import Limits
from playhead.protocol.messages import HEADER_MISMATCH
from playhead.protocol.revisions import Revision

if TYPE_CHECKING:
    from mcp_types import Tool

POLL_SECONDS: Final = 1.0
"""The interval between polls of a task if the server suggests none."""
POLL_LEAST_SECONDS: Final = 0.05
POLL_MOST_SECONDS: Final = 10.0
"""The longest interval that a server may suggest. A longer one would delay the result, and one shorter than
`POLL_LEAST_SECONDS` would be a busy loop."""
CANCEL_SECONDS: Final = 0.5
"""Limits the request that cancels a task on the server."""


def offers_tasks(capabilities: Mapping[str, Any]) -> bool:
    """Return whether the server can run tools as tasks."""
    match capabilities:
        case {"tasks": {"requests": {"tools": dict()}}}:
            return True
    return False


def needs_task(tool: Mapping[str, Any]) -> bool:
    """Return whether a listed `tool` can only be called as a task."""
    match tool:
        case {"execution": {"taskSupport": "required"}}:
            return True
    return False


def is_idempotent(tool: Mapping[str, Any]) -> bool:
    """Return whether the annotations of a listed `tool` declare it idempotent."""
    match tool:
        case {"annotations": {"idempotentHint": True}}:
            return True
    return False


_DEFAULT_HINTS: Final = (False, True, False, True)
"""The defaults of the hints read-only, destructive, idempotent and open-world in the protocol's schema."""


def has_default_hints(tools: Collection[Tool]) -> bool:
    """Return whether each of a server's `tools` has all four hints, with the protocol's defaults.

    mcp-go adds them, `destructiveHint: true` included, to tools whose author wrote none. If every tool has
    them, they prove nothing and are treated as absent. If one tool differs, its author wrote the hints.
    """
    return bool(tools) and all(
        (hints := tool.annotations) is not None
        and (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint)
        == _DEFAULT_HINTS
        for tool in tools
    )


async def call_as_task(
    send: Send, *, name: str, arguments: Mapping[str, Any] | None, total_seconds: float, server: str
) -> dict[str, Any]:
    """Run `tools/call` as a task and return its result.

    Raises `DeadlineError` after `total_seconds`, `ProtocolError` if the server creates no task, and the
    errors of `send`. After an error or a cancellation, the task is cancelled on the server.
    """
    task_params = {} if math.isinf(total_seconds) else {"ttl": round(total_seconds * 1000)}
    created = await send("tools/call", {**_call_params(name, arguments), "task": task_params})
    if "content" in created or "structuredContent" in created:
        return created  # answered at once: the server needed no task
    task = _task_of(created.get("task"), server=server)
    task_id: str = task["taskId"]
    is_done = False
    try:
        with trio.move_on_after(total_seconds):
            while task.get("status") == "working":
                await trio.sleep(_interval(task.get("pollInterval")))
                task = _task_of(await send("tasks/get", {"taskId": task_id}), server=server)
            # The status may also be `input_required`: the server asks its question during this request.
            result = await send("tasks/result", {"taskId": task_id})
            is_done = True
            return result
    finally:
        if not is_done:
            await _cancel(send, task_id)
    raise DeadlineError(
        f"{server} did not finish tool {name!r} as a task in {total_seconds:g} s"
        " (Limits.tool_total_seconds); the task was cancelled"
    )


def _task_of(raw: object, *, server: str) -> dict[str, Any]:
    if not isinstance(raw, dict) or not isinstance(raw.get("taskId"), str):
        raise ProtocolError(
            f"{server}: expected a task with a taskId for a tool that runs as a task, got none"
        )
    return raw


def _interval(suggested: object) -> float:
    if isinstance(suggested, bool) or not isinstance(suggested, int | float):
        return POLL_SECONDS
    # Compared before the division: an integer in JSON may be too long for a float.
    return min(max(suggested, POLL_LEAST_SECONDS * 1000), POLL_MOST_SECONDS * 1000) / 1000


async def _cancel(send: Send, task_id: str) -> None:
    with trio.CancelScope(shield=True), trio.move_on_after(CANCEL_SECONDS):
        try:
            await send("tasks/cancel", {"taskId": task_id})
        except PlayheadError:
            return  # the task or the connection has ended already


class SendRequest(Protocol):
    """A function that sends a request through a session and returns its raw result."""

    async def __call__(
        self, method: str, params: Mapping[str, Any], rounds: int | None = 0, **options: Unpack[SendOptions]
    ) -> dict[str, Any]: ...


class ToolCaller:
    """Calls one session's tools, and uses their properties from the last listing."""

    def __init__(
        self,
        *,
        name: str,
        capabilities: Mapping[str, Any],
        revision: Revision,
        send: SendRequest,
        list_tools: Callable[[], Awaitable[object]],
        config: ServerConfig,
        limits: Limits,
    ) -> None:
        """`list_tools` lists the tools and passes them to `listed`."""
        self._name = name
        self._offers_tasks = offers_tasks(capabilities)
        self._revision = revision
        self._send = send
        self._list_tools = list_tools
        self._config = config
        self._limits = limits
        self._idempotent: frozenset[str] = frozenset()
        self._tasks: frozenset[str] | None = None
        """The tools that can only be called as tasks; None until the tools are listed."""
        self._output_schemas: Mapping[str, object] = {}

    def listed(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Save the properties of the listed tools."""
        named = {name: tool for tool in tools if isinstance(name := tool.get("name"), str)}
        self._idempotent = frozenset(name for name, tool in named.items() if is_idempotent(tool))
        self._tasks = frozenset(name for name, tool in named.items() if needs_task(tool))
        schemas = {name: tool.get("outputSchema") for name, tool in named.items()}
        self._output_schemas = {name: it for name, it in schemas.items() if isinstance(it, dict)}

    def output_schema(self, name: str) -> object:
        """Return the tool's schema for `structuredContent`; None without one, or before the tools are
        listed."""
        return self._output_schemas.get(name)

    def check_allowed(self, name: str) -> None:
        """Raise `UsageError` for a tool that the servers file does not allow."""
        allowed = self._config.allowed_tools
        if allowed is not None and name not in allowed:
            entry = f"mcpServers.{self._config.name}." if self._config.name else ""
            raise UsageError(
                f"{self._name}: tool {name!r} is not allowed by {entry}playhead.allowed_tools, which"
                f" allows {', '.join(allowed) or 'none'}; add it there to allow it"
            )

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        *,
        seconds: float | None,
        on_progress: OnProgress | None,
        on_link: Callable[[object], None] | None = None,
        arrivals: Arrivals | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Call a tool and return the raw result; see `Session.call_tool`.

        `arrivals` is notified of the bytes of the answer. It comes from a stream, whose calls have no limit
        for their total time. `members` are sent with the call; a server's request for input is then
        returned.
        """
        self.check_allowed(name)
        _check_arguments(name, arguments)
        if seconds is None:
            seconds = self._config.timeout_seconds or self._limits.tool_seconds
        silent, total = seconds, max(self._limits.tool_total_seconds, seconds)
        if arrivals is not None:
            total = math.inf

        send = partial(
            self._send,
            silent_seconds=silent,
            total_seconds=total,
            on_progress=on_progress,
            on_link=on_link,
            arrivals=arrivals,
        )
        if members is not None:
            send = partial(send, rounds=None)

        async def once() -> dict[str, Any]:
            if not await self._runs_as_task(name):
                return await send("tools/call", {**(members or {}), **_call_params(name, arguments)})
            return await call_as_task(
                send, name=name, arguments=arguments, total_seconds=total, server=self._name
            )

        try:
            return await once()
        except ServerError as error:
            if error.code != HEADER_MISMATCH or not self._revision.has_routing_headers:
                raise
            # The server refused the call before it ran, because a header is missing or differs from the
            # argument that it repeats. The listed schema of the tool tells which arguments become headers.
            await self._learn_headers()
        except (ConnectionLostError, HttpStatusError):
            # A `DeadlineError` is raised at once, so that the caller does not wait twice as long.
            if name not in self._idempotent:
                raise
        return await once()

    async def _runs_as_task(self, name: str) -> bool:
        if self._offers_tasks and self._tasks is None:
            await self._list_tools()
        return self._tasks is not None and self._offers_tasks and name in self._tasks

    async def _learn_headers(self) -> None:
        with trio.move_on_after(self._limits.tool_seconds):
            await self._list_tools()
            return
        raise DeadlineError(
            f"{self._name} did not list its tools in {self._limits.tool_seconds:g} s (Limits.tool_seconds); a"
            " call needs the list"
        )


def _call_params(name: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"name": name} if arguments is None else {"name": name, "arguments": dict(arguments)}


def _check_arguments(name: str, arguments: object) -> None:
    # A caller without a type checker may pass a model's output, such as a string or a list.
    if arguments is None:
        return
    if not isinstance(arguments, Mapping):
        kind = type(arguments).__name__
        raise UsageError(f"tool {name!r}: expected its arguments as a mapping of names to values, got {kind}")
    if invalid := [key for key in arguments if not isinstance(key, str)]:
        raise UsageError(f"tool {name!r}: expected strings as argument names, got {invalid[0]!r:.80}")
