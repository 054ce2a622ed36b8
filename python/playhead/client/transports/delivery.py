"""The session's end of the way in."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectSendStream
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
