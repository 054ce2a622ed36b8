"""Configuration readers: whatever a file holds, it is read or it is a `ConfigError` that names the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from playhead.check.expectations import load_expectations
from playhead.config.outputs.record import BrokenRecordError, load
from playhead.config.servers import load_servers
from playhead.config.tools import load_approval_policy, load_tool_configs
from playhead.errors import ConfigError

NAMES = """
mcpServers it command args env cwd url transport type headers auth timeout tls playhead verify key
token scopes client_id client_secret client_metadata_url redirect_port issuer certificate
authorities range_strategy page_size_bytes in_flight restart extra_arguments allowed_tools mode
allow_origins compat tools dynamic approvals rules default server tool action a__b stops turn
metadata response_handler calls arguments patterns error_code content_types max_latency_ms tool_id
time mime sha256 size_bytes file tags title
"""
KEYS = st.sampled_from(NAMES.split())
WORDS = st.sampled_from(
    [
        "http://h/x",
        "ws://h",
        "oauth",
        "bearer",
        "${NOT_SET}",
        "${HOME}",
        "~",
        "allow",
        "a.py:f",
        "(",
        "\ud800",
    ]
)
NUMBERS = st.sampled_from([0, -1, 1, 1.0, 10**400, 1e308, float("inf"), float("nan"), True, None])
LEAVES = st.one_of(WORDS, NUMBERS, st.text(max_size=5), st.integers(), st.floats())
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)
ENTRY = st.dictionaries(KEYS, VALUES, max_size=6)


def record(path: Path) -> object:
    return load(path.read_bytes(), id="it", sidecar_path=path)


READERS: dict[str, tuple[Callable[[Path], object], Callable[[Any], Any]]] = {
    "servers": (load_servers, lambda entry: {"mcpServers": {"it": entry}}),
    "auth": (load_servers, lambda entry: {"mcpServers": {"it": {"url": "http://h/", "auth": entry}}}),
    "tools": (load_tool_configs, lambda entry: {"tools": {"a__b": entry}}),
    "approvals": (load_approval_policy, lambda entry: {"approvals": {"rules": [entry]}}),
    "expectations": (load_expectations, lambda entry: {"calls": [entry]}),
    "record": (record, lambda entry: entry),
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(entry=ENTRY, whole=VALUES, nested=st.booleans())
@example(entry={}, whole=10**400, nested=False)
@example(entry={"metadata": {"a": float("inf")}}, whole=None, nested=True)
def test_a_document_is_read_or_refused(tmp_path: Path, entry: Any, whole: Any, nested: bool) -> None:
    for name, (read, wrapped) in READERS.items():
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(wrapped(entry) if nested else whole))
        refused(read, path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.binary(max_size=60) | st.text(alphabet='{}[]":,=.#\n\\u12e-', max_size=40).map(str.encode))
@example(data=b"[" * 200_000)
@example(data=b'{"a":' * 500 + b"1" + b"}" * 500)
@example(data=b"1" * 5000)
@example(data=b'{"mcpServers": 1, "mcpServers": 2}')
def test_bytes_are_read_or_refused(tmp_path: Path, data: bytes) -> None:
    for name, (read, _) in READERS.items():
        for suffix in ("json", "toml"):
            path = tmp_path / f"{name}.{suffix}"
            path.write_bytes(data)
            refused(read, path)


def refused(read: Callable[[Path], object], path: Path) -> None:
    failure: ConfigError | None = None
    try:
        read(path)
    except ConfigError as error:
        failure = error
    except BrokenRecordError:
        pass
    if failure is not None:
        assert str(path) in str(failure)
        assert not isinstance(failure.__context__, ValidationError), "it holds the file's values"
