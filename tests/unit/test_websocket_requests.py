"""The requests of one connection, without the connection."""

from __future__ import annotations

import mcp_types as types

from playhead.servers.websocket_memory import Account, Pool
from playhead.servers.websocket_requests import RequestLimits, Requests


def test_subscriptions_hold_no_end_up_whether_in_flight_or_waiting() -> None:
    limits = RequestLimits(json_depth=8, json_values=8, in_flight=2, waiting=9, waiting_bytes=1000)
    requests = Requests(limits, Account(Pool(1 << 30)))
    methods = ["subscriptions/listen", "tools/list", "subscriptions/listen"]
    for number, method in enumerate(methods):
        request = types.JSONRPCRequest(jsonrpc="2.0", id=number, method=method)
        assert requests.take(request, size_bytes=10, cost_bytes=10) is None
    while requests.next_due() is not None:
        pass
    assert not requests.none_left
    assert requests.done(1)
    assert requests.none_left
