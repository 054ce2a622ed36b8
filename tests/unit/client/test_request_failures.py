"""The error that a caller sees for a JSON-RPC error answer."""

from __future__ import annotations

import errno
import os
import socket

import httpx2
import pytest

from playhead.client.session.connection import connect_error
from playhead.client.transports.http_errors import unreachable
from playhead.client.transports.rpc_errors import from_answer, lost_session
from playhead.errors import (
    ConnectionLostError,
    PlayheadError,
    RangePastEndError,
    ServerError,
    SessionLostError,
)
from playhead.protocol.messages import RpcError


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
    error = from_answer(RpcError(code=-32603, message=message, data=data), method="tools/call", server="go")
    assert str(error) == f"go answered tools/call with error -32603: {shown}"
    assert isinstance(error, ServerError)
    assert (error.server_message, error.data) == (message, data)


def test_a_long_reason_is_cut() -> None:
    error = from_answer(
        RpcError(code=-32603, message="failed", data="x" * 9000), method="tools/call", server="go"
    )
    assert len(str(error)) < 600


def test_a_range_past_the_end_may_be_reported_in_the_data() -> None:
    answer = RpcError(code=-32603, message="resource read failed", data="416 range not satisfiable")
    assert isinstance(from_answer(answer, method="resources/read", server="go"), RangePastEndError)
    assert not isinstance(from_answer(answer, method="tools/call", server="go"), RangePastEndError)


def test_a_lost_session_may_be_reported_in_the_data() -> None:
    answer = RpcError(code=-32600, message="invalid request", data="session not found")
    assert isinstance(lost_session(answer, server="go"), SessionLostError)


URL = "http://127.0.0.1:1/mcp"


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "secret"), "connection refused"),
        (
            caused(OSError("all failed"), ExceptionGroup("all", [OSError(errno.EHOSTUNREACH, "x")])),
            os.strerror(errno.EHOSTUNREACH).lower(),
        ),
        (caused(ValueError("x"), socket.gaierror(-2, "Name or service not known")), "no such host"),
        (httpx2.ConnectTimeout("x"), "timed out"),
        (ValueError("secret"), "the connection failed"),
    ],
)
def test_a_failure_to_connect_gives_the_systems_reason_and_no_librarys_words(
    error: Exception, reason: str
) -> None:
    said = unreachable(URL, error)
    assert said == f"could not connect to {URL}: {reason}; check that the server is running there"


@pytest.mark.parametrize(
    ("cause", "server", "said"),
    [
        (
            ConnectionLostError(f"could not connect to {URL}: refused"),
            URL,
            f"could not connect to {URL}: refused",
        ),
        (
            ConnectionLostError(f"could not connect to {URL}: refused"),
            f"radio ({URL})",
            f"could not connect to radio ({URL}): refused",
        ),
        (
            ConnectionLostError("could not connect to https://login: refused"),
            URL,
            f"could not connect to {URL}: could not connect to https://login: refused",
        ),
        (ServerError(f"{URL} answered no", code=1), URL, f"could not connect: {URL} answered no"),
        (ConnectionLostError("it ended"), URL, f"could not connect to {URL}: it ended"),
        (ConnectionLostError(""), URL, f"could not connect to {URL}: "),
    ],
)
def test_an_error_while_connecting_names_the_server_once(
    cause: PlayheadError, server: str, said: str
) -> None:
    assert str(connect_error(cause, server)) == said
