"""The servers of other MCP clients: found in each file, without anything that may hold a key."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from playhead.config.clients import CLIENT_FILES, ClientServer, UnreadableFile, client_servers
from tests.e2e.command import playhead

SECRET = "sk-CANARY0123456789"
PATHS = {
    "linux": {"~": "", "~xdg": ".config", "~config": ".config"},
    "darwin": {"~": "", "~xdg": ".config", "~config": "Library/Application Support"},
    "win32": {"~": "", "~xdg": ".config", "~config": "AppData/Roaming", "~appdata": "AppData/Roaming"},
}
STDIO = {
    "command": f"/home/{SECRET}/bin/npx",
    "args": ["--key", SECRET, f"/path/{SECRET}"],
    "env": {"TOKEN": SECRET},
}
HTTP = {
    "url": f"https://user:{SECRET}@mcp.example.com:8443/{SECRET}/mcp?key={SECRET}",
    "headers": {"Authorization": f"Bearer {SECRET}"},
}


def written(suffix: str, key: str, servers: object) -> str:
    values = servers
    for part in reversed(key.split(".")):
        values = {"/some/project" if part == "*" else part: values}
    if suffix == ".toml":
        return (
            f'[{key}.a]\ncommand = "{STDIO["command"]}"\nargs = ["{SECRET}"]\n'
            f'[{key}.b]\nurl = "{HTTP["url"]}"\n'
        )
    return json.dumps(values)  # YAML too


def write(home: Path, platform: str, path: str, text: str) -> None:
    root, _, rest = path.partition("/")
    file = home / PATHS[platform][root] / rest
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def found(home: Path, platform: str = "linux") -> list[ClientServer | UnreadableFile]:
    return [*client_servers(environment={"HOME": str(home)}, platform=platform)]


def one(home: Path, path: str, text: str) -> list[tuple[str, str, str]]:
    write(home, "linux", path, text)
    servers = found(home)
    assert all(isinstance(it, ClientServer) for it in servers)
    return [(it.name, it.transport, it.target) for it in servers if isinstance(it, ClientServer)]


@pytest.mark.parametrize("platform", PATHS)
def test_each_file_of_each_system_is_read_and_shows_no_secret(platform: str, tmp_path: Path) -> None:
    for client, keys, path in CLIENT_FILES:
        if path.partition("/")[0] not in PATHS[platform]:
            continue
        for key in keys.split("|"):
            home = tmp_path / str(len([*tmp_path.iterdir()]))
            write(home, platform, path, written(Path(path).suffix, key, {"a": STDIO, "b": HTTP}))
            servers = found(home, platform)
            assert [asdict(it) for it in servers] == [
                {"client": client, "name": "a", "transport": "stdio", "target": "npx"},
                {
                    "client": client,
                    "name": "b",
                    "transport": "http",
                    "target": "https://mcp.example.com:8443",
                },
            ]


@pytest.mark.parametrize(
    ("entry", "transport", "target"),
    [
        ({"type": "local", "command": ["npx", "-y", SECRET]}, "stdio", "npx"),
        ({"command": {"path": "C:\\Users\\me\\node.exe", "args": [SECRET]}}, "stdio", "node.exe"),
        ({"command": f"npx -y server --key={SECRET}"}, "stdio", "npx"),
        ({"command": f"KEY={SECRET} npx"}, "stdio", "…"),
        ({"httpUrl": "http://localhost:3000/mcp"}, "http", "http://localhost:3000"),
        ({"serverUrl": "https://a.example/sse", "type": "SSE"}, "sse", "https://a.example"),
        ({"type": "remote", "uri": "wss://a.example/ws"}, "websocket", "wss://a.example"),
        ({"url": f"https://${{HOST}}/{SECRET}", "transport": "sse"}, "sse", ""),
        ({"url": f"{SECRET} https://["}, "http", ""),
        ({"type": "builtin", "env": {"K": SECRET}}, "other", ""),
        ({"command": [], "url": 3}, "other", ""),
        (SECRET, "other", ""),
    ],
)
def test_entries_of_any_form_show_the_program_or_the_origin(
    entry: object, transport: str, target: str, tmp_path: Path
) -> None:
    assert one(tmp_path, "~/.cursor/mcp.json", json.dumps({"mcpServers": {"x": entry}})) == [
        ("x", transport, target)
    ]


def test_the_json_of_editors_has_comments_and_trailing_commas(tmp_path: Path) -> None:
    text = (
        '\ufeff{ // servers, of mine\n "servers": { /* one */ "a//b": {"url": "http://x.example/,}",},\n},}'
    )
    assert one(tmp_path, "~config/Code/User/mcp.json", text) == [("a//b", "http", "http://x.example")]


def test_a_list_of_servers_has_their_names(tmp_path: Path) -> None:
    text = "mcpServers:\n  - name: a\n    command: uvx\n  - 3\n"
    assert one(tmp_path, "~/.continue/config.yaml", text) == [("a", "stdio", "uvx")]


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("~/.cursor/mcp.json", "{", "invalid JSON"),
        ("~/.cursor/mcp.json", "[" * 100_000, "invalid JSON"),
        ("~/.codex/config.toml", "[", "invalid TOML"),
        ("~/.continue/config.yaml", "a: [", "invalid YAML"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(
    path: str, text: str, reason: str, tmp_path: Path
) -> None:
    write(tmp_path, "linux", path, text)
    (problem,) = found(tmp_path)
    assert isinstance(problem, UnreadableFile)
    assert (problem.path, problem.reason) == (path, reason)


def test_without_its_library_a_yaml_file_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    write(tmp_path, "linux", "~xdg/goose/config.yaml", "extensions: {}")
    (problem,) = found(tmp_path)
    assert isinstance(problem, UnreadableFile)
    assert "pip install pyyaml" in problem.reason


def test_values_of_another_form_are_no_servers(tmp_path: Path) -> None:
    for text in ("3", "[]", "{}", '{"mcpServers": null}', '{"mcpServers": 3}', '{"projects": [1]}'):
        assert one(tmp_path, "~/.claude.json", text) == []


def test_the_command_shows_four_columns_and_nothing_else(tmp_path: Path) -> None:
    write(
        tmp_path, "linux", "~/.cursor/mcp.json", written(".json", "mcpServers", {"a\x1b": STDIO, "b": HTTP})
    )
    done = playhead("discover", HOME=str(tmp_path), XDG_CONFIG_HOME="")
    assert done.code == 0
    assert [line.split() for line in done.stdout.decode().splitlines()] == [
        ["Cursor", "a\\x1b", "stdio", "npx"],
        ["Cursor", "b", "http", "https://mcp.example.com:8443"],
    ]
    assert done.stderr == "2 servers of other clients; none was started\n"
    report = playhead("discover", "--json", HOME=str(tmp_path), XDG_CONFIG_HOME="")
    assert [it["target"] for it in report.json["servers"]] == ["npx", "https://mcp.example.com:8443"]
    assert SECRET not in report.stdout.decode() + done.stdout.decode()
