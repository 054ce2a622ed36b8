"""A server with a tool that names audio in reports of its progress, and returns when it may."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
import trio
from mcp.server.lowlevel import Server

from playhead.cache import LINK_META
from playhead.servers.ranged_resource import ranged_resource
from tests.tones import sine, wave_file

RATE_HZ = 8000
FRAMES = 4000
FIRST, SECOND = "speech://first.wav", "speech://second.wav"
NOT_AUDIO = {"type": "resource_link", "uri": "notes://1", "name": "notes", "mimeType": "text/plain"}


@dataclass(slots=True, kw_only=True)
class EarlyLink:
    """The tool `speak`: its progress names the first of two pieces, and its result has both."""

    go_on: trio.Event = field(default_factory=trio.Event)
    """The tool returns when this is set."""

    def server(self) -> Server[Any]:
        server: Server[Any] = Server("early", on_list_tools=self._list_tools, on_call_tool=self._call)
        wave = wave_file(sine(FRAMES, RATE_HZ).tobytes(), RATE_HZ)
        self._links = [ranged_resource(server, uri, wave, mime_type="audio/wav") for uri in (FIRST, SECOND)]
        return server

    _links: list[Any] = field(init=False)

    async def _list_tools(self, *_: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="speak", input_schema={"type": "object"})])

    async def _call(self, context: Any, _params: object) -> types.CallToolResult:
        links = [await each.link() for each in self._links]
        first = links[0].model_dump(by_alias=True, mode="json", exclude_none=True)
        for progress, link in enumerate([NOT_AUDIO, "a string", first, first]):
            params = types.ProgressNotificationParams(
                progress_token=context.params["_meta"]["progressToken"],
                progress=progress,
                _meta={LINK_META: link},
            )
            await context.session.send_notification(
                types.ProgressNotification(params=params), context.request_id
            )
        await self.go_on.wait()
        return types.CallToolResult(content=links)
