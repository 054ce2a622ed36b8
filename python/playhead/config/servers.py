"""Servers from `mcpServers` files, URLs and command lines, each as a `ServerConfig`.

The file has the format of other MCP clients (`{"mcpServers": {NAME: {...}}}`); playhead's own settings are
under the key `playhead` of each entry. Reading a file starts nothing, and commands are argument vectors that
never reach a shell.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from playhead.config.auth import AuthSettings
from playhead.config.directories import user_directory
from playhead.config.document import VARIABLE, place, read_document, strings_in
from playhead.config.trust import SERVERS_FILES, ProjectFile, Trust
from playhead.errors import ConfigError
from playhead.escaping import did_you_mean
from playhead.redaction import is_secret, redacted_url, url_secrets
from playhead.web_address import WebAddress

if TYPE_CHECKING:
    import httpx2

RangeStrategyName = Literal[
    "uri-template",
    "arguments",
    "query",
    "params",
    "meta",
    "tool",
    "cursor",
    "poll",
    "file",
    "http-range",
    "whole",
]
"""The names of `stream.strategies.FORMS`, which this layer cannot import."""
Restart = Literal["never", "once", "always"]
_PLAIN_HEADERS: Final = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""Headers whose values are never secret."""
DEFAULT_FILE: Final = SERVERS_FILES[0]
URL: Final = re.compile(r"^(https?|wss?)://", re.IGNORECASE)
_OTHER_URL: Final = re.compile(r"[a-z][a-z0-9+.-]{0,20}://(?=\S*$)", re.IGNORECASE)
"""Matches the scheme of text that can only be a URL, because no program has such a name."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServerConfig:
    """A server and its settings. Its `repr` shows no arguments, headers or environment values."""

    name: str = ""
    command: tuple[str, ...] | None = None
    """The program and its arguments: a server over stdio."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables. They are added to the few that a server inherits, and override those."""
    cwd: str | None = None
    url: str | None = None
    """The endpoint of a server over Streamable HTTP (`http`, `https`) or WebSocket (`ws`, `wss`)."""
    headers: Mapping[str, str] = field(default_factory=dict)
    auth: httpx2.Auth | AuthSettings | None = None
    timeout_seconds: float | None = None
    """The deadline of a tool call; `None` leaves it at `Limits.tool_seconds`."""
    tls_verify: bool = True
    tls_authorities: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    mode: str = "auto"
    """The protocol version: `auto`, `legacy` or a revision (for servers that fail on negotiation)."""
    range_strategy: str | None = None
    page_size_bytes: int | None = None
    in_flight: int | None = None
    restart: Restart = "once"
    meta_key: str | None = None
    range_tool: str | None = None
    """The tool of the strategy `tool`; with None, its schemas identify it."""
    poll_tool: str | None = None
    """The tool of the strategy `poll`; with None, its outputSchema identifies it."""
    extra_arguments: Mapping[str, object] = field(default_factory=dict)
    send_result_to_ai: bool | None = None
    """Tells programs that offer tools to a model who gets a result; a session itself ignores it."""
    allowed_tools: tuple[str, ...] | None = None
    """The tools that a session calls; None for all."""
    trust_structured: bool | None = None
    """`results.plan.Policy.trust_structured` for this server's tools; None leaves it to the caller."""
    allow_origins: tuple[str, ...] = ()
    """Origins (`http://host:port`) to which a client follows links even if their addresses are not global."""
    allow_paths: tuple[str, ...] = ()
    """Absolute directories. A result may name the paths of audio files in them to play. This is only for
    servers that run on this machine."""
    cache: str | None = None
    """The page cache: a directory, or a `valkey://` URL; None for no cache."""

    expanded: frozenset[str] = frozenset()
    """The values of each `${NAME}` in the file."""

    @property
    def secrets(self) -> frozenset[str]:
        """Values to redact in all output (`playhead.redaction`)."""
        values = {*self.expanded, *url_secrets(self.url or ""), *url_secrets(self.cache or "")}
        values |= {value for name, value in self.env.items() if is_secret(name, value)}
        for name, value in self.headers.items():
            if name.lower() not in _PLAIN_HEADERS:
                values |= {value, value.rpartition(" ")[2]}  # `Bearer TOKEN`
        if isinstance(self.auth, AuthSettings) and self.auth.client_secret is not None:
            values.add(self.auth.client_secret)
        return frozenset(values - {""})

    def __repr__(self) -> str:
        if self.command:
            return f"ServerConfig(name={self.name!r}, command={self.command[0]!r})"
        return f"ServerConfig(name={self.name!r}, url={redacted_url(self.url or '', self.secrets)!r})"


def load_servers(path: Path, *, environment: Mapping[str, str] | None = None) -> dict[str, ServerConfig]:
    """Load the servers in the file at `path`, in order.

    `environment` provides the values of `${NAME}` (default: this process's). Raises `ConfigError`, with the
    file and the key path, for a file that can't be read and for invalid content.
    """
    environment = os.environ if environment is None else environment
    values = read_document(path, advice="create it, or name a URL or a command")
    return _read_servers(values, path, environment=environment, expanded=environment)


def find_servers(
    path: Path | None = None, *, environment: Mapping[str, str] | None = None, trust: Trust | None = None
) -> dict[str, ServerConfig]:
    """Load the servers of the file at `path`. By default, load the user's file (`playhead/mcp.json` in the
    configuration directory) and, if `trust` accepts it, `./mcp.json`. The user's servers take precedence.

    Raises `ConfigError` as `load_servers`, and if neither file exists.
    """
    environment = os.environ if environment is None else environment
    if path is not None:
        return load_servers(path, environment=environment)
    servers = default_servers(environment=environment, trust=trust)
    if servers is None:
        raise ConfigError(
            f"no servers file: neither ./{DEFAULT_FILE} nor {user_directory(environment) / DEFAULT_FILE}"
            " exists; create one, or name another file"
        )
    return servers


def default_servers(
    *, environment: Mapping[str, str] | None = None, trust: Trust | None = None
) -> dict[str, ServerConfig] | None:
    """Load the servers of `find_servers` without a path; None if neither file exists."""
    environment = os.environ if environment is None else environment
    trust = trust or Trust(environment=environment)
    users, project = user_servers(environment), trust.project_file(SERVERS_FILES)
    if users is None and project is None:
        return None
    servers = dict(users or {})
    if project is not None and trust.accepts(project):
        for name, server in project_servers(project, environment=environment).items():
            if name in servers:
                trust.say(_OWN_SERVER_WINS.format(name=name, path=project.path))
            servers.setdefault(name, server)
    return servers


def server_names(path: Path | None, *, environment: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the server names in the file at `path`; by default, in the default files of `find_servers`, even
    without consent. An unreadable file has none."""
    environment = os.environ if environment is None else environment
    paths = [path] if path else [user_directory(environment) / DEFAULT_FILE, *map(Path, SERVERS_FILES)]
    names: set[str] = set()
    for each in paths:
        with suppress(ConfigError):
            names |= {*_server_names_in(read_document(each, advice=""))}
    return frozenset(names)


def resolve_target(
    text: str,
    config_path: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    trust: Trust | None = None,
) -> ServerConfig:
    """Return the server that `text` names: a name from the file, else a URL, else a quoted command line.

    Without `config_path`, the names are from the default files of `find_servers`, which need not exist.
    Consent to `./mcp.json` is needed only for a name that is missing from the user's file. Raises
    `ConfigError` if nothing matches.
    """
    environment = os.environ if environment is None else environment
    trust = trust or Trust(environment=environment)
    project = None
    if config_path is not None:
        servers = load_servers(config_path, environment=environment)
    else:
        servers = user_servers(environment) or {}
        if not is_url_or_command(text):
            project = trust.project_file(SERVERS_FILES)
    project_names = () if project is None else _server_names_in(project.values)
    if text in servers:
        if project is not None and text in project_names:
            trust.say(_OWN_SERVER_WINS.format(name=text, path=project.path))
        return servers[text]
    if project is not None and text in project_names and trust.accepts(project):
        return project_servers(project, environment=environment)[text]
    if URL.match(text):
        return from_url(text)
    if scheme := _OTHER_URL.match(text):
        raise ConfigError(f"expected http://, https://, ws:// or wss:// in a server's URL, got {scheme[0]}")
    hint = did_you_mean(text, {**servers, **dict.fromkeys(project_names)}, lead="; ")
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a command line ({error}){hint}") from None
    if not command:
        raise ConfigError("the server is empty; give a name from the servers file, a URL, or a command")
    if config_path is not None and len(command) == 1 and hint:
        raise ConfigError(f"{config_path}: no server {text!r}{hint}")
    if len(command) == 1 and hint and shutil.which(command[0], path=environment.get("PATH")) is None:
        raise ConfigError(f"no server or program {text!r}{hint}")
    return from_command(command)


_OWN_SERVER_WINS: Final = (
    "{name} is the server of your own servers file, not that of {path} (--config chooses)"
)


def is_url_or_command(text: str) -> bool:
    """Return True for text that looks like a URL or a command line. No server in `./mcp.json` may have such a
    name."""
    return re.search(r"""://|[\s/\\'"]""", text) is not None


def user_servers(environment: Mapping[str, str]) -> dict[str, ServerConfig] | None:
    """Load the servers of the user's own file; None if it does not exist. Raises `ConfigError`."""
    path = user_directory(environment) / DEFAULT_FILE
    return load_servers(path, environment=environment) if path.is_file() else None


def project_servers(file: ProjectFile, *, environment: Mapping[str, str]) -> dict[str, ServerConfig]:
    """Load the servers of an accepted file of the current directory. Raises `ConfigError`."""
    for name in _server_names_in(file.values):
        if is_url_or_command(name):
            raise ConfigError(
                f"{place(file.path.name, ('mcpServers',))}: {name!r} looks like a URL or a command"
                " line, which the servers of a directory cannot be called; rename it"
            )
    accepted = {name: value for name, value in environment.items() if name in file.variables}
    return _read_servers(file.values, Path(file.path.name), environment=environment, expanded=accepted)


def _server_names_in(values: object) -> tuple[str, ...]:
    servers = values.get("mcpServers") if isinstance(values, dict) else None
    return tuple(servers) if isinstance(servers, dict) else ()


def _read_servers(
    values: object, path: Path, *, environment: Mapping[str, str], expanded: Mapping[str, str]
) -> dict[str, ServerConfig]:
    from playhead.config.server_entries import read_entries  # it loads pydantic, which only a file needs

    variables = {name for text in strings_in(values) for name in VARIABLE.findall(text)}
    variable_values = frozenset(expanded[name] for name in variables & expanded.keys())
    servers = read_entries(values, path, environment=environment, expanded=expanded)
    return {name: replace(server, expanded=variable_values) for name, server in servers.items()}


def from_url(url: str) -> ServerConfig:
    """Return a server at `url`. Raises `ConfigError` for an invalid URL."""
    try:
        address = WebAddress.parse(url)
    except ValueError as error:
        raise ConfigError(
            f"{redacted_url(url)!r} is not a URL{'' if '@' in url else f' ({error})'}"
        ) from None
    if not address.host:
        raise ConfigError(f"{redacted_url(url)!r}: expected a host after {address.scheme}://, got none")
    try:
        address.host.encode("idna")
    except UnicodeError:
        raise ConfigError(
            f"{redacted_url(url)}: expected host name parts of 1 to 63 characters, got {address.host!r}"
        ) from None
    if address.port is not None and not 0 < address.port < 65536:
        raise ConfigError(f"{redacted_url(url)}: expected a port from 1 to 65535, got {address.port}")
    return ServerConfig(name=redacted_url(url).partition("?")[0], url=url)


def server_identity(config: ServerConfig) -> object:
    """Return the identity of a server as a JSON value: its URL, or its program, arguments and working
    directory, with absolute paths. None for a server with neither.

    The name is not part of it, because another file may give the name to another server.
    """
    if config.command is None:
        return config.url
    program, *arguments = config.command
    if "/" not in program:
        program = shutil.which(program, path=config.env.get("PATH")) or program
    directory = Path(config.cwd or "").absolute()
    # Do not follow links: the `python` of a virtual environment is one, and has other packages than its
    # target.
    return [[str(directory / program), *arguments], str(directory)]


def is_websocket(url: str) -> bool:
    """Return True for a URL of a WebSocket server, False for Streamable HTTP."""
    return url.lower().startswith(("ws:", "wss:"))


def from_command(command: Sequence[str]) -> ServerConfig:
    """Return a server that is started as `command`: the program and its arguments."""
    if not command or not command[0]:
        raise ConfigError("the command is empty; give the program and its arguments")
    for index, part in enumerate(command):
        if not isinstance(part, str):
            raise ConfigError(f"the command's item {index}: expected a string, got {part!r:.80}")
    return ServerConfig(name=Path(command[0]).name, command=tuple(command))
