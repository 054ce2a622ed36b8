"""A server of the SDK's whose tools give every kind of block, and whose list of tools grows.

In a test's own process: `sample_server()`. As a process of its own over stdio: `SAMPLE_COMMAND`.
"""

from __future__ import annotations

import base64
import json
from typing import Final

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import AudioContent, ImageContent, ResourceLink, TextContent

from tests.servers.launch import server_command

SAMPLE_COMMAND: Final = (*server_command("sample"),)


WAVE: Final = b"RIFF\x24\x08\x00\x00WAVEfmt " + bytes(range(256)) * 8
FLAC: Final = b"fLaC" + bytes(range(255, -1, -1)) * 9
PIXEL: Final = b"\x89PNG\r\n\x1a\n" + bytes(50)
NOTES: Final = b"what nobody would want to hear\n" * 40


def sample_server() -> MCPServer:
    server: MCPServer = MCPServer("sample", log_level="CRITICAL")
    reads: list[str] = []

    @server.tool()
    def mixed() -> list[TextContent | AudioContent | ImageContent | ResourceLink]:
        """Every kind of block, with a structured response in the middle."""
        said = {
            "type": "audio",
            "success": True,
            "timestamp": 1,
            "tool_name": "mixed",
            "data": encoded(FLAC),
            "music_name": "third",
            "action": "play",
            "status": "playing",
            "final_action": False,
        }
        return [
            TextContent(type="text", text="here they are:"),
            AudioContent(type="audio", data=encoded(WAVE), mime_type="audio/wav"),
            AudioContent(type="audio", data=encoded(FLAC), mime_type="audio/flac"),
            ImageContent(type="image", data=encoded(PIXEL), mime_type="image/png"),
            TextContent(type="text", text=json.dumps(said)),
            link("resource://plain/wave", mime_type="audio/wav", size=len(WAVE)),
            link("resource://plain/notes", mime_type="text/plain"),
        ]

    @server.tool()
    def links(uris: list[str]) -> list[ResourceLink]:
        """Links without a label."""
        return [link(uri) for uri in uris]

    @server.tool()
    def what_was_read() -> str:
        return json.dumps(reads)

    @server.resource("resource://plain/{name}")
    def plain(name: str) -> bytes:
        reads.append(name)
        return {"wave": WAVE, "flac": FLAC, "notes": NOTES}[name]

    @server.tool()
    async def grow(context: Context, times: int = 1) -> str:
        """Add a tool, and say so in the way of either era: the SDK drops the one that does not fit."""
        for _ in range(times):
            server.add_tool(extra, name=f"extra{len(await server.list_tools())}")
            await context.session.send_tool_list_changed()
            await context.notify_tools_changed()
        return "grown"

    return server


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def link(uri: str, *, mime_type: str | None = None, size: int | None = None) -> ResourceLink:
    name = uri.rpartition("/")[2]
    return ResourceLink(type="resource_link", uri=uri, name=name, mime_type=mime_type, size=size)


async def extra() -> str:
    return "extra"


def main() -> None:
    import trio

    trio.run(sample_server().run_stdio_async)
