"""Many servers at once: all their tools under names of their own, each call to the one it belongs to.

    async with open_hub(Path("mcp.json")) as hub:
        await hub.connect_all()                           # a dead server is a state, not an error
        await hub.discover_and_register_all_tools()
        done = await hub.call_tool("music__play", {"title": "So What"})

Each server is a task in the hub's nursery (hub_server.py). What is known of all their tools is one immutable
catalog (hub_tools.py), made anew when a list changes. What is done with a result is in processing.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

import trio
from mcp.shared.dispatcher import ProgressFnT

from playhead.client.calls import CallResult
from playhead.client.elicitation import OnElicitation
from playhead.client.groups import bare
from playhead.client.hub_server import HubServer, HubTarget
from playhead.client.hub_state import (
    EventBoard,
    HubEvent,
    ServerState,
    ServerStateChanged,
    ToolsChanged,
)
from playhead.client.hub_tools import Catalog, Discovery, HubTool, catalog_of
from playhead.client.names import ToolKey
from playhead.client.oauth import ShowUrl
from playhead.client.processing import ProcessedResult, process
from playhead.config.outputs import OutputStore, default_output_folder
from playhead.config.servers import ServerConfig, find_servers
from playhead.config.tools import (
    Resolution,
    ToolConfig,
    ToolConfigs,
    ToolConfigSources,
    ToolOverride,
    create_tool_id,
    default_sources,
)
from playhead.errors import ClosedError, ConfigError, PlayheadError, UsageError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.results.policy import DEFAULT_POLICY, Policy

Override = ToolConfig | ToolOverride


@asynccontextmanager
async def open_hub(
    servers: Path | str | Mapping[str, HubTarget] | None = None,
    *,
    names: Sequence[str] | None = None,
    tool_configs: ToolConfigs | ToolConfigSources | None = None,
    outputs: OutputStore | None = None,
    limits: Limits = DEFAULT_LIMITS,
    policy: Policy = DEFAULT_POLICY,
    show_url: ShowUrl | None = None,
    on_elicitation: OnElicitation | None = None,
) -> AsyncIterator[Hub]:
    """A hub for the servers of an `mcpServers` file (default: `./mcp.json`, then the user's), or for those of
    a mapping; nothing is connected yet.

    `names` takes some of them only. `tool_configs` are fixed ones, or where to read them (default: the file
    at the default place and the installed packages). `outputs` is where `save_output` saves (default: the
    user's data folder). `limits` and `policy` hold for every server; `show_url` and `on_elicitation` as for
    `connect`, for all of them: `on_elicitation` may be awaited for several servers at once. A `PlayheadError`
    that it raises makes its server fail, and anything else leaves the context.

    Raises `ConfigError` for a servers file that can't be read or isn't understood, as a whole: a slip in one
    entry is the user's to mend, and half of what was meant would run without a word.

    Leaving disconnects from all servers at once: together they take no longer than the slowest (4 s for a
    process that ends neither by itself nor on SIGTERM). Cancelling ends their processes at once. An error
    raised inside leaves the context as it is, not in a group.
    """
    targets: Mapping[str, HubTarget]
    if isinstance(servers, Mapping):
        targets = servers
    else:
        targets = find_servers(Path(servers) if servers is not None else None)
    for name in names or ():
        if name not in targets:
            near = get_close_matches(name, targets, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(targets) or '(none)'}"
            raise ConfigError(f"there is no server {name!r}; {hint}")
    with bare():
        async with trio.open_nursery() as nursery:
            hub = Hub(
                targets,
                names=tuple(targets) if names is None else tuple(names),
                nursery=nursery,
                tool_configs=tool_configs,
                outputs=outputs,
                limits=limits,
                policy=policy,
                show_url=show_url,
                on_elicitation=on_elicitation,
            )
            try:
                yield hub
            finally:
                hub.leave()


class Hub:
    """Made by `open_hub`; usable inside its context, from any number of tasks at once."""

    def __init__(
        self,
        targets: Mapping[str, HubTarget],
        *,
        names: Sequence[str],
        nursery: trio.Nursery,
        tool_configs: ToolConfigs | ToolConfigSources | None,
        outputs: OutputStore | None,
        limits: Limits,
        policy: Policy,
        show_url: ShowUrl | None,
        on_elicitation: OnElicitation | None,
    ) -> None:
        self._limits = limits
        self._sources = tool_configs
        self._configs: ToolConfigs | None = tool_configs if isinstance(tool_configs, ToolConfigs) else None
        self._outputs = outputs
        self._events = EventBoard()
        self._catalog = Catalog()
        self._closed = False
        # All names, also of servers that are left out here: they decide what a model name may be.
        self._entries: dict[str, ServerConfig | None] = {
            name: target if isinstance(target, ServerConfig) else None for name, target in targets.items()
        }
        self._servers = {
            name: HubServer(
                name,
                targets[name],
                nursery=nursery,
                limits=limits,
                policy=policy,
                show_url=show_url,
                on_elicitation=on_elicitation,
                changed=lambda state: self._events.tell(ServerStateChanged(state=state)),
                listed=self._listed,
            )
            for name in names
        }

    # --- what there is -----------------------------------------------------------------------------

    @property
    def states(self) -> Mapping[str, ServerState]:
        """Every server, in the file's order, with the reason for its state."""
        return MappingProxyType({name: server.state for name, server in self._servers.items()})

    @property
    def tools(self) -> tuple[HubTool, ...]:
        """What is offered now, by server in the file's order, as each lists it."""
        return self._catalog.tools

    @property
    def configs(self) -> ToolConfigs:
        """The tool configurations. Empty before `initialize`."""
        return self._configs if self._configs is not None else ToolConfigs()

    def events(self) -> trio.MemoryReceiveChannel[HubEvent]:
        """A channel of what happens from now on. It ends with the hub, keeps the newest 64 events for a slow
        reader, and costs nothing once it is closed."""
        return self._events.subscribe()

    # --- the flow ----------------------------------------------------------------------------------

    async def initialize(self, *, reload: bool = False) -> None:
        """Load the tool configurations. Done by itself before anything is connected; with `reload`, whenever
        they may have changed. Raises `ConfigError`; those that were loaded before stay."""
        if self._configs is not None and not reload:
            return
        if not isinstance(self._sources, ToolConfigs):
            sources = self._sources or default_sources()
            self._configs = await trio.to_thread.run_sync(lambda: sources.load(reload=reload))
        self._register()

    async def connect_to_server(self, name: str) -> ServerState:
        """Connect to one server and say how that went: `connected`, or `failed` with a reason.

        One that is connected is left as it is; one that was lost is connected to anew. Raises `UsageError`
        for an unknown name, `ConfigError` as `initialize`. Cancelled: the attempt goes on by itself, bounded
        by the limits; `disconnect_from_server` ends it.
        """
        await self.initialize()
        return await self._server(name).connect()

    async def connect_all(self) -> tuple[ServerState, ...]:
        """Connect to all at once, as `connect_to_server`; returns when each is connected or has failed."""
        servers = [self._server(name) for name in self._servers]
        await self.initialize()
        async with trio.open_nursery() as nursery:
            for server in servers:
                nursery.start_soon(server.connect)
        return tuple(self.states.values())

    async def disconnect_from_server(self, name: str) -> None:
        """Leave a server, and take its tools away. Not connected: does nothing. Its calls in flight fail.

        Cancelled: leaving goes on by itself. Raises `UsageError` for an unknown name.
        """
        await self._server(name).disconnect()

    async def discover_and_register_all_tools(self) -> Discovery:
        """List the tools of all connected servers at once, all pages.

        From here on each list is kept up to date as its server announces changes. A server that can't list
        its tools is among `Discovery.failed`; the others are not held up. Raises nothing of a server's.
        """
        await self.initialize()
        failed = await self._list(server for server in self._servers.values() if server.session is not None)
        configured = sum(tool.resolution.config is not None for tool in self.tools)
        return Discovery(tools=self.tools, configured=configured, failed=MappingProxyType(failed))

    # --- calling -----------------------------------------------------------------------------------

    def resolve(self, what: str | ToolKey) -> HubTool:
        """The tool that a model name, a tool id or a `(server, tool)` pair means, of those discovered.

        A text that is a model name is taken for one; ids are compared, never taken apart. Raises
        `UnknownToolError` (with names that come near), `UsageError` for an id that two tools share, and
        `ConnectError`, with the reason, where the server it would be of is not connected.
        """
        found = self._catalog.find(what)
        if found is not None:
            return found
        for server in self._servers.values():
            if _may_be_of(server, what):
                server.live_session()
        raise self._catalog.unknown(what)

    async def call_tool(
        self,
        tool: str | ToolKey | HubTool,
        arguments: Mapping[str, Any] | None = None,
        *,
        override: Override | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as in Session.call_tool
        on_progress: ProgressFnT | None = None,
    ) -> ProcessedResult:
        """Call a tool on the server it belongs to, and process what it answers.

        `tool` as for `resolve`; servers that are connected and whose tools weren't listed yet are asked
        first, the one that its id begins with before all others. `override` is this call's own
        configuration; `timeout` and `on_progress` as in `Session.call_tool`. Raises what `resolve` and
        `Session.call_tool` do, and nothing of what happens after the
        answer: that is told in the result.
        """
        if not isinstance(tool, HubTool):
            tool = await self._find(tool)
        server = self._server(tool.server)
        session = server.live_session()
        resolution = self._resolution(tool, override)
        try:
            result = await session.call_tool(
                tool.tool.name,
                arguments,
                timeout=timeout,
                on_progress=on_progress,
                policy=resolution.policy(session.policy),
            )
        except PlayheadError as error:
            server.note_failure(error)
            raise
        server.note_reached()
        return await self.process_tool_response(tool, arguments, result, override=override)

    async def process_tool_response(
        self,
        tool: HubTool,
        arguments: Mapping[str, Any] | None,
        result: CallResult,
        *,
        override: Override | None = None,
    ) -> ProcessedResult:
        """What the tool's configuration makes of `result`: its handler, then saving, then routing.

        Raises nothing but a cancellation: a handler that fails and a disk that is full are told in what this
        returns, with the result as it came.
        """
        if self._outputs is None:  # made when needed: looking for the folder looks at the environment
            self._outputs = OutputStore(default_output_folder(), limits=self._limits)
        return await process(
            tool.tool.name,
            arguments,
            result,
            resolution=self._resolution(tool, override),
            outputs=self._outputs,
            limits=self._limits,
        )

    def _resolution(self, tool: HubTool, override: Override | None) -> Resolution:
        if override is None:
            return tool.resolution
        return self.configs.resolve(
            tool.server, tool.tool.name, override=override, server_config=self._entries.get(tool.server)
        )

    async def _find(self, what: str | ToolKey) -> HubTool:
        unlisted = [
            server for server in self._servers.values() if server.session is not None and server.tools is None
        ]
        # The server that it is of by its name first: none that is slow holds up the calls to another.
        for asked in ([server for server in unlisted if _may_be_of(server, what)], unlisted):
            if self._catalog.find(what) is None:
                await self._list(asked)
        return self.resolve(what)

    async def _list(self, servers: Iterable[HubServer]) -> dict[str, str]:
        """List the tools of `servers` at once; those that can't, and why."""
        failed: dict[str, str] = {}

        async def discover(server: HubServer) -> None:
            try:
                await server.list_tools()
            except PlayheadError as error:
                failed[server.name] = str(error)

        async with trio.open_nursery() as nursery:
            for server in servers:
                nursery.start_soon(discover, server)
        return failed

    # --- inside ------------------------------------------------------------------------------------

    def _server(self, name: str) -> HubServer:
        if self._closed:
            raise ClosedError("the hub was closed; use it inside its context")
        if name not in self._servers:
            near = get_close_matches(name, self._servers, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(self._servers)}"
            raise UsageError(f"there is no server {name!r} in this hub; {hint}")
        return self._servers[name]

    def _listed(self, server: HubServer) -> None:
        self._register()
        self._events.tell(ToolsChanged(server=server.name, tools=len(server.tools or ())))

    def _register(self) -> None:
        listed = {name: server.tools for name, server in self._servers.items() if server.tools is not None}
        self._catalog = catalog_of(listed, servers=self._entries, configs=self.configs)

    def leave(self) -> None:
        """Begin to leave every server; the context's end waits for them."""
        self._closed = True
        for server in self._servers.values():
            server.close()
        self._events.close()


def _may_be_of(server: HubServer, what: str | ToolKey) -> bool:
    """Whether a tool that is meant by `what` can be of `server`; of no other, where a pair means it."""
    if isinstance(what, str):
        return what.startswith(create_tool_id(server.name, ""))
    return what[0] == server.name
