"""Calls of a session's tools, directly or as tasks.

`tools/call` is not repeated, unless the tool is idempotent by its own annotations and no answer arrived.

Tasks (MCP 2025-11-25, experimental there and removed in the revision after it): the server answers at once,
and the result is fetched later. A tool with `execution.taskSupport: "required"` can be called in no other
way; all others are called as usual. The caller sees the same result, the same progress and the same deadline.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, Unpack

import trio

from playhead.client.session.requests import OnProgress, Send, SendOptions
from playhead.client.session.shared_reads import Arrivals
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
"""Interval between polls of a task if the server suggests none."""
POLL_LEAST_SECONDS: Final = 0.05
POLL_MOST_SECONDS: Final = 10.0
"""Bounds of a server's suggestion: neither a busy loop nor a result that nobody fetches."""
CANCEL_SECONDS: Final = 0.5
"""Limit for telling the server that a task is cancelled."""


def offers_tasks(capabilities: Mapping[str, Any]) -> bool:
    """True if the server can run tools as tasks."""
    match capabilities:
        case {"tasks": {"requests": {"tools": dict()}}}:
            return True
    return False


def needs_task(tool: Mapping[str, Any]) -> bool:
    """True if a listed `tool` can only be called as a task."""
    match tool:
        case {"execution": {"taskSupport": "required"}}:
            return True
    return False


def is_idempotent(tool: Mapping[str, Any]) -> bool:
    """True if the annotations of a listed `tool` say so."""
    match tool:
        case {"annotations": {"idempotentHint": True}}:
            return True
    return False


_DEFAULT_HINTS: Final = (False, True, False, True)
"""Read-only, destructive, idempotent and open-world, by the protocol's schema."""


def has_default_hints(tools: Collection[Tool]) -> bool:
    """True if each of a server's `tools` states all four hints, and states the protocol's defaults.

    mcp-go fills them in for tools whose author wrote none, `destructiveHint: true` among them. Where every
    tool has them they say nothing and count as absent. A single hint, or a tool that differs, was written by
    somebody.
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

    Raises `DeadlineError` after `total_seconds`, `ProtocolError` if the server creates no task, and what
    `send` raises. Ending it early, by a cancellation too, cancels the task on the server.
    """
    task_params = {} if math.isinf(total_seconds) else {"ttl": round(total_seconds * 1000)}
    created = await send("tools/call", {**_call_params(name, arguments), "task": task_params})
    if "content" in created or "structuredContent" in created:
        return created  # answered at once: the server needed no task
    task = _task_of(created.get("task"), server=server)
    task_id: str = task["taskId"]
    done = False
    try:
        with trio.move_on_after(total_seconds):
            while task.get("status") == "working":
                await trio.sleep(_interval(task.get("pollInterval")))
                task = _task_of(await send("tasks/get", {"taskId": task_id}), server=server)
            # Also for `input_required`: the server asks its question during this request.
            result = await send("tasks/result", {"taskId": task_id})
            done = True
            return result
    finally:
        if not done:
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
            return  # the task or the connection has ended: there is nothing to cancel


class SendRequest(Protocol):
    """Sends a request through a session."""

    async def __call__(
        self, method: str, params: Mapping[str, Any], **options: Unpack[SendOptions]
    ) -> dict[str, Any]: ...


class ToolCaller:
    """Calls one session's tools, with their properties from the last listing."""

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
        """`list_tools` makes the session call `listed`."""
        self._name = name
        self._offers_tasks = offers_tasks(capabilities)
        self._revision = revision
        self._send = send
        self._list_tools = list_tools
        self._config = config
        self._limits = limits
        self._idempotent: frozenset[str] = frozenset()
        self._tasks: frozenset[str] | None = None
        """Tools that can only be called as a task; None until the tools are listed."""
        self._output_schemas: Mapping[str, object] = {}

    def listed(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Remember the properties of the listed tools."""
        named = {name: tool for tool in tools if isinstance(name := tool.get("name"), str)}
        self._idempotent = frozenset(name for name, tool in named.items() if is_idempotent(tool))
        self._tasks = frozenset(name for name, tool in named.items() if needs_task(tool))
        schemas = {name: tool.get("outputSchema") for name, tool in named.items()}
        self._output_schemas = {name: it for name, it in schemas.items() if isinstance(it, dict)}

    def output_schema(self, name: str) -> object:
        """The tool's schema for `structuredContent`; None without one, or before the tools are listed."""
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
        arrivals: Arrivals | None = None,
    ) -> dict[str, Any]:
        """Call a tool and return the raw result; see `Session.call_tool`.

        `arrivals` is notified of the bytes of the answer; a stream that passes it sets no limit to the total.
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
            arrivals=arrivals,
        )

        async def once() -> dict[str, Any]:
            if not await self._runs_as_task(name):
                return await send("tools/call", _call_params(name, arguments))
            return await call_as_task(
                send, name=name, arguments=arguments, total_seconds=total, server=self._name
            )

        try:
            return await once()
        except ServerError as error:
            if error.code != HEADER_MISMATCH or not self._revision.has_routing_headers:
                raise
            # A header is missing, or differs from the argument that it repeats; the tool's schema says which
            # arguments are sent so. The call was refused before it ran.
            await self._learn_headers()
        except (ConnectionLostError, HttpStatusError):
            # Known from the last `list_tools`. A deadline is not spent twice.
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
    # Callers without a type checker may pass what a model wrote: a string, or a list.
    if arguments is None:
        return
    if not isinstance(arguments, Mapping):
        kind = type(arguments).__name__
        raise UsageError(f"tool {name!r}: expected its arguments as a mapping of names to values, got {kind}")
    if wrong := [key for key in arguments if not isinstance(key, str)]:
        raise UsageError(f"tool {name!r}: expected strings as argument names, got {wrong[0]!r:.80}")
