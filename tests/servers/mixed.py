"""A server of the SDK's whose tools answer with everything at once, for `playhead call`. Over stdio."""

from __future__ import annotations

import base64
import json
import shlex
import struct
import zlib
from typing import Any, Final

import trio
from mcp.server.mcpserver import MCPServer
from mcp_types import (
    Annotations,
    AudioContent,
    CallToolResult,
    ImageContent,
    ResourceLink,
    TextContent,
)

from tests.servers.launch import REPOSITORY, server_command

MIXED_SERVER: Final = shlex.join(server_command("mixed"))
DATA: Final = REPOSITORY / "tests" / "data"
HOSTILE: Final = "\x1b]0;owned\x07\x1b[2Jtext \u202egnp.exe"
MARKDOWN: Final = f"# Weather\n\n* **Oslo** [forecast](https://evil.example/x)\n* {HOSTILE}\n* &#x202e;rtl\n"
FORECAST: Final[dict[str, Any]] = {"city": "Oslo", "days": [{"temperature": 4}]}


def png(width: int = 2, height: int = 2) -> bytes:
    """A black image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\x00" + bytes(width) for _ in range(height)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def text(words: str, **more: Any) -> TextContent:
    return TextContent(type="text", text=words, **more)


def audio(data: bytes, mime_type: str = "audio/wav") -> AudioContent:
    return AudioContent(type="audio", data=encoded(data), mime_type=mime_type)


def image(data: bytes, mime_type: str = "image/png") -> ImageContent:
    return ImageContent(type="image", data=encoded(data), mime_type=mime_type)


def link(uri: str, mime_type: str, title: str) -> ResourceLink:
    return ResourceLink(type="resource_link", uri=uri, name=title, mime_type=mime_type, size=12)


def mixed_server() -> MCPServer:
    server: MCPServer = MCPServer("mixed", log_level="CRITICAL")

    @server.tool(name="mixed")
    def mixed() -> CallToolResult:
        return CallToolResult(
            content=[
                text("two pieces and a picture"),
                audio((DATA / "chord.wav").read_bytes()),
                audio((DATA / "gapless.mp3").read_bytes(), "audio/mpeg"),
                image(png()),
                link("resource://notes", "text/plain", "../../notes\x1b[31m"),
                text("be brief", annotations=Annotations(audience=["assistant"])),
            ]
        )

    @server.tool(name="../../etc/passwd")
    def climbing() -> CallToolResult:
        return CallToolResult(content=[image(png()), image(b"<html></html>"), image(png(), "text/x-shell")])

    @server.tool(name="forecast")
    def forecast(repeat: bool = True) -> CallToolResult:
        said = json.dumps(FORECAST) if repeat else "cold"
        return CallToolResult(content=[text(said)], structured_content=FORECAST)

    @server.tool(name="markdown")
    def markdown() -> CallToolResult:
        return CallToolResult(content=[text(MARKDOWN), image(png()), image(png(9000, 1))])

    @server.tool(name="broken")
    def broken() -> CallToolResult:
        return CallToolResult(
            content=[text("it failed because " + HOSTILE), audio((DATA / "chord.wav").read_bytes())],
            is_error=True,
        )

    @server.tool(name="damaged")
    def damaged() -> CallToolResult:
        return CallToolResult(
            content=[
                AudioContent(type="audio", data="===", mime_type="audio/wav"),
                ImageContent(type="image", data="", mime_type="image/png"),
            ]
        )

    @server.tool(name="half")
    def half() -> CallToolResult:
        return CallToolResult(content=[audio(b"<html></html>"), audio((DATA / "chord.wav").read_bytes())])

    @server.tool(name="endless")
    def endless() -> CallToolResult:
        return CallToolResult(content=[link("resource://endless", "audio/wav", "endless")])

    @server.resource("resource://endless", mime_type="audio/wav")
    async def endless_music() -> bytes:
        # Blocks until the test reads it: a pipe with a name, in the folder that the server was started in.
        await trio.Path("reached").write_text("reached")
        await trio.sleep_forever()
        raise AssertionError

    return server


def main() -> None:
    trio.run(mixed_server().run_stdio_async)
