"""The error that a caller sees for a JSON-RPC error answer."""

from __future__ import annotations

import pytest
from mcp_types import ErrorData

from playhead.client.transports.failures import from_answer, lost_session
from playhead.errors import RangePastEndError, ServerError, SessionLostError


@pytest.mark.parametrize(
    ("message", "data", "shown"),
    [
        ("tool call failed", "tool 'flute' not found", "tool call failed: tool 'flute' not found"),
        ("invalid params", "invalid params: url is missing", "invalid params: url is missing"),
        ("invalid params: url is missing", "url is missing", "invalid params: url is missing"),
        ("out of tape", "", "out of tape"),
        ("out of tape", " \n", "out of tape"),
        ("out of tape", {"detail": "side B"}, "out of tape"),
        ("", "out of tape", "out of tape"),
    ],
)
def test_a_reason_in_the_data_is_shown_after_the_message(message: str, data: object, shown: str) -> None:
    error = from_answer(ErrorData(code=-32603, message=message, data=data), method="tools/call", server="go")
    assert str(error) == f"go answered tools/call with error -32603: {shown}"
    assert isinstance(error, ServerError)
    assert (error.said, error.data) == (message, data)


def test_a_long_reason_is_cut() -> None:
    error = from_answer(
        ErrorData(code=-32603, message="failed", data="x" * 9000), method="tools/call", server="go"
    )
    assert len(str(error)) < 600


def test_a_range_past_the_end_may_be_said_in_the_data() -> None:
    answer = ErrorData(code=-32603, message="resource read failed", data="416 range not satisfiable")
    assert isinstance(from_answer(answer, method="resources/read", server="go"), RangePastEndError)
    assert not isinstance(from_answer(answer, method="tools/call", server="go"), RangePastEndError)


def test_a_lost_session_may_be_said_in_the_data() -> None:
    answer = ErrorData(code=-32600, message="invalid request", data="session not found")
    assert isinstance(lost_session(answer, server="go"), SessionLostError)
