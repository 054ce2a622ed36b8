"""The session's end of the way in."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

Received = SessionMessage | Exception
"""What the SDK reads from a transport."""


async def deliver_all(
    deliver: MemoryObjectSendStream[Received], answers: Iterable[types.JSONRPCMessage]
) -> None:
    """Give `answers` to the session; where it is gone, to nobody."""
    for answer in answers:
        try:
            await deliver.send(SessionMessage(answer))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return


async def end_session(
    deliver: MemoryObjectSendStream[Received],
    answers: Iterable[types.JSONRPCMessage],
    outgoing: MemoryObjectReceiveStream[SessionMessage],
) -> None:
    """The connection is lost: give the last `answers` and the stream's end, then take what is still sent.

    Requests that wait for room in the queue are among the answered ones; their senders must not wait on.
    Returns when the session has closed its end.
    """
    await deliver_all(deliver, answers)
    deliver.close()
    async for _ in outgoing:
        pass
