"""What a hub says of its servers: the state of each, and events when one changes."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

import trio

EVENTS_KEPT: Final = 64
"""Events that wait for a reader. A slower one loses the oldest; `Hub.states` always says what is."""


class ServerStatus(enum.StrEnum):
    """Where a server is on its way."""

    DISCONNECTED = "disconnected"
    """Not asked for yet, or left on purpose."""
    CONNECTING = "connecting"
    CONNECTED = "connected"
    FAILED = "failed"
    """No session came about; `connect_to_server` tries again."""
    LOST = "lost"
    """It ended, or can't be reached any more. Its tools stay offered: the next call connects anew where the
    servers file's `restart` allows, and `connect_to_server` does in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """One server of a hub."""

    name: str
    """As in the servers file."""
    status: ServerStatus
    reason: str
    """Why it is so, in words; empty where it is connected and its tools could be listed."""
    tools: int | None
    """How many it offers, without those that `allowed_tools` leaves out; None where they weren't listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStateChanged:
    """A server's status or reason is another one."""

    state: ServerState


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsChanged:
    """The tools of a server were listed anew, or went away with it; `Hub.tools` has those there are now."""

    server: str
    tools: int
    """How many it offers now."""


HubEvent = ServerStateChanged | ToolsChanged


class EventBoard:
    """Gives every event to every reader, and never waits for one."""

    def __init__(self) -> None:
        self._readers: list[tuple[trio.MemorySendChannel[HubEvent], trio.MemoryReceiveChannel[HubEvent]]] = []
        self._closed = False

    def subscribe(self) -> trio.MemoryReceiveChannel[HubEvent]:
        send, receive = trio.open_memory_channel[HubEvent](EVENTS_KEPT)
        if self._closed:
            send.close()
            return receive
        # A second end, to drop the oldest with.
        self._readers.append((send, receive.clone()))
        return receive

    def tell(self, event: HubEvent) -> None:
        for reader in list(self._readers):
            send, drop = reader
            if send.statistics().open_receive_channels == 1:  # only ours: nobody reads any more
                self._readers.remove(reader)
                send.close()
                drop.close()
                continue
            try:
                send.send_nowait(event)
            except trio.WouldBlock:
                drop.receive_nowait()
                send.send_nowait(event)

    def close(self) -> None:
        """Readers take what is waiting, then come to the end."""
        self._closed = True
        for send, drop in self._readers:
            send.close()
            drop.close()
        self._readers.clear()
