"""Calls that the server runs as a task: `tools/call` is answered at once, and the result is fetched later.

MCP 2025-11-25, "Tasks" (experimental there, and gone from the revision after it). A tool that says
`execution.taskSupport: "required"` can be called in no other way; all others are called as usual. The caller
sees none of it: the same result, the same progress, the same deadline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import trio
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CancelTaskRequest,
    CancelTaskRequestParams,
    GetTaskPayloadRequest,
    GetTaskPayloadRequestParams,
    GetTaskRequest,
    GetTaskRequestParams,
    Request,
    ServerCapabilities,
    TaskMetadata,
    Tool,
)

from playhead.errors import DeadlineError, PlayheadError, ProtocolError

POLL_SECONDS: Final = 1.0
"""Between two looks at a task whose server suggests no interval."""
POLL_LEAST_SECONDS: Final = 0.05
POLL_MOST_SECONDS: Final = 10.0
"""What a server's suggestion is kept within: neither a busy loop nor a result that nobody fetches."""
CANCEL_SECONDS: Final = 0.5
"""How long leaving a task waits for the server to hear of it."""

Ask = Callable[[Request[Any, Any]], Awaitable[dict[str, Any]]]


def offers_tasks(capabilities: ServerCapabilities) -> bool:
    """Whether the server can run a tool as a task."""
    tasks = capabilities.tasks
    return tasks is not None and tasks.requests is not None and tasks.requests.tools is not None


def needs_task(tool: Tool) -> bool:
    """Whether `tool` can be called as a task only."""
    return tool.execution is not None and tool.execution.task_support == "required"


async def call_as_task(
    ask: Ask, *, name: str, arguments: Mapping[str, Any] | None, total_seconds: float, server: str
) -> dict[str, Any]:
    """The result of `tools/call`, run as a task.

    Raises `DeadlineError` after `total_seconds`, `ProtocolError` where the server creates no task, and what
    `ask` raises. Whatever ends it early, cancellation included, cancels the task on the server.
    """
    created = await ask(
        CallToolRequest(
            params=CallToolRequestParams(
                name=name,
                arguments=dict(arguments) if arguments is not None else None,
                task=TaskMetadata(ttl=round(total_seconds * 1000)),
            )
        )
    )
    if "content" in created or "structuredContent" in created:
        return created  # answered at once: a server that needs no task after all
    task = _task_of(created.get("task"), server=server)
    task_id: str = task["taskId"]
    done = False
    try:
        with trio.move_on_after(total_seconds):
            while task.get("status") == "working":
                await trio.sleep(_interval(task.get("pollInterval")))
                state = await ask(GetTaskRequest(params=GetTaskRequestParams(task_id=task_id)))
                task = _task_of(state, server=server)
            # `input_required` too: the server asks its question while this is under way.
            params = GetTaskPayloadRequestParams(task_id=task_id)
            result = await ask(GetTaskPayloadRequest(params=params))
            done = True
            return result
    finally:
        if not done:
            await _cancel(ask, task_id)
    raise DeadlineError(
        f"{server} did not finish tool {name!r} as a task in {total_seconds:g} s"
        " (Limits.tool_total_seconds); the task was cancelled"
    )


def _task_of(raw: object, *, server: str) -> dict[str, Any]:
    if not isinstance(raw, dict) or not isinstance(raw.get("taskId"), str):
        raise ProtocolError(
            f"{server}: expected a task with a taskId for a tool that runs as a task, came none"
        )
    return raw


def _interval(suggested: object) -> float:
    if isinstance(suggested, bool) or not isinstance(suggested, int | float):
        return POLL_SECONDS
    # Compared before it is divided: a whole number in JSON may be too long for a float.
    return min(max(suggested, POLL_LEAST_SECONDS * 1000), POLL_MOST_SECONDS * 1000) / 1000


async def _cancel(ask: Ask, task_id: str) -> None:
    with trio.CancelScope(shield=True), trio.move_on_after(CANCEL_SECONDS):
        try:
            await ask(CancelTaskRequest(params=CancelTaskRequestParams(task_id=task_id)))
        except PlayheadError:
            return  # it has ended, or the connection has: nothing is left to cancel
