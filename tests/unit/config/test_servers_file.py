"""Servers files and targets: what is understood, and what each mistake is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from playhead.config.directories import user_directory
from playhead.config.servers import (
    DEFAULT_FILE,
    ServerConfig,
    find_servers,
    from_url,
    load_servers,
    resolve_target,
)
from playhead.config.trust import Trust
from playhead.errors import ConfigError

ENVIRONMENT = {"TOKEN": "hush", "HOME": "/home/me", "BRACED": "${TOKEN}"}


def written(folder: Path, entry: object, *, name: str = "music") -> Path:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {name: entry}}), encoding="utf-8")
    return path


def loaded(folder: Path, entry: object) -> ServerConfig:
    return load_servers(written(folder, entry), environment=ENVIRONMENT)["music"]


def refused(folder: Path, entry: object) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, entry)
    return str(caught.value)


@pytest.mark.requirement("HUB-08")
def test_a_stdio_entry_keeps_its_arguments_apart(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        {"command": "node", "args": ["server.js", "two words"], "env": {"KEY": "${TOKEN}"}, "cwd": "/x"},
    )
    assert config.command == ("node", "server.js", "two words")
    assert config.env == {"KEY": "hush"}
    assert config.cwd == "/x"
    assert config.restart == "once"


@pytest.mark.requirement("HUB-08")
def test_an_http_entry_with_everything_playhead_knows(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        {
            "url": "https://host/mcp",
            "transport": "http",
            "headers": {"X-Key": "${TOKEN}"},
            "auth": {"type": "bearer", "token": "${TOKEN}"},
            "timeout": 5,
            "tls": {"verify": False},
            "playhead": {
                "range_strategy": "meta",
                "page_size_bytes": 4096,
                "in_flight": 2,
                "restart": "always",
                "meta_key": "k",
                "extra_arguments": {"a": 1, "b": "${TOKEN}"},
                "send_result_to_ai": False,
                "allowed_tools": ["x"],
                "mode": "legacy",
            },
        },
    )
    assert config.headers == {"X-Key": "hush", "Authorization": "Bearer hush"}
    assert (config.timeout_seconds, config.tls_verify, config.mode) == (5.0, False, "legacy")
    assert (config.range_strategy, config.page_size_bytes, config.in_flight) == ("meta", 4096, 2)
    assert config.extra_arguments == {"a": 1, "b": "hush"}
    assert (config.restart, config.meta_key) == ("always", "k")
    assert (config.send_result_to_ai, config.allowed_tools) == (False, ("x",))


def test_the_switch_for_truncation_is_refused_and_said_to_be_needless(tmp_path: Path) -> None:
    said = refused(tmp_path, {"url": "http://x/", "playhead": {"compat": "reference"}})
    assert "music.playhead.compat: is no longer needed" in said
    assert "remove it" in said


def test_a_repr_shows_no_argument_header_or_environment_value() -> None:
    config = ServerConfig(
        name="x", command=("run", "--key=hush"), env={"KEY": "hush"}, headers={"Authorization": "hush"}
    )
    assert "hush" not in repr(config)
    assert "hush" not in repr(from_url("https://me:hush@host/mcp?key=hush"))


@pytest.mark.requirement("HUB-09")
def test_variables_expand_once_and_home_only_in_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    config = loaded(tmp_path, {"command": "~/bin/run", "args": ["${BRACED}", "a~b", "$TOKEN", "~"]})
    assert config.command == ("/home/me/bin/run", "${TOKEN}", "a~b", "$TOKEN", "/home/me")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "expected either `command` or `url`, got no key at all"),
        ({"comand": "x", "args": []}, "expected either `command` or `url`, got args, comand"),
        ({"command": "x", "url": "http://y"}, "either `command` or `url`, got both"),
        ({"command": ["x"]}, "mcpServers.music.command: expected a string, got an array"),
        ({"command": "x", "args": "y"}, "mcpServers.music.args: expected an array, got a string"),
        ({"command": "x", "args": [1]}, "mcpServers.music.args[0]: expected a string, got a number"),
        ({"command": "x", "env": {"A": "${NOPE}"}}, "mcpServers.music.env.A: the environment variable NOPE"),
        (
            {"command": "x", "playhead": {"in_fligth": 2}},
            "playhead.in_fligth: is not a setting; did you mean",
        ),
        (
            {"command": "x", "playhead": {"in_flight": 0}},
            "playhead.in_flight: expected a number above 0",
        ),
        ({"command": "x", "playhead": {"restart": "maybe"}}, "expected one of never, once, always"),
        (
            {"command": "x", "playhead": {"allow_paths": ["music"]}},
            "expected the absolute path of a directory",
        ),
        ({"command": "x", "transport": "http"}, "music.transport: 'http' does not go with `command`"),
        ({"url": "ws://"}, "expected a host after ws://"),
        ({"url": "ws://host/mcp", "transport": "http"}, "does not go with a `url` that begins with ws:"),
        ({"url": "http://host/mcp", "type": "ws"}, "does not go with a `url` that begins with http:"),
        (
            {"command": "x", "transport": "websocket"},
            "does not go with `command`; remove it, or use 'stdio'",
        ),
        (
            {"url": "wss://host/mcp", "auth": {"type": "oauth"}},
            "auth.type: expected 'bearer' for a WebSocket",
        ),
        ({"url": "http://host", "headers": {"A": "b\nc"}}, "holds a control character"),
        ({"url": "http://host", "auth": {"type": "basic"}}, "bearer"),
        ("x", "mcpServers.music: expected an object, got a string"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_key(tmp_path: Path, entry: object, said: str) -> None:
    message = refused(tmp_path, entry)
    assert said in message
    assert str(tmp_path) in message


@pytest.mark.parametrize(
    ("text", "said"), [("{", "not valid JSON"), ("[]", "expected an object"), ("{}", "mcpServers")]
)
def test_an_invalid_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said) as caught:
        load_servers(path)
    assert str(path) in str(caught.value)


def test_a_target_is_a_name_then_a_url_then_a_command(tmp_path: Path) -> None:
    path = written(tmp_path, {"command": "named"}, name="http://looks-like-a-url")
    assert resolve_target("http://looks-like-a-url", path).command == ("named",)
    assert resolve_target("https://host/mcp", path).url == "https://host/mcp"
    assert resolve_target("node 'my server.js' stdio", path).command == ("node", "my server.js", "stdio")


@pytest.mark.parametrize("transport", [{}, {"transport": "ws"}, {"transport": "websocket"}, {"type": "ws"}])
def test_a_websocket_server_is_named_by_its_url(tmp_path: Path, transport: dict[str, str]) -> None:
    entry = {"url": "WSS://host/mcp?key=secret", "auth": {"type": "bearer", "token": "t"}, **transport}
    config = load_servers(written(tmp_path, entry))["music"]
    assert config.url == "WSS://host/mcp?key=secret"
    assert config.headers == {"Authorization": "Bearer t"}
    assert resolve_target("ws://host/mcp").url == "ws://host/mcp"
    assert "secret" not in repr(config)


def test_a_misspelt_name_of_a_given_file_is_not_run_as_a_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'music'"):
        resolve_target("musci", written(tmp_path, {"command": "x"}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the server is empty"),
        ("'open", "not a command line"),
        ("wss://", "host"),
        ("ws://h:99999/x", "port from 1 to 65535"),
        ("http://", "host"),
        (f"ws://{'a' * 64}.example/mcp", "parts of 1 to 63 characters"),
        ("https://a..b/mcp", "parts of 1 to 63 characters"),
    ],
)
def test_a_target_that_means_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve_target(text, environment={"XDG_CONFIG_HOME": "/nowhere"})


def test_the_users_server_wins_over_one_of_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "config" / "playhead").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    said: list[str] = []
    trust = Trust(environment=environment, everything=True, notice=said.append)
    written(tmp_path / "here", {"command": "project"})
    assert resolve_target("music", environment=environment, trust=trust).command == ("project",)
    assert find_servers(environment=environment, trust=trust)["music"].command == ("project",)
    assert not said
    written(tmp_path / "config" / "playhead", {"command": "user"})
    assert resolve_target("music", environment=environment, trust=trust).command == ("user",)
    assert find_servers(environment=environment, trust=trust)["music"].command == ("user",)
    assert len(said) == 1
    assert "music is the server of your own servers file, not that of" in said[0]
    assert resolve_target("music", tmp_path / "here" / "mcp.json").command == ("project",)


@pytest.mark.parametrize(
    "url",
    [
        "https://host:port/?key=${TOKEN}",
        "https://me:${TOKEN}@host:port/",
        "https://me:${TOKEN}/x@host/",
        "http:///?k=${TOKEN}",
        "http://host\u0000/#${TOKEN}",
    ],
)
def test_a_url_that_is_none_is_named_by_its_key_and_without_secrets(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match=r"mcp\.json.*music\.url: ") as caught:
        loaded(tmp_path, {"url": url})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("text", ["ftp://x/", "file:///srv/server.py", "WSSS://host/mcp"])
def test_a_url_of_another_kind_is_not_taken_for_a_command(text: str) -> None:
    with pytest.raises(ConfigError, match="expected http://, https://, ws:// or wss://"):
        resolve_target(text, environment={"XDG_CONFIG_HOME": "/nowhere"})


def test_a_command_may_have_a_url_among_its_words() -> None:
    found = resolve_target("bridge ftp://x/", environment={"XDG_CONFIG_HOME": "/nowhere"})
    assert found.command == ("bridge", "ftp://x/")


def test_a_misspelt_server_of_the_users_file_is_suggested(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": str(tmp_path)}
    path = user_directory(environment) / DEFAULT_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": {"home": {"command": "x"}}}))
    with pytest.raises(ConfigError, match="no server or program 'hom'; did you mean 'home'"):
        resolve_target("hom", environment=environment)
