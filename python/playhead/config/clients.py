"""The servers in the configuration files of other MCP clients.

A `ClientServer` has only the name, the transport, and the name of the program or the origin of the URL,
because arguments, environment, headers and paths may hold secrets. Nothing is started.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PureWindowsPath
from typing import Any, Final, NamedTuple

from playhead.redaction import LEFT_OUT
from playhead.web_address import WebAddress

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""Limits a client's file. It is large because Claude Code stores its history in the same file."""


class ClientFile(NamedTuple):
    """The file in which a client stores its servers."""

    client: str
    key: str
    """The keys that lead to the servers, joined by dots; `*` is any key. `|` separates two such places."""
    path: str
    """The path. Its first part is `~` (the home directory) or another key of `_roots`."""


_VS_CODE: Final = "~config/Code/User"
_SETTINGS_OF_CLINE: Final = f"{_VS_CODE}/globalStorage/saoudrizwan.claude-dev/settings"
_SETTINGS_OF_ROO: Final = f"{_VS_CODE}/globalStorage/rooveterinaryinc.roo-cline/settings"
CLIENT_FILES: Final = (
    ClientFile("Claude Code", "mcpServers|projects.*.mcpServers", "~/.claude.json"),
    ClientFile("Claude Desktop", "mcpServers", "~config/Claude/claude_desktop_config.json"),
    ClientFile("Cline", "mcpServers", f"{_SETTINGS_OF_CLINE}/cline_mcp_settings.json"),
    ClientFile("Codex", "mcp_servers", "~/.codex/config.toml"),
    ClientFile("Continue", "mcpServers", "~/.continue/config.json"),
    ClientFile("Continue", "mcpServers", "~/.continue/config.yaml"),
    ClientFile("Copilot CLI", "mcpServers", "~/.copilot/mcp-config.json"),
    ClientFile("Cursor", "mcpServers", "~/.cursor/mcp.json"),
    ClientFile("Gemini CLI", "mcpServers", "~/.gemini/settings.json"),
    ClientFile("goose", "extensions", "~xdg/goose/config.yaml"),
    ClientFile("goose", "extensions", "~appdata/Block/goose/config/config.yaml"),
    ClientFile("Kiro", "mcpServers", "~/.kiro/settings/mcp.json"),
    ClientFile("LM Studio", "mcpServers", "~/.lmstudio/mcp.json"),
    ClientFile("opencode", "mcp", "~xdg/opencode/opencode.json"),
    ClientFile("opencode", "mcp", "~xdg/opencode/opencode.jsonc"),
    ClientFile("Qwen Code", "mcpServers", "~/.qwen/settings.json"),
    ClientFile("Roo Code", "mcpServers", f"{_SETTINGS_OF_ROO}/mcp_settings.json"),
    ClientFile("VS Code", "servers", f"{_VS_CODE}/mcp.json"),
    ClientFile("VS Code", "mcp.servers", f"{_VS_CODE}/settings.json"),
    ClientFile("Windsurf", "mcpServers", "~/.codeium/windsurf/mcp_config.json"),
    ClientFile("Zed", "context_servers", "~xdg/zed/settings.json"),
    ClientFile("Zed", "context_servers", "~appdata/Zed/settings.json"),
)
_PROGRAM_KEYS: Final = ("command", "cmd")
_URL_KEYS: Final = ("url", "httpUrl", "serverUrl", "uri")
_SCHEMES: Final = frozenset({"http", "https", "ws", "wss"})
_COMMENT: Final = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA: Final = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])')


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientServer:
    """A server of another client."""

    client: str
    name: str
    transport: str
    """`stdio`, `http`, `sse`, `websocket`, or `other` for an entry without a program and a URL."""
    target: str
    """The program's name, or the origin of the URL; empty if the entry has neither, or an invalid URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableFile:
    """A file that exists and could not be read."""

    client: str
    path: str
    """The path, with `~` for the home directory."""
    reason: str


def client_servers(
    *, environment: Mapping[str, str] | None = None, platform: str = sys.platform
) -> Iterator[ClientServer | UnreadableFile]:
    """Read every file of `CLIENT_FILES` that exists. Blocks."""
    roots = _roots(os.environ if environment is None else environment, platform)
    for client, key, path in CLIENT_FILES:
        root, _, rest = path.partition("/")
        if root not in roots:
            continue
        place, home = roots[root] / rest, roots["~"]
        shown = f"~/{place.relative_to(home)}" if place.is_relative_to(home) else str(place)
        try:
            with place.open("rb") as file:
                values = _parse(file.read(MAX_FILE_BYTES), place.suffix)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except ImportError:
            reason = "YAML needs PyYAML, which is not installed (pip install pyyaml)"
            yield UnreadableFile(client=client, path=shown, reason=reason)
        except OSError as error:
            yield UnreadableFile(client=client, path=shown, reason=error.strerror or str(error))
        except (ValueError, RecursionError):
            yield UnreadableFile(client=client, path=shown, reason=f"invalid {place.suffix[1:].upper()}")
        else:
            for keys in key.split("|"):
                for name, entry in _entries_below(values, keys.split(".")):
                    yield _client_server(client, str(name), entry if isinstance(entry, Mapping) else {})


def _roots(environment: Mapping[str, str], platform: str) -> dict[str, Path]:
    """Return the directories of settings by their names in `ClientFile.path`."""
    home = Path(environment.get("HOME") or environment.get("USERPROFILE") or Path.home())
    xdg = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    roots = {"~": home, "~xdg": xdg, "~config": xdg}
    if platform == "darwin":
        roots["~config"] = home / "Library" / "Application Support"
    elif platform == "win32":
        roots["~config"] = Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
        roots["~appdata"] = roots["~config"]
    return roots


def _parse(data: bytes, suffix: str) -> object:
    """Parse a file's content. Raises `ValueError`, and `ImportError` for YAML without its library."""
    text = data.decode("utf-8-sig")
    if suffix == ".toml":
        return tomllib.loads(text)
    if suffix == ".yaml":
        yaml: Any = import_module("yaml")
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError("invalid YAML") from error
    for pattern in (_COMMENT, _TRAILING_COMMA):  # editors allow both in JSON
        text = pattern.sub(r"\1", text)
    return json.loads(text)


def _entries_below(values: object, keys: Sequence[str]) -> Iterator[tuple[object, object]]:
    """Yield the name and the entry of each server below `keys`."""
    if keys:
        if isinstance(values, Mapping):
            inner_values = values.values() if keys[0] == "*" else (values.get(keys[0]),)
            for inner in inner_values:
                yield from _entries_below(inner, keys[1:])
    elif isinstance(values, Mapping):
        yield from values.items()
    elif isinstance(values, list):
        yield from ((each.get("name", ""), each) for each in values if isinstance(each, Mapping))


def _client_server(client: str, name: str, entry: Mapping[str, object]) -> ClientServer:
    program = next((it for key in _PROGRAM_KEYS if (it := entry.get(key))), None)
    url = next((it for key in _URL_KEYS if isinstance(it := entry.get(key), str)), None)
    if isinstance(program, Mapping):
        program = program.get("path")
    if isinstance(program, list):
        program = program[0]
    if isinstance(program, str):
        return ClientServer(client=client, name=name, transport="stdio", target=_program_name(program))
    if url is None:
        return ClientServer(client=client, name=name, transport="other", target="")
    kind = str(entry.get("type") or entry.get("transport") or "").lower()
    transport = "websocket" if url.startswith("ws") else "sse" if kind == "sse" else "http"
    return ClientServer(client=client, name=name, transport=transport, target=_origin(url))


def _program_name(command: str) -> str:
    """Return the last part of the program's path. Words after the first may be secret arguments, and a word
    like `A=b` sets a variable."""
    program = (command.split() or [""])[0]
    return LEFT_OUT if "=" in program else PureWindowsPath(program).name


def _origin(url: str) -> str:
    try:
        address = WebAddress.parse(url)
    except ValueError:
        return ""
    is_origin = address.scheme in _SCHEMES and address.host
    return f"{address.scheme}://{address.host_and_port}" if is_origin else ""
