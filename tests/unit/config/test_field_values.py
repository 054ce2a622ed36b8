"""Every field of every configuration reader, held against `true`, `"1"`, `"yes"`, `1.0` and `null`.

The table was written from the readers that came before pydantic: no value changes its meaning quietly, as lax
validation would turn `"7"` into 7 and `"yes"` into true.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from playhead.check.expectations import load_expectations
from playhead.config.outputs.record import BrokenRecordError, load
from playhead.config.servers import load_servers
from playhead.config.tools import load_tool_configs
from playhead.errors import ConfigError

VALUES = (True, "1", "yes", 1.0, None)
SHA = "0" * 64

TABLE: list[tuple[str, Any, str]] = [
    (
        "servers",
        {"mcpServers": {"it": {"command": "run"}}},
        """
        mcpServers                                     -----
        mcpServers.it                                  -----
        mcpServers.it.command                          -++--
        mcpServers.it.args                             ----+
        mcpServers.it.env                              -----
        mcpServers.it.cwd                              -++-+
        mcpServers.it.url                              ----+
        mcpServers.it.transport                        ----+
        mcpServers.it.type                             ----+
        mcpServers.it.headers                          -----
        mcpServers.it.auth                             -----
        mcpServers.it.timeout                          ---++
        mcpServers.it.tls                              -----
        mcpServers.it.playhead                         -----
        """,
    ),
    (
        "servers",
        {"mcpServers": {"it": {"command": "run", "args": ["a"], "env": {"A": "b"}}}},
        """
        mcpServers.it.args.0                           -++--
        mcpServers.it.env.A                            -++--
        """,
    ),
    (
        "servers",
        {"mcpServers": {"it": {"url": "http://host/mcp"}}},
        """
        mcpServers.it.headers.A                        -++--
        mcpServers.it.tls.verify                       +---+
        mcpServers.it.tls.authorities                  -++-+
        mcpServers.it.tls.certificate                  -++-+
        mcpServers.it.playhead.range_strategy          ----+
        mcpServers.it.playhead.page_size_bytes         ----+
        mcpServers.it.playhead.in_flight               ----+
        mcpServers.it.playhead.restart                 ----+
        mcpServers.it.playhead.meta_key                -++-+
        mcpServers.it.playhead.range_tool              -++-+
        mcpServers.it.playhead.poll_tool               -++-+
        mcpServers.it.playhead.extra_arguments         -----
        mcpServers.it.playhead.extra_arguments.a       +++++
        mcpServers.it.playhead.send_result_to_ai       +---+
        mcpServers.it.playhead.allowed_tools           ----+
        mcpServers.it.playhead.trust_structured        +---+
        mcpServers.it.playhead.mode                    -++-+
        mcpServers.it.playhead.allow_origins           ----+
        mcpServers.it.playhead.allow_paths             ----+
        mcpServers.it.auth.type                        -----
        """,
    ),
    (
        "servers",
        {
            "mcpServers": {
                "it": {
                    "url": "http://host/mcp",
                    "tls": {"certificate": "c", "key": "k"},
                    "playhead": {"allowed_tools": ["a"], "allow_origins": ["a"]},
                }
            }
        },
        """
        mcpServers.it.tls.key                          -++-+
        mcpServers.it.playhead.allowed_tools.0         -++--
        mcpServers.it.playhead.allow_origins.0         -++--
        """,
    ),
    (
        "servers",
        {"mcpServers": {"it": {"url": "http://host/mcp", "auth": {"type": "bearer", "token": "t"}}}},
        """
        mcpServers.it.auth.token                       -++--
        mcpServers.it.auth.type                        -----
        """,
    ),
    (
        "servers",
        {"mcpServers": {"it": {"url": "http://host/mcp", "auth": {"type": "oauth", "client_id": "i"}}}},
        """
        mcpServers.it.auth.scopes                      ----+
        mcpServers.it.auth.client_id                   -++-+
        mcpServers.it.auth.client_secret               -++-+
        mcpServers.it.auth.client_name                 -++-+
        mcpServers.it.auth.client_metadata_url         ----+
        mcpServers.it.auth.redirect_port               ----+
        mcpServers.it.auth.issuer                      ----+
        """,
    ),
    (
        "servers",
        {
            "mcpServers": {
                "it": {
                    "url": "http://host/mcp",
                    "auth": {"type": "client_credentials", "client_id": "i", "client_secret": "s"},
                }
            }
        },
        """
        mcpServers.it.auth.client_id                   -++--
        mcpServers.it.auth.client_secret               -++--
        mcpServers.it.auth.scopes                      ----+
        mcpServers.it.auth.issuer                      ----+
        """,
    ),
    (
        "tools",
        {},
        """
        tools                                          -----
        dynamic                                        -----
        modules                                        ----+
        approvals                                      -----
        """,
    ),
    (
        "tools",
        {"tools": {"a__b": {}}},
        """
        tools.a__b                                     -----
        tools.a__b.server                              ----+
        tools.a__b.tool                                ----+
        tools.a__b.description                         -++-+
        tools.a__b.system_prompt                       -++-+
        tools.a__b.save_output                         +---+
        tools.a__b.send_result_to_ai                   +---+
        tools.a__b.response_handler                    ----+
        tools.a__b.metadata                            -----
        tools.a__b.metadata.a                          +++++
        tools.a__b.trust_structured                    +---+
        tools.a__b.turn                                ----+
        tools.a__b.stops                               ----+
        """,
    ),
    (
        "tools",
        {"tools": {"a__b": {"stops": ["audio"]}}, "dynamic": {"servers": ["a"]}},
        """
        tools.a__b.stops.0                             -----
        dynamic.servers                                -----
        dynamic.servers.0                              -++--
        dynamic.save_output                            +---+
        dynamic.send_result_to_ai                      +---+
        dynamic.metadata                               -----
        """,
    ),
    (
        "tools",
        {"approvals": {"rules": [{"server": "a", "tool": "b", "action": "deny"}]}},
        """
        approvals.default                              ----+
        approvals.rules                                -----
        approvals.rules.0                              -----
        approvals.rules.0.server                       -++-+
        approvals.rules.0.tool                         -++-+
        approvals.rules.0.action                       -----
        """,
    ),
    (
        "expectations",
        {"calls": [{"tool": "a"}]},
        """
        calls                                          -----
        calls.0                                        -----
        calls.0.tool                                   -++--
        calls.0.arguments                              -----
        calls.0.is_error                               +---+
        calls.0.error_code                             ----+
        calls.0.content_types                          ----+
        calls.0.patterns                               ----+
        calls.0.max_latency_ms                         ---++
        """,
    ),
    (
        "expectations",
        {"calls": [{"tool": "a", "content_types": ["text"], "patterns": ["a"]}]},
        """
        calls.0.content_types.0                        -++--
        calls.0.patterns.0                             -++--
        calls.0.arguments.a                            +++++
        """,
    ),
    (
        "record",
        {
            "tool_id": "a",
            "arguments": {"a": 1},
            "time": "2026-01-01T00:00:00+00:00",
            "mime": "text/plain",
            "sha256": SHA,
            "size_bytes": 1,
            "file": f"{SHA}.txt",
            "tags": ["a"],
            "title": "t",
            "metadata": {},
        },
        """
        tool_id                                        -++--
        arguments                                      ----+
        time                                           -----
        mime                                           -++--
        sha256                                         -----
        size_bytes                                     -----
        file                                           -----
        tags                                           -----
        title                                          -++-+
        metadata                                       ----+
        tags.0                                         -++--
        arguments.a                                    +++++
        metadata.a                                     +++++
        """,
    ),
]
"""Reader, a valid document, and per key path whether each of `VALUES` in that place is accepted."""

CASES = [
    (reader, document, *line.split())
    for reader, document, lines in TABLE
    for line in lines.strip().splitlines()
]


def read(reader: str, document: object, folder: Path) -> None:
    path = folder / "it.json"
    path.write_text(json.dumps(document))
    match reader:
        case "servers":
            load_servers(path, environment={})
        case "tools":
            load_tool_configs(path)
        case "expectations":
            load_expectations(path)
        case "record":
            load(path.read_bytes(), id="it", sidecar_path=path)


def replaced(document: Any, path: str, value: object) -> Any:
    changed = copy.deepcopy(document)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    inner = changed
    for part in parents:
        inner = inner.setdefault(part, {}) if isinstance(inner, dict) else inner[part]
    inner[last] = value
    return changed


def test_the_table_has_every_field() -> None:
    assert len(CASES) == 106


@pytest.mark.parametrize(("reader", "document", "path", "verdicts"), CASES)
def test_a_field_accepts_what_it_always_accepted(
    tmp_path: Path, reader: str, document: Any, path: str, verdicts: str
) -> None:
    found = ""
    for value in VALUES:
        try:
            read(reader, replaced(document, path, value), tmp_path)
            found += "+"
        except (ConfigError, BrokenRecordError):
            found += "-"
    assert found == verdicts
