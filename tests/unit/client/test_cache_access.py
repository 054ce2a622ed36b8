"""A session tells its page cache which server it is, and with whom it may share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx2
import pytest
from mcp.server.mcpserver import MCPServer
from mcp_types import Annotations, ResourceLink

from playhead.client.call_results.call_result import linked
from playhead.client.connector import _credentials, _identity
from playhead.config.servers import ServerConfig

URL = ServerConfig(url="https://music.example/mcp")
TOKEN = replace(URL, headers={"Authorization": "Bearer a-token"})


def test_a_plain_url_and_a_plain_command_have_no_credentials() -> None:
    assert _credentials(URL, None) == ""
    assert _credentials(ServerConfig(command=("server",)), None) == ""
    assert _credentials(replace(URL, headers={"User-Agent": "x", "Accept": "y"}), None) == ""


@pytest.mark.parametrize(
    "other",
    [
        URL,
        replace(URL, headers={"Authorization": "Bearer b-token"}),
        replace(URL, headers={"X-Api-Key": "a-token"}),
        ServerConfig(command=("server",), env={"USER": "a-token"}),
        ServerConfig(url="https://music.example/mcp?key=a-token"),
        ServerConfig(url="https://me:a-token@music.example/mcp"),
    ],
)
def test_other_credentials_have_another_name(other: ServerConfig) -> None:
    assert _credentials(other, None) != _credentials(TOKEN, None)
    assert other is URL or _credentials(other, None), "these are credentials too"


def test_the_same_credentials_have_the_same_name_which_tells_nothing() -> None:
    name = _credentials(TOKEN, None)
    assert name == _credentials(replace(TOKEN, name="other"), None)
    assert name is not None
    assert "a-token" not in name


def test_credentials_that_change_have_no_name() -> None:
    assert _credentials(URL, httpx2.BasicAuth("me", "word")) is None
    assert _credentials(replace(URL, auth=httpx2.BasicAuth("me", "word")), None) is None
    assert _credentials(replace(URL, tls_certificate="me.pem"), None) is None


def test_the_password_of_the_cache_is_not_a_credential_of_the_server() -> None:
    assert _credentials(replace(URL, cache="valkey://:word@cache.example"), None) == ""


def test_a_server_is_its_url_or_command_and_an_object_is_nobody() -> None:
    assert _identity(URL) == "https://music.example/mcp"
    assert _identity(ServerConfig(command=("a", "b"), cwd="/x")) == [("a", "b"), "/x"]
    assert _identity(MCPServer("x")) is None


@pytest.mark.parametrize(
    ("about", "validator"),
    [
        ({}, ""),
        ({"size": 5}, ""),
        ({"annotations": Annotations(last_modified="2026-11-01T00:00:00Z")}, ""),
        (
            {"size": 5, "annotations": Annotations(last_modified="2026-11-01T00:00:00Z")},
            "modified 2026-11-01T00:00:00Z size 5",
        ),
        ({"size": 5, "_meta": {"playhead/etag": '"1"'}}, '"1"'),
        ({"_meta": {"other/etag": '"1"'}}, '"1"'),
        ({"_meta": {"playhead/etag": 'W/"1"'}}, ""),
        ({"_meta": {"playhead/etag": 7}}, ""),
        ({"_meta": {"example.com/sha256": "ab"}}, "sha256 ab"),
        ({"_meta": {"a/sha256": "ab", "playhead/etag": '"1"'}}, '"1"'),
    ],
)
def test_the_version_that_a_link_names(about: dict[str, Any], validator: str) -> None:
    link = ResourceLink(type="resource_link", uri="x:song", name="song", **about)
    streams: Any = None
    assert linked(link, streams=streams).validator == validator
