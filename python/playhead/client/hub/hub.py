"""The hub: many servers at once, with all their tools under unique names.

    async with open_hub(Path("mcp.json")) as hub:
        await hub.connect_all()                           # a dead server is a state, not an error
        await hub.discover_and_register_all_tools()
        done = await hub.call_tool("music__play", {"title": "So What"})

Each server is a task in the hub's nursery (server.py). All known tools form one immutable catalog
(catalog.py), rebuilt when a list changes. Results are processed in call_results/processing.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import trio

from playhead.client.call_results.call_result import CallResult
from playhead.client.call_results.processing import ProcessedResult, Saving, process
from playhead.client.connector import connect
from playhead.client.hub.catalog import Catalog, Discovery, HubTool, ToolKey, catalog_of
from playhead.client.hub.server import (
    HubEvent,
    HubServer,
    HubTarget,
    ServerState,
    ServerStateChanged,
    ToolsChanged,
)
from playhead.client.oauth import ShowUrl
from playhead.client.session.elicitation import OnElicitation
from playhead.client.session.requests import OnMedia, OnProgress
from playhead.concurrency import Broadcast, require_trio, unwrap_exception_group
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
from playhead.escaping import did_you_mean
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.results.plan import DEFAULT_POLICY, Policy
from playhead.stream.source import Playable

Override = ToolConfig | ToolOverride

EVENTS_QUEUED: Final = 64
"""Limits the events queued per subscriber. A slow subscriber loses the oldest; `Hub.states` is always
current."""


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
    """Open a hub for the servers of a mapping or an `mcpServers` file (default: `./mcp.json`, then the
    user's).

    Nothing is connected yet. `names` selects some of the servers. `tool_configs` are the tool configurations
    or their sources (default: the file at the default place and the installed packages). `outputs` is the
    store for `save_output` (default: the user's data directory). `limits` and `policy` apply to every server;
    `show_url` and `on_elicitation` are as for `connect`, but `on_elicitation` may be awaited for several
    servers at once. A `PlayheadError` that it raises makes its server fail; any other exception is raised
    from the context.

    Raises `ConfigError` if the servers file can't be read or has an invalid entry. The valid entries are not
    used then, because that would hide the mistake.

    Leaving disconnects from all servers at once and takes as long as the slowest (4 s for a process that ends
    neither by itself nor on SIGTERM). Cancelling kills their processes at once. An error raised inside is
    raised as it is, not in a group.
    """
    require_trio("open_hub")
    targets: Mapping[str, HubTarget]
    if isinstance(servers, Mapping):
        targets = servers
    else:
        targets = find_servers(Path(servers) if servers is not None else None)
    for name in names or ():
        if name not in targets:
            raise ConfigError(f"unknown server {name!r}; {_hint(name, targets)}")
    with unwrap_exception_group():
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
                hub.close()


class Hub:
    """The servers of `open_hub`; usable inside its context, from any number of tasks at once."""

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
        self._events = Broadcast[HubEvent](EVENTS_QUEUED)
        self._catalog = Catalog()
        self._closed = False
        # All names, including names of servers left out here: model names depend on them.
        self._entries: dict[str, ServerConfig | None] = {
            name: target if isinstance(target, ServerConfig) else None for name, target in targets.items()
        }
        self._servers = {
            name: HubServer(
                name,
                targets[name],
                nursery=nursery,
                connect=partial(
                    connect,
                    limits=limits,
                    policy=policy,
                    show_url=show_url,
                    on_elicitation=on_elicitation,
                ),
                changed=lambda state: self._events.send(ServerStateChanged(state=state)),
                listed=self._listed,
            )
            for name in names
        }

    # --- state -------------------------------------------------------------------------------------

    @property
    def states(self) -> Mapping[str, ServerState]:
        """The state of every server with its reason, in the order of the file."""
        return MappingProxyType({name: server.state for name, server in self._servers.items()})

    @property
    def tools(self) -> tuple[HubTool, ...]:
        """The known tools: by server in the order of the file, and within a server in the order of its
        list."""
        return self._catalog.tools

    @property
    def configs(self) -> ToolConfigs:
        """The tool configurations. Empty before `initialize`."""
        return self._configs if self._configs is not None else ToolConfigs()

    def events(self) -> trio.MemoryReceiveChannel[HubEvent]:
        """Return a channel of events from now on. It holds the newest 64 events for a slow reader, and ends
        with the hub, or when it is closed."""
        return self._events.subscribe()

    # --- connecting and listing --------------------------------------------------------------------

    async def initialize(self, *, reload: bool = False) -> None:
        """Load the tool configurations. It is called automatically before the first connection; call it with
        `reload` when they may have changed. After a `ConfigError` the earlier ones stay in use."""
        if self._configs is not None and not reload:
            return
        if not isinstance(self._sources, ToolConfigs):
            sources = self._sources or default_sources()
            self._configs = await trio.to_thread.run_sync(lambda: sources.load(reload=reload))
        self._register()

    async def connect_to_server(self, name: str) -> ServerState:
        """Connect to one server. Return its state: `connected`, or `failed` with a reason.

        A connected server stays connected; a lost one is reconnected. Raises `UsageError` for an
        unknown name, and `ConfigError` as `initialize`. Cancelled: the attempt continues in the background,
        bounded by the limits; `disconnect_from_server` ends it.
        """
        await self.initialize()
        return await self._server(name).connect()

    async def connect_all(self) -> tuple[ServerState, ...]:
        """Connect to all servers at once, as `connect_to_server`. Return when each is connected or has
        failed."""
        servers = [self._server(name) for name in self._servers]
        await self.initialize()
        async with trio.open_nursery() as nursery:
            for server in servers:
                nursery.start_soon(server.connect)
        return tuple(self.states.values())

    async def disconnect_from_server(self, name: str) -> None:
        """Disconnect from a server and remove its tools; its calls in flight fail. Idempotent.

        Cancelled: disconnecting continues in the background. Raises `UsageError` for an unknown name.
        """
        await self._server(name).disconnect()

    async def discover_and_register_all_tools(self) -> Discovery:
        """List the tools of all connected servers at once, all pages.

        From then on each list is updated when its server announces changes. A server that can't list its
        tools is in `Discovery.failed`; the others are not delayed. Errors of servers are not raised.
        """
        await self.initialize()
        failed = await self._list(server for server in self._servers.values() if server.session is not None)
        configured = sum(tool.resolution.config is not None for tool in self.tools)
        return Discovery(tools=self.tools, configured=configured, failed=MappingProxyType(failed))

    # --- calling -----------------------------------------------------------------------------------

    def resolve(self, what: str | ToolKey) -> HubTool:
        """Return the known tool with this model name, tool id or `(server, tool)` pair.

        A string is looked up as a model name first; ids are compared, never split. Raises `UnknownToolError`
        (with similar names), `UsageError` for an id that two tools share, and `ConnectError`, with the
        reason, if the tool's server is not connected.
        """
        tool = self._catalog.find(what)
        if tool is not None:
            return tool
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
        on_progress: OnProgress | None = None,
        on_media: OnMedia | None = None,
    ) -> ProcessedResult:
        """Call a tool on its server and process the result.

        `tool` is as for `resolve`; connected servers whose tools have not been listed are listed first,
        beginning with the one whose name the id starts with. `override` is the configuration of this call;
        `timeout`, `on_progress` and `on_media` are as in `Session.call_tool`. Raises what `resolve` and
        `Session.call_tool` raise; errors after the answer are reported in the result.
        """
        if not isinstance(tool, HubTool):
            tool = await self._find(tool)
        server = self._server(tool.server)
        session = server.live_session()
        saving = self._saving(tool, arguments, override)

        async def play(media: Playable) -> None:
            assert on_media is not None
            await on_media(saving.teed(media))

        try:
            result = await session.call_tool(
                tool.tool.name,
                arguments,
                timeout=timeout,
                on_progress=on_progress,
                on_media=None if on_media is None else play,
                policy=saving.resolution.policy(session.policy),
            )
        except PlayheadError as error:
            server.note_failure(error)
            raise
        server.note_reached()
        return await process(tool.tool.name, result, saving=saving, limits=self._limits)

    async def process_tool_response(
        self,
        tool: HubTool,
        arguments: Mapping[str, Any] | None,
        result: CallResult,
        *,
        override: Override | None = None,
    ) -> ProcessedResult:
        """Apply the tool's configuration to `result`: its handler, then saving, then routing.

        Raises nothing but a cancellation: a failed handler or a full disk is reported in the returned value,
        with the unchanged result.
        """
        saving = self._saving(tool, arguments, override)
        return await process(tool.tool.name, result, saving=saving, limits=self._limits)

    def _saving(
        self, tool: HubTool, arguments: Mapping[str, Any] | None, override: Override | None
    ) -> Saving:
        if self._outputs is None:  # created on demand: finding the directory reads the environment
            self._outputs = OutputStore(default_output_folder(), limits=self._limits)
        return Saving(self._outputs, self._resolution(tool, override), arguments)

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
        # List the server that the name suggests first, so that slow servers do not delay the call.
        for group in ([server for server in unlisted if _may_be_of(server, what)], unlisted):
            if self._catalog.find(what) is None:
                await self._list(group)
        return self.resolve(what)

    async def _list(self, servers: Iterable[HubServer]) -> dict[str, str]:
        """List the tools of `servers` at once. Returns the failures with their reasons."""
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

    # --- internals ---------------------------------------------------------------------------------

    def _server(self, name: str) -> HubServer:
        if self._closed:
            raise ClosedError("the hub was closed; use it inside its context")
        if name not in self._servers:
            raise UsageError(f"unknown server {name!r} in this hub; {_hint(name, self._servers)}")
        return self._servers[name]

    def _listed(self, server: HubServer) -> None:
        self._register()
        self._events.send(ToolsChanged(server=server.name, tools=len(server.tools or ())))

    def _register(self) -> None:
        listed = {name: server.tools for name, server in self._servers.items() if server.tools is not None}
        silent = {name for name, server in self._servers.items() if server.has_default_hints}
        self._catalog = catalog_of(listed, servers=self._entries, configs=self.configs, silent=silent)

    def close(self) -> None:
        """Begin to disconnect from every server; the context waits for them."""
        self._closed = True
        for server in self._servers.values():
            server.close()
        self._events.close()


def _hint(name: str, known: Collection[str]) -> str:
    return did_you_mean(name, known, f"known servers: {', '.join(known) or '(none)'}")


def _may_be_of(server: HubServer, what: str | ToolKey) -> bool:
    """Return whether `what` may name a tool of `server`."""
    if isinstance(what, str):
        return what.startswith(create_tool_id(server.name, ""))
    return what[0] == server.name
