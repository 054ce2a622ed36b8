"""Negotiate the protocol revision without spending the handshake's time twice.

`auto` sends `server/discover` first (revision 2026-07-28) and falls back to `initialize`. The SDK's own
negotiation waits 10 s for the probe, the whole of our handshake allowance; here the probe may take a third of
it. A server that answers late is not lost: it answers `initialize`, or, having switched to the new revision
on the late probe, refuses it with -32022 and is asked once more.
A server that *exits* on the unknown method is started again and sent only `initialize` (supervisor.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION, DiscoverResult, ServerCapabilities
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from playhead.client.session.response_tap import ResponseTap
from playhead.client.transports.outcomes import from_answer, from_sdk
from playhead.errors import AccessDeniedError, HttpStatusError, ProtocolError, RemoteError, UsageError

PROBE_SHARE = 1 / 3
"""The probe's share of the handshake allowance. The rest is enough for an old server to start."""


def check_mode(mode: str) -> None:
    """Raise `UsageError` unless `mode` is `auto`, `legacy` or a revision without a handshake."""
    if mode not in ("auto", "legacy", *MODERN_PROTOCOL_VERSIONS):
        allowed = ", ".join(("auto", "legacy", *MODERN_PROTOCOL_VERSIONS))
        raise UsageError(f"expected mode to be one of {allowed}, got {mode!r}")


async def negotiate(
    session: ClientSession, tap: ResponseTap, *, mode: str, seconds: float, server: str
) -> None:
    """Agree on a revision for `session`. The caller sets a deadline for the whole.

    Raises `TransportError` if no answer arrived, `AccessDeniedError` for HTTP 401 and 403, and `RemoteError`
    if both sides have no revision in common.
    """
    if mode == "legacy":
        await run_in_sdk(session.initialize, tap, method="initialize", server=server)
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
    if await _probed(session, tap, seconds=seconds * PROBE_SHARE, server=server):
        return
    try:
        await run_in_sdk(session.initialize, tap, method="initialize", server=server)
    except _RevisionRefusedError:
        await run_in_sdk(session.discover, tap, method="server/discover", server=server)


class _RevisionRefusedError(ProtocolError):
    """-32022: the server supports other revisions and names them."""

    def __init__(self, message: str, *, legacy_offered: bool) -> None:
        super().__init__(message)
        self.legacy_offered = legacy_offered


async def _probed(session: ClientSession, tap: ResponseTap, *, seconds: float, server: str) -> bool:
    """True if the server answered the probe; False if `initialize` is worth trying."""
    with trio.move_on_after(seconds):
        try:
            await run_in_sdk(session.discover, tap, method="server/discover", server=server)
        except _RevisionRefusedError as refused:
            if refused.legacy_offered:
                return False
            raise
        except AccessDeniedError:
            raise
        except (HttpStatusError, RemoteError):
            # An answer all the same; some old servers answer an unknown method with a 500.
            return False
        return True
    return False


async def run_in_sdk(
    call: Callable[[], Awaitable[object]], tap: ResponseTap, *, method: str, server: str
) -> None:
    """Run `call`, in which the SDK sends `method` and reads the answer itself; translate its errors."""
    with tap.pending(method, take=False) as pending:
        try:
            await call()
        except MCPError as error:
            if pending.failure is not None:
                raise pending.failure from None
            if pending.answer_error is None:
                raise from_sdk(error, method=method, server=server, diagnosis="") from None
            if error.code == UNSUPPORTED_PROTOCOL_VERSION:
                raise _refusal(error, method=method, server=server) from None
            raise from_answer(pending.answer_error, method=method, server=server) from None
        except ValidationError as error:
            raise ProtocolError(
                f"{server} returned an invalid {method} result (invalid fields: {error.error_count()})"
            ) from None
        except RuntimeError as error:
            # The SDK's error for "no revision in common".
            raise ProtocolError(f"{server}: {error}") from None


def _refusal(error: MCPError, *, method: str, server: str) -> _RevisionRefusedError:
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    names = [name for name in supported if isinstance(name, str)] if isinstance(supported, list) else None
    return _RevisionRefusedError(
        f"{server} refused {method}: it supports the revisions {', '.join(names or ['(none named)'])}",
        legacy_offered=names is None or any(name in HANDSHAKE_PROTOCOL_VERSIONS for name in names),
    )
