"""The entries of a servers file: their tables, and their conversion to `ServerConfig`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from playhead.config.auth import (
    DEFAULT_CLIENT_NAME,
    AuthSettings,
    ClientCredentials,
    OAuthLogin,
)
from playhead.config.directories import data_directory
from playhead.config.document import place
from playhead.config.servers import RangeStrategyName, Restart, ServerConfig, from_url, is_websocket
from playhead.config.tables import EXPANDED, PositiveFloat, PositiveInt, Table, Text, validate
from playhead.errors import ConfigError

T = TypeVar("T", bound=Table)
_TRANSPORTS: Final = {
    "stdio": ("stdio",),
    "http": ("http", "streamable-http", "streamableHttp"),
    "websocket": ("websocket", "ws"),
}
"""The names of each transport in a file, ours first."""


def read_entries(
    values: object, path: Path, *, environment: Mapping[str, str], expanded: Mapping[str, str]
) -> dict[str, ServerConfig]:
    """Read the servers of a parsed file; `expanded` has the values of `${NAME}`. Raises `ConfigError`."""
    tokens = data_directory(environment) / "oauth"
    return {
        name: _server_config(name, entry, path=path, tokens=tokens, environment=expanded)
        for name, entry in validate(_File, values, path=path, environment=expanded).mcpServers.items()
    }


def _refuse_obsolete(_: object) -> None:
    raise ValueError(
        "is no longer needed: the end of such a server's resources is detected without it; remove it"
    )


def absolute_directory(path: str) -> str:
    """Expand `~`. Raises `ValueError` for a path that is not absolute, or contains `..`."""
    expanded = Path(path).expanduser()
    if not expanded.is_absolute() or ".." in expanded.parts:
        raise ValueError(f"expected the absolute path of a directory, got {path!r}")
    return str(expanded)


class _Tls(Table):
    verify: bool | None = None
    authorities: Text | None = None
    certificate: Text | None = None
    key: Text | None = None


class _Playhead(Table):
    range_strategy: Annotated[RangeStrategyName | None, EXPANDED] = None
    page_size_bytes: PositiveInt | None = None
    in_flight: PositiveInt | None = None
    restart: Annotated[Restart | None, EXPANDED] = None
    meta_key: Text | None = None
    range_tool: Text | None = None
    poll_tool: Text | None = None
    extra_arguments: dict[str, Annotated[object, EXPANDED]] = Field(default_factory=dict)
    send_result_to_ai: bool | None = None
    allowed_tools: tuple[Text, ...] | None = None
    trust_structured: bool | None = None
    mode: Text | None = None
    allow_origins: tuple[Text, ...] | None = None
    allow_paths: tuple[Annotated[Text, AfterValidator(absolute_directory)], ...] | None = None
    cache: Text | None = None
    compat: Annotated[None, BeforeValidator(_refuse_obsolete)] = None


class _Entry(Table, extra="allow"):
    """An entry of `mcpServers`; other clients may add their own keys."""

    command: Text | None = None
    args: tuple[Text, ...] | None = None
    env: dict[str, Text] = Field(default_factory=dict)
    cwd: Text | None = None
    url: Text | None = None
    transport: Text | None = None
    type: Text | None = None
    headers: dict[str, Text] = Field(default_factory=dict)
    auth: dict[str, object] = Field(default_factory=dict)
    timeout: PositiveFloat | None = None
    tls: _Tls = _Tls()
    playhead: _Playhead = _Playhead()


class _File(Table, extra="ignore"):
    mcpServers: dict[str, _Entry]  # noqa: N815 - the file's own key


def _server_config(
    name: str, entry: _Entry, *, path: Path, tokens: Path, environment: Mapping[str, str]
) -> ServerConfig:
    at = ("mcpServers", name)
    url, tls = entry.url, entry.tls

    def invalid(problem: str, *keys: str) -> ConfigError:
        return ConfigError(f"{place(path, (*at, *keys))}: {problem}")

    transport = _transport_of(entry, invalid)
    auth = read_auth(entry.auth, folder=tokens, path=path, at=(*at, "auth"), environment=environment)
    if auth is not None and url is None:
        raise invalid("goes with `url`; pass a command its secrets in `env`", "auth")
    if isinstance(auth, AuthSettings) and transport == "websocket":
        raise invalid("expected 'bearer' for a WebSocket; MCP has OAuth for HTTP only", "auth.type")
    headers = dict(entry.headers)
    if isinstance(auth, str):
        headers["Authorization"], auth = f"Bearer {auth}", None
    for header, value in headers.items():
        if any(ord(char) < 32 or ord(char) == 127 for char in header + value):
            raise invalid(f"the header {header!r} holds a control character", "headers")
    if tls.verify is False and tls.authorities is not None:
        raise invalid("expected either `verify = false` or `authorities`, got both", "tls")
    if tls.key is not None and tls.certificate is None:
        raise invalid("needs a tls.certificate, which is missing", "tls.key")
    return ServerConfig(
        name=name,
        command=None if entry.command is None else (entry.command, *(entry.args or ())),
        env=entry.env,
        cwd=entry.cwd,
        url=url,
        headers=headers,
        auth=auth,
        timeout_seconds=entry.timeout,
        tls_verify=tls.verify is not False,
        tls_authorities=tls.authorities,
        tls_certificate=tls.certificate,
        tls_key=tls.key,
        # The fields of `_Playhead` have the names of `ServerConfig`'s.
        **{name: value for name, value in entry.playhead if value is not None},
    )


def _transport_of(entry: _Entry, invalid: Callable[..., ConfigError]) -> str:
    """Return the transport of an entry, a key of `_TRANSPORTS`. Raises what `invalid` returns for an entry
    whose command, URL and transport do not go together."""
    url = entry.url
    if (entry.command is None) == (url is None):
        keys = ", ".join(sorted({*entry.model_fields_set, *(entry.model_extra or ())})) or "no key at all"
        raise invalid(f"expected either `command` or `url`, got {'both' if url is not None else keys}")
    transport = "stdio"
    if url is not None:
        transport = "websocket" if is_websocket(url) else "http"
    stated = entry.transport or entry.type
    if stated is not None and stated not in _TRANSPORTS[transport]:
        target = "`command`" if url is None else f"a `url` that begins with {url.partition(':')[0]}:"
        raise invalid(
            f"{stated!r} does not go with {target}; remove it, or use {_TRANSPORTS[transport][0]!r}",
            "transport",
        )
    if url is not None:
        try:
            from_url(url)
        except ConfigError as error:
            raise invalid(str(error), "url") from None
    return transport


# --- credentials ----------------------------------------------------------------------------------------


def _require_http_url(url: str) -> str:
    if not url.startswith(("https://", "http://")):
        raise ValueError("expected the authorization server's http(s) URL")
    return url


def _require_document_url(url: str) -> str:
    if not (url.startswith("https://") and url.removeprefix("https://").partition("/")[2]):
        raise ValueError("expected the https URL of a document, with a path")
    return url


def _require_text(text: str) -> str:
    if not text:
        raise ValueError("expected a value, got an empty string")
    return text


def _require_port(number: int) -> int:
    if not 0 < number < 65536:
        raise ValueError(f"expected a port from 1 to 65535, got {number}")
    return number


_Required = Annotated[Text, AfterValidator(_require_text)]
_Issuer = Annotated[Text, AfterValidator(_require_http_url)]


class _Bearer(Table):
    token: _Required


class _ClientCredentials(Table):
    client_id: _Required
    client_secret: _Required
    scopes: tuple[Text, ...] | None = None
    issuer: _Issuer | None = None


class _OAuth(Table):
    scopes: tuple[Text, ...] | None = None
    client_id: Text | None = None
    client_secret: Text | None = None
    client_name: Text | None = None
    client_metadata_url: Annotated[Text, AfterValidator(_require_document_url)] | None = None
    redirect_port: Annotated[int, AfterValidator(_require_port)] | None = None
    issuer: _Issuer | None = None


class _Type(Table, extra="ignore"):
    type: Annotated[Literal["bearer", "oauth", "client_credentials"], EXPANDED]


def read_auth(
    auth: Mapping[str, object],
    *,
    folder: Path,
    path: Path,
    at: tuple[str, ...],
    environment: Mapping[str, str],
) -> str | AuthSettings | None:
    """Read the credentials under the keys `at`: a bearer token, settings, or `None` for an empty table.

    Raises `ConfigError`, which names the key and quotes no secret.
    """
    if not auth:
        return None

    def read(kind: type[T], values: Mapping[str, object]) -> T:
        return validate(kind, values, path=path, at=at, environment=environment)

    kind = read(_Type, auth).type
    values = {key: value for key, value in auth.items() if key != "type"}
    if kind == "bearer":
        return read(_Bearer, values).token
    if kind == "client_credentials":
        account = read(_ClientCredentials, values)
        return ClientCredentials(token_folder=folder, **dict(account))
    login = read(_OAuth, values)
    if login.client_secret is not None and login.client_id is None:
        raise ConfigError(f"{place(path, at)}: a client_secret needs a client_id")
    return OAuthLogin(
        token_folder=folder, **{**dict(login), "client_name": login.client_name or DEFAULT_CLIENT_NAME}
    )
