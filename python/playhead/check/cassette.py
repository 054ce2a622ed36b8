"""Cassettes: the JSON-RPC bodies of a check, recorded without secrets, and a server that replays them.

A request is matched by its method and parameters, `_meta` aside. A request that the cassette lacks leaves its
test undecided. Headers, processes and time are not recorded, so what they show is not checked again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import trio
from mcp.server import Server
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, jsonrpc_message_adapter

from playhead.errors import ConfigError
from playhead.redaction import LEFT_OUT, is_secret, redacted

SUFFIX: Final = ".cassette"
UNRECORDED: Final = -32_098
"""Marks the replayed error for a request that the cassette lacks."""
UNRECORDED_WORDS: Final = "the cassette does not have this request: undecided"
_TOKEN: Final = re.compile(
    r"\b(?:sk|pk|ghp|gho|ghs|github_pat|glpat|xox[abprs]|hf|npm)[-_][\w-]{12,}|\bAKIA[A-Z0-9]{12,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|(?i:\b(?:bearer|basic)\s+)[\w.~+/-]{8,}=*"
    r"|(?<=://)[^/?#\s@\"']{1,500}@"
    r"|(?i:(?<=[?&])(?:\w*token|api_?key|key|secret|password|sig|signature)=)[^&#\s\"']+"
)
"""Matches tokens of known services, credentials in a header, and those in a URL."""
_NAMED: Final = re.compile(
    r"((?<!\w)\w{0,30}?(?:api_?key|token|secret|passw(?:or)?d|credential)\w{0,30}\\?[\"']?\s*[:=]\s*\\?[\"']?)"
    r"[^\s\"'\\,;&]{4,}",
    re.IGNORECASE,
)
"""Matches a name such as `api_key` in text, with its value."""

Exchanged = Mapping[str, Any]
"""One request with its `method`, `params`, and `result` or `error`."""


@dataclass(slots=True)
class CassetteRecorder:
    """Records the requests of any number of connections and their answers."""

    secrets: Iterable[str] = ()
    exchanges: list[Exchanged] = field(default_factory=list)

    def witness(self) -> Callable[[Literal["sent", "received"], bytes], None]:
        """Return a witness of one more connection."""
        pending: dict[str, tuple[str, Mapping[str, Any]]] = {}

        def see(direction: Literal["sent", "received"], data: bytes) -> None:
            try:
                message = json.loads(bytes(data))
            except (ValueError, RecursionError):
                return
            if not isinstance(message, dict) or "id" not in message:
                return
            key = str(message["id"])
            if direction == "sent" and "method" in message:
                pending[key] = message["method"], message.get("params") or {}
            elif direction == "received" and "method" not in message and key in pending:
                method, params = pending.pop(key)
                answer = {name: message[name] for name in ("result", "error") if name in message}
                exchange = {"method": method, "params": _without_meta(params), **answer}
                self.exchanges.append(cleaned(exchange, self.secrets))

        return see

    def to_json(self) -> str:
        """Format the cassette, one exchange per line."""
        lines = ",\n".join(json.dumps(exchange, ensure_ascii=False) for exchange in self.exchanges)
        return f'{{"playhead_cassette": 1, "exchanges": [\n{lines}\n]}}\n'


def cleaned(value: Any, secrets: Iterable[str]) -> Any:
    """Return JSON without secrets: known ones, tokens, credentials in URLs, and the values of names such as
    `api_key`."""
    match value:
        case str():
            return _NAMED.sub(rf"\1{LEFT_OUT}", _TOKEN.sub(LEFT_OUT, redacted(value, secrets)))
        case dict():
            return {
                cleaned(name, secrets): LEFT_OUT
                if isinstance(each, str) and is_secret(str(name), "") and name != "progressToken"
                else cleaned(each, secrets)
                for name, each in value.items()
            }
        case list():
            return [cleaned(each, secrets) for each in value]
    return value


def _without_meta(params: Any) -> Any:
    return (
        {key: each for key, each in params.items() if key != "_meta"} if isinstance(params, dict) else params
    )


def load_cassette(path: Path) -> CassetteServer:
    """Read a cassette. Raises `ConfigError`, with the file."""
    try:
        raw = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror}); record one with --record") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: expected a cassette, got invalid JSON ({error})") from error
    exchanges = raw.get("exchanges") if isinstance(raw, dict) and raw.get("playhead_cassette") == 1 else None
    if not isinstance(exchanges, list) or not all(
        isinstance(each, dict) and isinstance(each.get("method"), str) for each in exchanges
    ):
        raise ConfigError(f"{path}: expected a cassette with playhead_cassette: 1; record one with --record")
    return CassetteServer(path.name, exchanges)


class CassetteServer(Server[Any]):
    """Replays a cassette, in this process. Equal listings get their answers in the order of the recording."""

    def __init__(self, name: str, exchanges: Iterable[Exchanged]) -> None:
        super().__init__(name)
        self._answers: dict[str, list[Exchanged]] = {}
        for exchange in exchanges:
            key = _match_key(exchange["method"], exchange.get("params") or {})
            self._answers.setdefault(key, []).append(exchange)

    async def run(self, read_stream: Any, write_stream: Any, *_args: Any, **_options: Any) -> None:
        """Answer the requests of one client."""
        async for item in read_stream:
            request = item.message
            if isinstance(request, JSONRPCRequest):
                reply = {
                    "jsonrpc": "2.0",
                    "id": request.id,
                    **self.answer(request.method, request.params or {}),
                }
                await write_stream.send(
                    SessionMessage(jsonrpc_message_adapter.validate_python(reply, by_name=False))
                )
        await trio.lowlevel.checkpoint()

    def answer(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the `result` or `error` of a request."""
        recorded = self._answers.get(_match_key(method, cleaned(_without_meta(params), ())), [])
        is_ambiguous = method == "tools/call" and any(each != recorded[0] for each in recorded)
        if not recorded or is_ambiguous:
            return {"error": {"code": UNRECORDED, "message": UNRECORDED_WORDS}}
        exchange = recorded.pop(0) if len(recorded) > 1 else recorded[0]
        return {name: exchange[name] for name in ("result", "error") if name in exchange}


def _match_key(method: str, params: Any) -> str:
    if method in ("initialize", "server/discover"):
        params = {"protocolVersion": params.get("protocolVersion")} if isinstance(params, Mapping) else {}
    return json.dumps([method, params], sort_keys=True)
