"""The faults of servers on both ways of a request: past the SDK's session, and through it.

Every test of the modules below runs twice, with the same verdicts; the second time is one of the slow tests.
"""

from __future__ import annotations

from typing import Any

import pytest

from playhead.client.session.sdk_connection import Connection

BOTH_WAYS = {
    "test_client_bounds",
    "test_http_faults",
    "test_http_limits",
    "test_http_statuses",
    "test_refused_forms",
    "test_restarts",
    "test_stdio_sessions",
    "test_stream_faults",
    "test_websocket_faults",
    "test_websocket_sessions",
}
WAYS = [
    pytest.param("direct"),
    pytest.param("session", marks=pytest.mark.slow("the same tests a second time")),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in BOTH_WAYS:
        metafunc.fixturenames.append("way")
        metafunc.parametrize("way", WAYS, indirect=True)


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """`session` forces every request through the SDK's session."""
    if request.param == "session":
        make = Connection.__init__

        def make_without_direct(self: Connection, **given: Any) -> None:
            make(self, **given)
            self._direct = None

        monkeypatch.setattr(Connection, "__init__", make_without_direct)
    return str(request.param)
