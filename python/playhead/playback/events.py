"""Events to any number of listeners, none of whom can slow the player."""

from __future__ import annotations

from contextlib import suppress

import trio

from playhead.playback.state import PlayerEvent

CAPACITY = 64
"""Events that a listener may lag behind. An item has about six."""


class EventHub:
    """Bounded channels that lose their oldest event when full.

    The oldest, since the newest state is what a listener needs to catch up with; each `StateChange` carries
    the whole state.
    """

    def __init__(self) -> None:
        self._listeners: list[
            tuple[trio.MemorySendChannel[PlayerEvent], trio.MemoryReceiveChannel[PlayerEvent]]
        ] = []
        self._closed = False

    def listen(self) -> trio.MemoryReceiveChannel[PlayerEvent]:
        """A new listener's end, from now on. Close it when done; it ends when the player closes."""
        send, receive = trio.open_memory_channel[PlayerEvent](CAPACITY)
        if self._closed:
            send.close()
        else:
            # Our own clone of the receiving end is what takes the oldest event out.
            self._listeners.append((send, receive.clone()))
        return receive

    def tell(self, event: PlayerEvent) -> None:
        for send, own in list(self._listeners):
            if own.statistics().open_receive_channels == 1:
                self._listeners.remove((send, own))
                send.close()
                own.close()
                continue
            if send.statistics().current_buffer_used == CAPACITY:
                with suppress(trio.WouldBlock):
                    own.receive_nowait()
            send.send_nowait(event)

    def close(self) -> None:
        self._closed = True
        for send, own in self._listeners:
            send.close()
            own.close()
        self._listeners.clear()
