"""Many servers as one: `open_hub` connects to them and offers all their tools."""

from __future__ import annotations

from playhead.client.hub.catalog import Discovery, HubTool
from playhead.client.hub.hub import Hub, open_hub
from playhead.client.hub.server import (
    HubEvent,
    HubTarget,
    ServerState,
    ServerStateChanged,
    ServerStatus,
    ToolsChanged,
)

__all__ = [
    "Discovery",
    "Hub",
    "HubEvent",
    "HubTarget",
    "HubTool",
    "ServerState",
    "ServerStateChanged",
    "ServerStatus",
    "ToolsChanged",
    "open_hub",
]
