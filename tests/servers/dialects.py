"""Servers that take ranges in a way of their own, with a link that says nothing about it.

    python -m tests.servers.dialects path-guess --size 300000           (over stdio)

The link has a scheme of the server's own and a description in prose. `DIALECTS` names the ways; each refuses
every other one, with -32602. The tool `song` returns the link.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]
URI = "song://7"
PAGE_BYTES = 40_000
CLAMP_BYTES = 65_536


class Refused(Exception):  # noqa: N818 - a JSON-RPC error, not a fault of the server's
    """An error answer: -32602 and a message."""


def number(text: object) -> int:
    if not re.fullmatch(r"\d+", str(text)):
        raise Refused(f"{text!r} is not a number")
    return int(str(text))


@dataclass
class Dialect:
    """A server of one resource."""

    data: bytes
    read: Callable[[Dialect, str, Json], bytes]
    """The bytes for a URI and the params of a resources/read. Raises `Refused`."""
    templates: tuple[str, ...] = ()
    tools: tuple[Json, ...] = ()
    call: Callable[[Dialect, Json], Json] | None = None
    mime_type: str = "audio/mpeg"
    announces_size: bool = True
    reads: Counter[str] = field(default_factory=Counter)
    """Counts the reads of each URI, and the calls of the tool."""

    def answer(self, method: str, params: Json) -> Json:
        match method:
            case "initialize":
                return {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"resources": {}, "tools": {}},
                    "serverInfo": {"name": "dialect", "version": "1"},
                }
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [{"name": "song", "inputSchema": {"type": "object"}}, *self.tools]}
            case "resources/templates/list":
                return {"resourceTemplates": [{"name": it, "uriTemplate": it} for it in self.templates]}
            case "resources/list":
                return {"resources": []}
            case "tools/call" if params["name"] == "song":
                return {"content": [self.link()]}
            case "tools/call" if self.call is not None:
                self.reads["tool"] += 1
                return {"content": [], "structuredContent": self.call(self, params.get("arguments") or {})}
            case "resources/read":
                self.reads[params["uri"]] += 1
                blob = base64.b64encode(self.read(self, params["uri"], params)).decode("ascii")
                return {"contents": [{"uri": params["uri"], "mimeType": self.mime_type, "blob": blob}]}
        raise Refused(f"no {method} here")

    def link(self) -> Json:
        size = {"size": len(self.data)} if self.announces_size else {}
        about = {"name": "song", "description": "A nice song", "mimeType": self.mime_type}
        return {"type": "resource_link", "uri": URI, **about, **size}


def refuse(dialect: Dialect, uri: str, params: Json) -> bytes:
    raise Refused(f"unknown resource {uri!r}")


def by_arguments(dialect: Dialect, uri: str, params: Json) -> bytes:
    given = params.get("arguments") or {}
    if uri != URI or set(given) != {"start", "end"}:
        raise Refused("a range is needed: start and end")
    return dialect.data[given["start"] : given["end"]]


def by_params(dialect: Dialect, uri: str, params: Json) -> bytes:
    if uri != URI or "offset" not in params:
        raise Refused("a range is needed: offset and length")
    return dialect.data[params["offset"] :][: min(params["length"], CLAMP_BYTES)]


def by_uri(pattern: str, part: Callable[[bytes, re.Match[str]], bytes]) -> Callable[..., bytes]:
    """Reads of a URI that matches `pattern`, in the part of the data that it names."""

    def read(dialect: Dialect, uri: str, params: Json) -> bytes:
        match = re.fullmatch(pattern, uri)
        if match is None:
            raise Refused(f"unknown resource {uri!r}")
        return part(dialect.data, match)

    return read


def bounded(data: bytes, match: re.Match[str]) -> bytes:
    return data[number(match["a"]) : number(match["b"])]


def inclusive(data: bytes, match: re.Match[str]) -> bytes:
    return data[number(match["a"]) : number(match["b"]) + 1]


def counted(data: bytes, match: re.Match[str]) -> bytes:
    return data[number(match["a"]) :][: number(match["b"])]


def numbered(first: int, *, clamps: bool = False, size: int | None = PAGE_BYTES) -> Callable[..., bytes]:
    def part(data: bytes, match: re.Match[str]) -> bytes:
        page = number(match["a"])
        page_bytes = size or min(number(match["b"]), CLAMP_BYTES)
        index = max(page - first, 0) if clamps else page - first
        if not 0 <= index * page_bytes < len(data):
            raise Refused(f"page {page} does not exist")
        return data[index * page_bytes :][:page_bytes]

    return part


def by_cursor(dialect: Dialect, given: Json) -> Json:
    if given.get("uri") != URI:
        raise Refused("which resource?")
    at = int(bytes.fromhex(given["cursor"])) if given.get("cursor") else 0
    to = min(at + PAGE_BYTES, len(dialect.data))
    following = str(to).encode().hex() if to < len(dialect.data) else None
    return {"data": base64.b64encode(dialect.data[at:to]).decode("ascii"), "next_cursor": following}


def by_next_offset(dialect: Dialect, given: Json) -> Json:
    at = given["offset"]
    more = {"nextOffset": at + PAGE_BYTES} if at + PAGE_BYTES < len(dialect.data) else {}
    return {"blob": base64.b64encode(dialect.data[at:][:PAGE_BYTES]).decode("ascii"), **more}


def schema(*names: str, required: tuple[str, ...] = ()) -> Json:
    kinds = {"offset": "integer"}
    properties = {name: {"type": kinds.get(name, "string")} for name in names}
    return {"type": "object", "properties": properties, "required": list(required)}


CURSOR: Json = {
    "name": "read_pages",
    "inputSchema": schema("uri", "cursor", required=("uri",)),
    "outputSchema": schema("data", "next_cursor"),
    "annotations": {"readOnlyHint": True},
}
NEXT_OFFSET: Json = {
    "name": "next_part",
    "inputSchema": schema("url", "offset", required=("url", "offset")),
    "outputSchema": schema("blob", "nextOffset"),
}
STRANGE: Json = {"name": "fetch_song", "inputSchema": schema("uri", "page"), "outputSchema": schema("audio")}
PLAIN = re.escape(URI)


def by_any(dialect: Dialect, uri: str, params: Json) -> bytes:
    """A router whose variables hold no slash, so that the address comes in base64url."""
    address = base64.urlsafe_b64encode(URI.encode()).rstrip(b"=").decode("ascii")
    return by_uri(rf"any://{address}/(?P<a>\d+)/(?P<b>\d+)", bounded)(dialect, uri, params)


def whole(data: bytes, match: re.Match[str]) -> bytes:
    return data


TWO = r"/(?P<a>\d+)/(?P<b>\d+)"
DIALECTS: dict[str, Json] = {
    "arguments": {"read": by_arguments},
    "params": {"read": by_params},
    "query": {"read": by_uri(PLAIN + r"\?start=(?P<a>\d+)&end=(?P<b>\d+)", bounded)},
    "whole": {"read": by_uri(PLAIN, whole)},
    "path-start-end": {"read": by_uri(PLAIN + TWO, bounded), "templates": ("song://{id}/{start}/{end}",)},
    "path-offset-length": {
        "read": by_uri(PLAIN + TWO, counted),
        "templates": ("song://{id}/{offset}/{length}",),
    },
    "path-guess-end": {"read": by_uri(PLAIN + TWO, bounded), "templates": ("song://{id}/{v}/{w}",)},
    "path-guess-inclusive": {"read": by_uri(PLAIN + TWO, inclusive), "templates": ("song://{id}/{v}/{w}",)},
    "path-guess-length": {"read": by_uri(PLAIN + TWO, counted), "templates": ("song://{id}/{v}/{w}",)},
    "pages-from-0": {
        "read": by_uri(PLAIN + r"/(?P<a>\d+)", numbered(0)),
        "templates": ("song://{id}/{page}",),
    },
    "pages-from-1": {
        "read": by_uri(PLAIN + r"/(?P<a>\d+)", numbered(1)),
        "templates": ("song://{id}/{page}",),
    },
    "pages-clamped": {
        "read": by_uri(PLAIN + r"/(?P<a>\d+)", numbered(1, clamps=True)),
        "templates": ("song://{id}/{page}",),
    },
    "sized-pages-from-0": {
        "read": by_uri(PLAIN + r"\?page=(?P<a>\d+)&page_size=(?P<b>\d+)", numbered(0, size=None)),
        "templates": ("song://{id}{?page,page_size}",),
    },
    "sized-pages-from-1": {
        "read": by_uri(PLAIN + r"\?page=(?P<a>\d+)&page_size=(?P<b>\d+)", numbered(1, size=None)),
        "templates": ("song://{id}{?page,page_size}",),
    },
    "sized-pages-clamped": {
        "read": by_uri(
            PLAIN + r"\?page=(?P<a>\d+)&page_size=(?P<b>\d+)", numbered(1, clamps=True, size=None)
        ),
        "templates": ("song://{id}{?page,page_size}",),
    },
    "address-base64url": {"read": by_any, "templates": ("any://{uri}/{start}/{end}",)},
    "cursor": {"read": refuse, "tools": (CURSOR,), "call": by_cursor},
    "next-offset": {"read": refuse, "tools": (NEXT_OFFSET,), "call": by_next_offset},
    "nothing": {"read": refuse, "tools": (STRANGE,), "templates": ("song://{id}/{quality}", "album://{id}")},
}


def dialect_of(name: str, data: bytes, **more: Any) -> Dialect:
    return Dialect(data=data, **DIALECTS[name], **more)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("dialect", choices=DIALECTS)
    arguments.add_argument("--size", type=int, default=300_000, help="random bytes")
    arguments.add_argument("--file", type=Path, help="a file in place of random bytes")
    arguments.add_argument("--mime", default="audio/mpeg")
    arguments.add_argument("--no-size", action="store_true", help="the link does not announce the size")
    arguments.add_argument("--delay", type=float, default=0.0, help="seconds for each read, one at a time")
    options = arguments.parse_args()
    data = options.file.read_bytes() if options.file else random.Random(5).randbytes(options.size)
    more = {"mime_type": options.mime, "announces_size": not options.no_size}
    dialect = dialect_of(options.dialect, data, **more)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        if message["method"] == "resources/read":
            time.sleep(options.delay)
        reply: Json = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            reply["result"] = dialect.answer(message["method"], message.get("params") or {})
        except Refused as refused:
            reply["error"] = {"code": -32602, "message": str(refused)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
