"""A session tells its page cache which server it is, and with whom it may share."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp_types import Annotations, ResourceLink

from playhead.cache import MemoryCache
from playhead.client.call_results.call_result import as_media
from playhead.client.connector import _credentials, _machine
from playhead.client.session.shared_reads import SessionReads
from playhead.config.servers import ServerConfig, server_identity

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


# --- which server it is -------------------------------------------------------------------------------------


def test_a_server_is_its_url_or_command_and_never_its_name() -> None:
    assert server_identity(replace(URL, name="home")) == "https://music.example/mcp"
    assert server_identity(ServerConfig(name="home")) is None, "an object in this process"
    assert server_identity(ServerConfig(name="home", command=("/a", "b"), cwd="/x")) == [["/a", "b"], "/x"]


def test_a_command_is_the_program_that_it_finds_and_the_directory_that_it_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "music").write_text("#!/bin/sh")
        (tmp_path / folder / "music").chmod(0o755)
    monkeypatch.chdir(tmp_path / "a")
    named = ServerConfig(command=("music",))
    found = {}
    for folder in ("a", "b"):
        monkeypatch.setenv("PATH", str(tmp_path / folder))
        found[folder] = server_identity(named)
        assert found[folder] == [[str(tmp_path / folder / "music")], str(tmp_path / "a")]
        assert found[folder] == server_identity(replace(named, env={"PATH": str(tmp_path / folder)}))
        assert server_identity(replace(named, command=("./music",), cwd=str(tmp_path / folder))) == [
            [str(tmp_path / folder / "music")],
            str(tmp_path / folder),
        ]
    assert found["a"] != found["b"]


@pytest.mark.parametrize(
    ("config", "is_local"),
    [
        (URL, False),
        (ServerConfig(url="http://192.168.1.5:3001/mcp"), False),
        (ServerConfig(url="http://127.0.0.1:3001/mcp"), True),
        (ServerConfig(url="ws://localhost:3001/mcp"), True),
        (ServerConfig(url="http://[::1]:3001/mcp"), True),
        (ServerConfig(command=("server",)), True),
    ],
)
def test_a_command_and_a_loopback_url_are_another_server_on_another_machine(
    config: ServerConfig, is_local: bool
) -> None:
    assert (_machine(config) is not None) is is_local


ETAG, DIGEST, DATED = '"1"', "sha256 ab", "modified 2026-11-01T00:00:00Z size 5"


def key(
    validator: str,
    *,
    server: object = "http://127.0.0.1:3001/mcp",
    resource: object = "x",
    machine: str | None,
) -> str:
    """The key of a resource in a shared cache; of the session's own without a validator."""
    session = SessionReads(cache=MemoryCache(), server=server, credentials="", machine=machine, nonce="")
    return session.places(server=None, resource=resource, validator=validator, scope="public")[0].key


@pytest.mark.parametrize("validator", [ETAG, DIGEST])
@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:{}/mcp",
        "ws://localhost:{}/mcp",
        "http://[::1]:{}/a.mp3",
        "http://127.0.0.1:{}",
        "http://127.0.0.1:{}?a=b",
    ],
)
def test_ports_of_loopback_count_for_nothing_under_an_entity_tag_or_a_digest(
    validator: str, address: str
) -> None:
    one, other = address.format(3001), address.format(40404)
    assert key(validator, server=one, machine="m") == key(validator, server=other, machine="m")
    here, there = (["read", url, {"url": url}, json.dumps([url])] for url in (one, other))
    assert key(validator, resource=here, machine="m") == key(validator, resource=there, machine="m")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://127.0.0.1:3001/a", "http://127.0.0.1:3001/b"),
        ("http://127.0.0.1:3001/a", "http://127.0.0.2:3001/a"),
        ("http://192.168.1.5:3001/a", "http://192.168.1.5:3002/a"),
        ("http://127.0.0.1.example:3001/a", "http://127.0.0.1.example:3002/a"),
        ("http://127.0.0.1:3001@music.example/a", "http://127.0.0.1:3002@music.example/a"),
    ],
)
def test_everything_else_of_an_address_counts(one: str, other: str) -> None:
    assert key(ETAG, resource=one, machine="m") != key(ETAG, resource=other, machine="m")


@pytest.mark.parametrize(
    ("validator", "machine"), [("", "m"), (DATED, "m"), (ETAG, None), (DIGEST, None), (DATED, None)]
)
def test_a_port_counts_without_an_entity_tag_and_for_a_server_elsewhere(
    validator: str, machine: str | None
) -> None:
    one, other = "http://127.0.0.1:3001/a", "http://127.0.0.1:3002/a"
    assert key(validator, resource=one, machine=machine) != key(validator, resource=other, machine=machine)


@pytest.mark.parametrize(("validator", "shares"), [(ETAG, True), (DIGEST, True), (DATED, False)])
def test_machines_share_what_only_they_can_reach_by_its_bytes_alone(validator: str, shares: bool) -> None:
    assert (key(validator, machine="one") == key(validator, machine="other")) is shares


# --- which version it is ------------------------------------------------------------------------------------


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
    assert as_media(link, streams=streams).validator == validator
