"""Is the server there, and does it shake hands as the specification says?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from playhead.check.connecting import SessionTarget
from playhead.check.results import CheckKind, TestDraft, TestResult
from playhead.errors import ConnectError

CONNECT: Final = CheckKind(
    name="connection.connect",
    title="The server can be reached and completes the handshake",
    level="must",
    source="https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle",
)

KINDS: Final = (CONNECT,)


def unreachable(error: ConnectError) -> TestResult:
    """The test of a server that no session came about with."""
    draft = TestDraft(subject="connection", title="connect")
    draft.failed(CONNECT, str(error))
    return draft.done()


async def probe_connection(target: SessionTarget, found: Callable[[TestResult], None]) -> None:
    """Judge the connection that stands, and what else connecting can be asked."""
    draft = TestDraft(subject="connection", title="connect")
    draft.passed(CONNECT)
    found(draft.done())
