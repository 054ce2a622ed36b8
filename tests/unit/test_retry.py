"""The table of what is tried again."""

from __future__ import annotations

import pytest

from playhead.errors import (
    Base64Error,
    ConnectionLostError,
    HttpRefusedError,
    HttpStatusError,
    LimitError,
    PlayheadError,
    ServerEndedError,
    ServerError,
    ToolFailedError,
)
from playhead.retry import is_retryable, read_failure, was_not_begun


def test_a_status_is_retryable_unless_a_repetition_would_be_wrong_again() -> None:
    assert [status for status in range(300, 505) if is_retryable(status)] == [408, 425, 429, *range(500, 505)]
    assert is_retryable(529)


def test_only_a_request_that_was_not_begun_may_be_repeated_whatever_it_does() -> None:
    statuses = (408, 425, 429, 500, 502, 503, 504)
    assert [it for it in statuses if was_not_begun(HttpStatusError("later", status=it))] == [429, 503]
    assert not was_not_begun(ConnectionLostError("lost"))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionLostError("lost"), "lost"),
        (HttpStatusError("later", status=503), "lost"),
        (ServerEndedError("gone"), "final"),
        (HttpRefusedError("no", status=404), "refused"),
        (ServerError("oops", code=-32603), "lost"),
        (ServerError("no such parameter", code=-32602), "refused"),
        (ServerError("slow down", code=429), "lost"),
        (ServerError("no", code=404), "refused"),
        (ToolFailedError("no"), "refused"),
        (Base64Error("bad", kind="byte", index=3, offset=0), "damaged"),
        (LimitError("too much", limit="block_bytes", allowed=1, got=2), "final"),
    ],
)
def test_the_error_of_a_read(error: PlayheadError, kind: str) -> None:
    assert read_failure(error).kind == kind
