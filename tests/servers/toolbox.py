"""An MCP server with a tool of every kind of result, each of which waits until the test lets it answer.

So a test decides what is over first: `Toolbox.let["a"].set()` lets the calls with the label `a` answer.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from pathlib import Path
from typing import Final

import trio
from mcp.server.mcpserver import MCPServer
from mcp_types import AudioContent, ImageContent, TextContent, ToolAnnotations

PNG: Final = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(22)).decode("ascii")
WAV: Final = (Path(__file__).parents[1] / "data" / "chord.wav").read_bytes()


class Toolbox:
    def __init__(self) -> None:
        self.let: defaultdict[str, trio.Event] = defaultdict(trio.Event)
        self.running: list[str] = []
        """Labels of the calls that have not answered."""
        self.cancelled: list[str] = []
        """Labels of those that the client cancelled."""
        self.server: MCPServer = MCPServer("box", log_level="CRITICAL")
        for tool in (self.echo, self.image, self.audio, self.fail):
            self.server.add_tool(tool)
        self.server.add_tool(
            self.wipe, description="Delete everything.", annotations=ToolAnnotations(destructive_hint=True)
        )

    async def echo(self, label: str, times: int = 1) -> str:
        """Say a label, once or several times."""
        await self._wait(label)
        return " ".join([f"{label}!"] * times)

    async def image(self) -> list[TextContent | ImageContent]:
        """A picture."""
        await self._wait("image")
        return [TextContent(text="a pixel"), ImageContent(data=PNG, mime_type="image/png")]

    async def audio(self) -> list[AudioContent]:
        """A chord."""
        await self._wait("audio")
        return [AudioContent(data=base64.b64encode(WAV).decode("ascii"), mime_type="audio/wav")]

    async def fail(self) -> str:
        """It never works."""
        await self._wait("fail")
        raise ValueError("out of order")

    async def wipe(self) -> str:
        await self._wait("wipe")
        return "all gone"

    async def _wait(self, label: str) -> None:
        self.running.append(label)
        try:
            await self.let[label].wait()
        except trio.Cancelled:
            self.cancelled.append(label)
            raise
        finally:
            self.running.remove(label)
