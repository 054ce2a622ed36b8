"""Where servers are: `mcpServers` files, URLs and command lines, told apart and made one `ServerConfig`.

The file is the one other MCP clients use (`{"mcpServers": {NAME: {...}}}`), with what only playhead knows
under `playhead` in each entry. Reading a file is not starting anything: commands stay argument vectors and
never see a shell.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal

import httpx2

from playhead.config.auth import AuthSettings, read_auth, token_folder
from playhead.config.fields import Fields
from playhead.errors import ConfigError

Restart = Literal["never", "once", "always"]
DEFAULT_FILE: Final = "mcp.json"
URL: Final = re.compile(r"^(https?|wss?)://", re.IGNORECASE)
_OTHER_URL: Final = re.compile(r"[a-z][a-z0-9+.-]{0,20}://(?=\S*$)", re.IGNORECASE)
"""Of a URL that is nothing but that: no program is named like one."""
_TRANSPORTS: Final = {
    "stdio": ("stdio",),
    "http": ("http", "streamable-http", "streamableHttp"),
    "websocket": ("websocket", "ws"),
}
"""The names of each transport in a file, ours first."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServerConfig:
    """One server and how it is to be treated. Its `repr` shows no argument, header or environment value."""

    name: str = ""
    command: tuple[str, ...] | None = None
    """The program and its arguments, for a server over stdio."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the inherited minimum; wins over it."""
    cwd: str | None = None
    url: str | None = None
    """The endpoint, for a server over Streamable HTTP (`http`, `https`) or WebSocket (`ws`, `wss`)."""
    headers: Mapping[str, str] = field(default_factory=dict)
    auth: httpx2.Auth | AuthSettings | None = None
    timeout_seconds: float | None = None
    """A tool call's deadline; `None` keeps `Limits.tool_seconds`."""
    tls_verify: bool = True
    tls_authorities: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    mode: str = "auto"
    """Protocol era: `auto`, `legacy` or a revision (for servers that can't bear being asked)."""
    range_strategy: str | None = None
    page_size_bytes: int | None = None
    in_flight: int | None = None
    restart: Restart = "once"
    compat: str | None = None
    meta_key: str | None = None
    extra_arguments: Mapping[str, object] = field(default_factory=dict)
    send_result_to_ai: bool | None = None
    """Kept for whoever offers tools to a model; a session by itself doesn't look at it."""
    allowed_tools: tuple[str, ...] | None = None
    """The tools that a session calls; None for all."""
    trust_structured: bool | None = None
    """`results.policy.Policy.trust_structured` for this server's tools; None keeps what the caller chose."""
    allow_origins: tuple[str, ...] = ()
    """Origins whose links may be followed although their addresses are not global (`http://host:port`)."""

    def __repr__(self) -> str:
        where = self.command[0] if self.command else _place(self.url or "")
        return f"ServerConfig(name={self.name!r}, {'command' if self.command else 'url'}={where!r})"


def load_servers(path: Path, *, environment: Mapping[str, str] | None = None) -> dict[str, ServerConfig]:
    """The servers in the file at `path`, in its order.

    `environment` is where `${NAME}` comes from (default: this process's). Raises `ConfigError`, naming the
    file and the key path, for anything that can't be read or isn't understood.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; write one, or name a URL or a command") from None
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not JSON ({error})") from error
    environment = os.environ if environment is None else environment
    servers = Fields(raw, where=str(path), environment=environment).table("mcpServers", required=True)
    tokens = token_folder(environment)
    return {
        name: _server(name, servers.table(name, required=True), tokens=tokens) for name in servers.names()
    }


def find_servers(
    path: Path | None = None, *, environment: Mapping[str, str] | None = None
) -> dict[str, ServerConfig]:
    """The servers in the file at `path`, or else in the first default one: `./mcp.json`, then
    `playhead/mcp.json` in the user's configuration folder. Raises `ConfigError` as `load_servers`, and where
    there is no such file."""
    environment = os.environ if environment is None else environment
    found = path or default_file(environment)
    if found is None:
        raise ConfigError(
            f"there is no servers file: neither ./{DEFAULT_FILE} nor playhead/{DEFAULT_FILE} in the user's"
            " configuration folder; write one, or name it"
        )
    return load_servers(found, environment=environment)


def resolve_target(
    text: str, config_path: Path | None = None, *, environment: Mapping[str, str] | None = None
) -> ServerConfig:
    """The server that `text` means: a name from the file, else a URL, else a command line in quotes.

    Without `config_path` the file is `./mcp.json`, or else `playhead/mcp.json` in the user's configuration
    folder; neither has to exist. Raises `ConfigError` where nothing fits.
    """
    environment = os.environ if environment is None else environment
    path = config_path or default_file(environment)
    servers = load_servers(path, environment=environment) if path is not None else {}
    if text in servers:
        return servers[text]
    if URL.match(text):
        return from_url(text)
    if scheme := _OTHER_URL.match(text):
        raise ConfigError(f"expected http://, https://, ws:// or wss:// in a server's URL, came {scheme[0]}")
    near = get_close_matches(text, servers, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a command line ({error}){hint}") from None
    if not command:
        raise ConfigError("the server is empty; give a name from the servers file, a URL, or a command")
    if config_path is not None and len(command) == 1 and near:
        raise ConfigError(f"{path}: there is no server {text!r}{hint}")
    return from_command(command)


def from_url(url: str) -> ServerConfig:
    """A server at `url`. Raises `ConfigError` for a URL that can't be one."""
    try:
        place = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ConfigError(f"{_shown(url)!r} is not a URL{'' if '@' in url else f' ({error})'}") from None
    if not place.host:
        raise ConfigError(f"{_shown(url)!r}: expected a host after {place.scheme}://, came none")
    try:
        place.raw_host.decode("ascii").encode("idna")
    except UnicodeError:
        raise ConfigError(
            f"{_place(url)}: expected a host name whose parts have 1 to 63 characters, came {place.host!r}"
        ) from None
    if place.port is not None and not 0 < place.port < 65536:
        raise ConfigError(f"{_place(url)}: expected a port from 1 to 65535, came {place.port}")
    return ServerConfig(name=_place(url), url=url)


def is_websocket(url: str) -> bool:
    """Whether `url` is spoken to over WebSocket, not Streamable HTTP."""
    return url.lower().startswith(("ws:", "wss:"))


def from_command(command: Sequence[str]) -> ServerConfig:
    """A server started as `command`: the program and its arguments."""
    if not command:
        raise ConfigError("the command is empty; give the program and its arguments")
    return ServerConfig(name=Path(command[0]).name, command=tuple(command))


def default_file(environment: Mapping[str, str]) -> Path | None:
    """The first of `./mcp.json` and the user's own file that exists."""
    folder = environment.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    for path in (Path(DEFAULT_FILE), Path(folder) / "playhead" / DEFAULT_FILE):
        if path.is_file():
            return path
    return None


def _server(name: str, entry: Fields, *, tokens: Path) -> ServerConfig:
    command, url = entry.text("command"), entry.text("url")
    if command is not None and url is not None:
        raise ConfigError(f"{entry.where}: expected either `command` or `url`, came both")
    if command is None and url is None:
        keys = ", ".join(entry.names()) or "no key at all"
        raise ConfigError(f"{entry.where}: expected `command` or `url`, came neither, but {keys}")
    transport = "stdio" if url is None else "websocket" if is_websocket(url) else "http"
    kind = entry.text("transport") or entry.text("type")
    if kind is not None and kind not in _TRANSPORTS[transport]:
        given = "`command`" if url is None else f"a `url` that begins with {url.partition(':')[0]}:"
        raise ConfigError(
            f"{entry.where}.transport: {kind!r} does not go with {given}; leave it out, or give"
            f" {_TRANSPORTS[transport][0]!r}"
        )
    if url is not None:
        try:
            from_url(url)
        except ConfigError as error:
            raise ConfigError(f"{entry.where}.url: {error}") from None
    headers = entry.texts("headers")
    auth = read_auth(entry.table("auth"), folder=tokens)
    if auth is not None and url is None:
        raise ConfigError(f"{entry.where}.auth: goes with `url`; give a command its secrets under `env`")
    if isinstance(auth, AuthSettings) and transport == "websocket":
        raise ConfigError(
            f"{entry.where}.auth.type: expected 'bearer' for a WebSocket, came OAuth, which MCP has for HTTP"
            " only"
        )
    if isinstance(auth, str):
        headers, auth = {**headers, "Authorization": f"Bearer {auth}"}, None
    for header, value in headers.items():
        if any(ord(char) < 32 or ord(char) == 127 for char in header + value):
            raise ConfigError(f"{entry.where}.headers.{header!r}: holds a control character")
    tls = entry.table("tls")
    tls.only("verify", "authorities", "certificate", "key")
    if tls.flag("verify") is False and tls.text("authorities") is not None:
        raise ConfigError(f"{tls.where}: either `verify` is false or `authorities` are named, not both")
    if tls.text("key") is not None and tls.text("certificate") is None:
        raise ConfigError(f"{tls.where}.key: belongs to a tls.certificate, and there is none")
    own = entry.table("playhead")
    own.only(
        "range_strategy",
        "page_size_bytes",
        "in_flight",
        "restart",
        "compat",
        "meta_key",
        "extra_arguments",
        "send_result_to_ai",
        "allowed_tools",
        "trust_structured",
        "mode",
        "allow_origins",
    )
    strategy = own.choice("range_strategy", ("uri-template", "arguments", "meta", "whole"))
    restart: Any = own.choice("restart", ("never", "once", "always")) or "once"
    allowed = own.items("allowed_tools")
    return ServerConfig(
        name=name,
        command=(command, *(entry.items("args") or ())) if command is not None else None,
        env=entry.texts("env"),
        cwd=entry.text("cwd"),
        url=url,
        headers=headers,
        auth=auth,
        timeout_seconds=entry.number("timeout"),
        tls_verify=tls.flag("verify") is not False,
        tls_authorities=tls.text("authorities"),
        tls_certificate=tls.text("certificate"),
        tls_key=tls.text("key"),
        mode=own.text("mode") or "auto",
        range_strategy=strategy,
        page_size_bytes=own.whole("page_size_bytes"),
        in_flight=own.whole("in_flight"),
        restart=restart,
        compat=own.choice("compat", ("reference",)),
        meta_key=own.text("meta_key"),
        extra_arguments=own.values("extra_arguments"),
        send_result_to_ai=own.flag("send_result_to_ai"),
        allowed_tools=allowed,
        trust_structured=own.flag("trust_structured"),
        allow_origins=own.items("allow_origins") or (),
    )


def _shown(url: str) -> str:
    """What of a text that is no URL can be told: a user or a query may be a secret of the environment."""
    return re.split(r"[?#]", re.sub(r"//.*@", "//", url))[0]


def _place(url: str) -> str:
    try:
        return str(httpx2.URL(url).copy_with(userinfo=b"", query=None, fragment=None))
    except httpx2.InvalidURL:
        return "(not a URL)"
