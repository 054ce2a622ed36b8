"""Which protocol era a server speaks, found without spending the handshake's time twice.

`auto` asks `server/discover` first (revision 2026-07-28) and falls back to `initialize`. The SDK's own
negotiation waits 10 s for the probe, the whole of our handshake allowance; here the probe may take a third of
it. A server that answers late is not lost: it answers `initialize`, or, having gone modern over the late
probe, refuses it with -32022, and is asked once more.
A server that *ends* on the unknown method is started again and given only `initialize` (see supervise.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION, DiscoverResult, ServerCapabilities
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from playhead.client.failures import from_answer, from_sdk
from playhead.client.link import Link
from playhead.errors import AccessDeniedError, HttpStatusError, ProtocolError, RemoteError, UsageError

PROBE_SHARE = 1 / 3
"""The probe's part of the handshake allowance: what is left is enough for an old server to start up."""


def check_mode(mode: str) -> None:
    """Raise `UsageError` unless `mode` is `auto`, `legacy` or a revision without a handshake."""
    if mode not in ("auto", "legacy", *MODERN_PROTOCOL_VERSIONS):
        allowed = ", ".join(("auto", "legacy", *MODERN_PROTOCOL_VERSIONS))
        raise UsageError(f"mode is {mode!r}; expected one of {allowed}")


async def negotiate(session: ClientSession, link: Link, *, mode: str, seconds: float, server: str) -> None:
    """Settle the revision on `session`. The caller bounds the whole.

    Raises `TransportError` where nothing came back, `AccessDeniedError` for HTTP 401 and 403, and
    `RemoteError` for a server that answered with no revision both sides know.
    """
    if mode == "legacy":
        await ask(session.initialize, link, method="initialize", server=server)
        return
    if mode != "auto":
        session.adopt(
            DiscoverResult(
                supported_versions=[mode],
                capabilities=ServerCapabilities(),
                result_type="complete",
                ttl_ms=0,
                cache_scope="public",
            )
        )
        return
    if await _probed(session, link, seconds=seconds * PROBE_SHARE, server=server):
        return
    try:
        await ask(session.initialize, link, method="initialize", server=server)
    except _RevisionRefusedError:
        await ask(session.discover, link, method="server/discover", server=server)


class _RevisionRefusedError(ProtocolError):
    """-32022: the server knows other revisions, and names them."""

    def __init__(self, message: str, *, legacy_offered: bool) -> None:
        super().__init__(message)
        self.legacy_offered = legacy_offered


async def _probed(session: ClientSession, link: Link, *, seconds: float, server: str) -> bool:
    """True when the server is modern and adopted; False when `initialize` is worth asking."""
    with trio.move_on_after(seconds):
        try:
            await ask(session.discover, link, method="server/discover", server=server)
        except _RevisionRefusedError as refused:
            if refused.legacy_offered:
                return False
            raise
        except AccessDeniedError:
            raise
        except (HttpStatusError, RemoteError):
            # An answer, though no modern one; some old servers answer an unknown method with a 500.
            return False
        return True
    return False


async def ask(question: Callable[[], Awaitable[object]], link: Link, *, method: str, server: str) -> None:
    """Run `question`, in which the SDK sends `method` and reads the answer itself; its errors become ours."""
    with link.ticket(method, take=False) as ticket:
        try:
            await question()
        except MCPError as error:
            if ticket.failure is not None:
                raise ticket.failure from None
            if ticket.answer_error is None:
                raise from_sdk(error, method=method, server=server, diagnosis="") from None
            if error.code == UNSUPPORTED_PROTOCOL_VERSION:
                raise _refusal(error, method=method, server=server) from None
            raise from_answer(ticket.answer_error, method=method, server=server) from None
        except ValidationError as error:
            raise ProtocolError(
                f"{server} answered {method} with a result that is none ({error.error_count()} fields wrong)"
            ) from None
        except RuntimeError as error:
            # The SDK's word for "no revision in common".
            raise ProtocolError(f"{server}: {error}") from None


def _refusal(error: MCPError, *, method: str, server: str) -> _RevisionRefusedError:
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    names = [name for name in supported if isinstance(name, str)] if isinstance(supported, list) else None
    return _RevisionRefusedError(
        f"{server} refused {method}: it knows the revisions {', '.join(names or ['(none named)'])}",
        legacy_offered=names is None or any(name in HANDSHAKE_PROTOCOL_VERSIONS for name in names),
    )
