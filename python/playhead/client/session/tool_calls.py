"""Call a session's tools: directly, as a task, or in several rounds of input.

`tools/call` is not repeated, unless the tool is idempotent by its own annotations and no answer arrived.

Tasks (MCP 2025-11-25, experimental there and removed in the revision after it): the server answers at once,
and the result is fetched later. A tool with `execution.taskSupport: "required"` can be called in no other
way; all others are called as usual. The caller sees the same result, the same progress and the same deadline.

Rounds (MCP 2026-07-28, "Multi round-trip requests", SEP-2322): the server answers that it needs input, and
the call is sent again with it. The server's state is returned unread and belongs to this call alone.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final, Protocol

import trio
from mcp_types import (
    HEADER_MISMATCH,
    CallToolRequest,
    CallToolRequestParams,
    CancelTaskRequest,
    CancelTaskRequestParams,
    ElicitRequest,
    GetTaskPayloadRequest,
    GetTaskPayloadRequestParams,
    GetTaskRequest,
    GetTaskRequestParams,
    InputRequiredResult,
    InputResponse,
    Request,
    ServerCapabilities,
    TaskMetadata,
    Tool,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from playhead.client.session.elicitation import Elicitor
from playhead.client.session.response_tap import Arrivals
from playhead.config.servers import ServerConfig
from playhead.errors import (
    ConnectionLostError,
    DeadlineError,
    HttpStatusError,
    LimitError,
    PlayheadError,
    ProtocolError,
    ServerError,
    UsageError,
)
from playhead.limits import Limits
from playhead.sdk_internals import ProgressFnT

POLL_SECONDS: Final = 1.0
"""Interval between polls of a task if the server suggests none."""
POLL_LEAST_SECONDS: Final = 0.05
POLL_MOST_SECONDS: Final = 10.0
"""Bounds of a server's suggestion: neither a busy loop nor a result that nobody fetches."""
CANCEL_SECONDS: Final = 0.5
"""Limit for telling the server that a task is cancelled."""

PAUSE_SECONDS: Final = 0.25
"""Wait before a call is sent again for which the server needs only its own state."""

Send = Callable[[Request[Any, Any]], Awaitable[dict[str, Any]]]


def offers_tasks(capabilities: ServerCapabilities) -> bool:
    """True if the server can run tools as tasks."""
    tasks = capabilities.tasks
    return tasks is not None and tasks.requests is not None and tasks.requests.tools is not None


def needs_task(tool: Tool) -> bool:
    """True if `tool` can only be called as a task."""
    return tool.execution is not None and tool.execution.task_support == "required"


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
    created = await send(
        CallToolRequest(
            params=CallToolRequestParams(
                name=name,
                arguments=dict(arguments) if arguments is not None else None,
                task=TaskMetadata(ttl=round(total_seconds * 1000)),
            )
        )
    )
    if "content" in created or "structuredContent" in created:
        return created  # answered at once: the server needed no task
    task = _task_of(created.get("task"), server=server)
    task_id: str = task["taskId"]
    done = False
    try:
        with trio.move_on_after(total_seconds):
            while task.get("status") == "working":
                await trio.sleep(_interval(task.get("pollInterval")))
                state = await send(GetTaskRequest(params=GetTaskRequestParams(task_id=task_id)))
                task = _task_of(state, server=server)
            # Also for `input_required`: the server asks its question during this request.
            params = GetTaskPayloadRequestParams(task_id=task_id)
            result = await send(GetTaskPayloadRequest(params=params))
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
            await send(CancelTaskRequest(params=CancelTaskRequestParams(task_id=task_id)))
        except PlayheadError:
            return  # the task or the connection has ended: there is nothing to cancel


async def call_with_input(
    send: Callable[[CallToolRequest], Awaitable[dict[str, Any]]],
    request: CallToolRequest,
    *,
    elicitor: Elicitor | None,
    limits: Limits,
    server: str,
) -> dict[str, Any]:
    """Send `request`, with input as often as the server requires it, and return the last answer.

    That is a result, or `input_required` if there is nobody to ask. Raises `LimitError` past
    `Limits.input_rounds`, `ProtocolError` if the server requests something that was not offered, and what
    `send` raises. Each round has its own deadline; the user's time does not count.
    """
    result = await send(request)
    rounds = 0
    while elicitor is not None and result.get("resultType") == "input_required":
        rounds += 1
        if rounds > limits.input_rounds:
            raise LimitError(
                f"expected at most {limits.input_rounds} rounds of input in one call (Limits.input_rounds),"
                f" got {rounds} from {server}",
                limit="input_rounds",
                allowed=limits.input_rounds,
                got=rounds,
            )
        wanted = _input_required(result, server=server)
        responses = await _answers(wanted, elicitor, limits=limits, server=server)
        if not responses:
            await trio.sleep(PAUSE_SECONDS)
        again = {"input_responses": responses or None, "request_state": wanted.request_state}
        result = await send(CallToolRequest(params=request.params.model_copy(update=again)))
    return result


def _input_required(result: dict[str, Any], *, server: str) -> InputRequiredResult:
    try:
        return InputRequiredResult.model_validate(result, by_name=False)
    except ValidationError as error:
        raise ProtocolError(
            f"{server} sent an invalid request for input in the middle of a call"
            f" (invalid fields: {error.error_count()})"
        ) from None


async def _answers(
    wanted: InputRequiredResult, elicitor: Elicitor, *, limits: Limits, server: str
) -> dict[str, InputResponse]:
    requests = wanted.input_requests or {}
    if len(requests) > limits.server_requests:
        raise LimitError(
            f"expected at most {limits.server_requests} questions at once (Limits.server_requests), got"
            f" {len(requests)} from {server}",
            limit="server_requests",
            allowed=limits.server_requests,
            got=len(requests),
        )
    responses: dict[str, InputResponse] = {}
    for key, request in requests.items():
        if not isinstance(request, ElicitRequest):
            raise ProtocolError(
                f"{server} requested {request.method} in the middle of a call, which was not offered"
            )
        responses[key] = await elicitor.ask(request.params)
    return responses


class ToolServer(Protocol):
    """The part of a session that calling its tools needs."""

    @property
    def name(self) -> str: ...
    @property
    def protocol_version(self) -> str: ...
    @property
    def capabilities(self) -> ServerCapabilities: ...
    async def list_tools(self) -> list[Tool]: ...


class SendRequest(Protocol):
    """Sends a request through a session."""

    async def __call__(
        self,
        request: Request[Any, Any],
        *,
        silent_seconds: float,
        total_seconds: float,
        on_progress: ProgressFnT | None = None,
        arrivals: Arrivals | None = None,
    ) -> dict[str, Any]: ...


class ToolCaller:
    """Calls one session's tools, with their properties from the last listing."""

    def __init__(
        self,
        *,
        server: ToolServer,
        send: SendRequest,
        learn_headers: Callable[[], Awaitable[None]],
        elicitor: Elicitor | None,
        config: ServerConfig,
        limits: Limits,
    ) -> None:
        self._server = server
        self._send = send
        self._learn_headers = learn_headers
        self._elicitor = elicitor
        self._config = config
        self._limits = limits
        self._idempotent: frozenset[str] = frozenset()
        self._tasks: frozenset[str] | None = None
        """Tools that can only be called as a task; None until the tools are listed."""
        self._output_schemas: Mapping[str, object] = {}

    def listed(self, tools: Iterable[Tool]) -> None:
        """Remember the properties of the listed tools."""
        tools = tuple(tools)
        self._idempotent = frozenset(
            tool.name for tool in tools if tool.annotations is not None and tool.annotations.idempotent_hint
        )
        self._tasks = frozenset(tool.name for tool in tools if needs_task(tool))
        self._output_schemas = {
            tool.name: tool.output_schema for tool in tools if tool.output_schema is not None
        }

    def output_schema(self, name: str) -> object:
        """The tool's schema for `structuredContent`; None without one, or before the tools are listed."""
        return self._output_schemas.get(name)

    def check_allowed(self, name: str) -> None:
        """Raise `UsageError` for a tool that the servers file does not allow."""
        allowed = self._config.allowed_tools
        if allowed is not None and name not in allowed:
            entry = f"mcpServers.{self._config.name}." if self._config.name else ""
            raise UsageError(
                f"{self._server.name}: tool {name!r} is not allowed by {entry}playhead.allowed_tools, which"
                f" allows {', '.join(allowed) or 'none'}; add it there to allow it"
            )

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        *,
        seconds: float | None,
        on_progress: ProgressFnT | None,
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

        async def send(request: Request[Any, Any]) -> dict[str, Any]:
            return await self._send(
                request,
                silent_seconds=silent,
                total_seconds=total,
                on_progress=on_progress,
                arrivals=arrivals,
            )

        async def once() -> dict[str, Any]:
            if await self._runs_as_task(name):
                return await call_as_task(
                    send, name=name, arguments=arguments, total_seconds=total, server=self._server.name
                )
            given = dict(arguments) if arguments is not None else None
            request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=given))
            return await call_with_input(
                send, request, elicitor=self._elicitor, limits=self._limits, server=self._server.name
            )

        try:
            return await once()
        except ServerError as error:
            modern = self._server.protocol_version in MODERN_PROTOCOL_VERSIONS
            if error.code != HEADER_MISMATCH or not modern:
                raise
            # Some of the tool's parameters belong in headers as well; its schema says which, and the SDK
            # learns that from its own listing. The call was refused before it ran.
            await self._learn_headers()
        except (ConnectionLostError, HttpStatusError):
            # Known from the last `list_tools`. A deadline is not spent twice.
            if name not in self._idempotent:
                raise
        return await once()

    async def _runs_as_task(self, name: str) -> bool:
        if not offers_tasks(self._server.capabilities):
            return False
        if self._tasks is None:
            await self._server.list_tools()
        return self._tasks is not None and name in self._tasks


def _check_arguments(name: str, arguments: object) -> None:
    # Callers without a type checker may pass what a model wrote: a string, or a list.
    if arguments is None:
        return
    if not isinstance(arguments, Mapping):
        kind = type(arguments).__name__
        raise UsageError(f"tool {name!r}: expected its arguments as a mapping of names to values, got {kind}")
    if wrong := [key for key in arguments if not isinstance(key, str)]:
        raise UsageError(f"tool {name!r}: expected strings as argument names, got {wrong[0]!r:.80}")
