"""How a tool is called: which may be, in which way, and when a second time.

`tools/call` is not repeated, unless the tool says that calling it again does no harm and nothing was
answered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    HEADER_MISMATCH,
    CallToolRequest,
    CallToolRequestParams,
    Request,
    ServerCapabilities,
    Tool,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from playhead.client.elicitation import Asker
from playhead.client.rounds import call_in_rounds
from playhead.client.tasks import call_as_task, needs_task, offers_tasks
from playhead.config.servers import ServerConfig
from playhead.errors import ConnectionLostError, HttpStatusError, ServerError, UsageError
from playhead.limits import Limits


class Server(Protocol):
    """What calling needs of a session."""

    @property
    def name(self) -> str: ...
    @property
    def protocol_version(self) -> str: ...
    @property
    def capabilities(self) -> ServerCapabilities: ...
    async def list_tools(self) -> list[Tool]: ...


class Ask(Protocol):
    """A session's way out."""

    async def __call__(
        self,
        request: Request[Any, Any],
        *,
        silent_seconds: float,
        total_seconds: float,
        on_progress: ProgressFnT | None = None,
    ) -> dict[str, Any]: ...


class Caller:
    """Calls one session's tools, with what is known of them since they were last listed."""

    def __init__(
        self,
        *,
        server: Server,
        ask: Ask,
        learn_headers: Callable[[], Awaitable[None]],
        asker: Asker | None,
        config: ServerConfig,
        limits: Limits,
    ) -> None:
        self._server = server
        self._ask = ask
        self._learn_headers = learn_headers
        self._asker = asker
        self._config = config
        self._limits = limits
        self._harmless: frozenset[str] = frozenset()
        self._tasks: frozenset[str] | None = None
        """Tools that can be called as a task only; None until the tools were listed."""
        self._output_schemas: Mapping[str, object] = {}

    def listed(self, tools: Iterable[Tool]) -> None:
        """Take note of what the tools say of themselves."""
        tools = tuple(tools)
        self._harmless = frozenset(
            tool.name for tool in tools if tool.annotations is not None and tool.annotations.idempotent_hint
        )
        self._tasks = frozenset(tool.name for tool in tools if needs_task(tool))
        self._output_schemas = {
            tool.name: tool.output_schema for tool in tools if tool.output_schema is not None
        }

    def output_schema(self, name: str) -> object:
        """What the tool says its `structuredContent` is; None where it says nothing, or was not listed."""
        return self._output_schemas.get(name)

    def check_allowed(self, name: str) -> None:
        """Raise `UsageError` for a tool that the servers file doesn't allow."""
        allowed = self._config.allowed_tools
        if allowed is not None and name not in allowed:
            entry = f"mcpServers.{self._config.name}." if self._config.name else ""
            raise UsageError(
                f"{self._server.name}: tool {name!r} is not allowed by {entry}playhead.allowed_tools, which"
                f" allows {', '.join(allowed) or 'none'}; add it there if it may be called"
            )

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        *,
        seconds: float | None,
        on_progress: ProgressFnT | None,
    ) -> dict[str, Any]:
        """The raw result; see `Session.call_tool`."""
        self.check_allowed(name)
        if seconds is None:
            seconds = self._config.timeout_seconds or self._limits.tool_seconds
        silent, total = seconds, max(self._limits.tool_total_seconds, seconds)

        async def ask(asked: Request[Any, Any]) -> dict[str, Any]:
            return await self._ask(asked, silent_seconds=silent, total_seconds=total, on_progress=on_progress)

        async def once() -> dict[str, Any]:
            if await self._runs_as_task(name):
                return await call_as_task(
                    ask, name=name, arguments=arguments, total_seconds=total, server=self._server.name
                )
            given = dict(arguments) if arguments is not None else None
            request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=given))
            return await call_in_rounds(
                ask, request, asker=self._asker, limits=self._limits, server=self._server.name
            )

        try:
            return await once()
        except ServerError as error:
            modern = self._server.protocol_version in MODERN_PROTOCOL_VERSIONS
            if error.code != HEADER_MISMATCH or not modern:
                raise
            # The tool's parameters belong into headers as well; its schema says which, and the SDK learns
            # that from a listing of its own. The call was refused before it ran.
            await self._learn_headers()
        except (ConnectionLostError, HttpStatusError):
            # Known from the last `list_tools`; a deadline is not spent twice.
            if name not in self._harmless:
                raise
        return await once()

    async def _runs_as_task(self, name: str) -> bool:
        if not offers_tasks(self._server.capabilities):
            return False
        if self._tasks is None:
            await self._server.list_tools()
        return self._tasks is not None and name in self._tasks
