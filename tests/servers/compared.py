"""A server with one tool for each behaviour that a client can be compared by."""

from __future__ import annotations

import base64
from typing import Any

import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError

Context = ServerRequestContext[Any, Any]
MODERN = "2026-07-28"
BYTES = base64.b64encode(bytes(range(40))).decode()
FORM = types.ElicitRequestFormParams(
    message="Who?", requested_schema={"type": "object", "properties": {"name": {"type": "string"}}}
)
ASK = types.ElicitRequest(params=FORM)
SAMPLE = types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[], max_tokens=1))
NAMES = [f"n{number}" for number in range(7)]
PAGES: dict[str | None, tuple[list[str], str | None]] = {
    None: (NAMES[:3], "a b"),
    "a b": ([], ""),
    "": (NAMES[3:], None),
}


def text(said: object) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=str(said))])


class Peer:
    """The memory of the server of one test."""

    def __init__(self) -> None:
        self.started, self.cancelled = trio.Event(), trio.Event()
        self._bus = InMemorySubscriptionBus()

    async def call(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        session, id = context.session, context.request_id
        match params.name:
            case "echo":
                blob = types.BlobResourceContents(uri="x:b", blob=BYTES)
                return types.CallToolResult(
                    content=[
                        types.TextContent(type="text", text=f"{params.arguments} \u2028\x00", _meta={"k": 1}),
                        types.AudioContent(type="audio", data=BYTES, mime_type="audio/wav"),
                        types.EmbeddedResource(type="resource", resource=blob),
                    ],
                    structured_content={"a": [1, None, 1.5]},
                )
            case "fail":
                return types.CallToolResult(content=[], is_error=True)
            case "report":
                for step in (1, 2, 3):
                    await session.report_progress(step, 3, f"step {step}")
                note = types.LoggingMessageNotificationParams(level="info", data={"at": 1})
                await session.send_notification(types.LoggingMessageNotification(params=note), id)
                return text("reported")
            case "hang":
                self.started.set()
                try:
                    await trio.sleep_forever()
                finally:
                    self.cancelled.set()
            case "ask" if context.protocol_version != MODERN:
                return text((await session.elicit_form(FORM.message, FORM.requested_schema, id)).content)
            case "ask" if params.input_responses is None:
                return types.InputRequiredResult(input_requests={"who": ASK}, request_state='{"a": 1 }')
            case "ask":
                (reply,) = (params.input_responses or {}).values()
                assert isinstance(reply, types.ElicitResult)
                assert params.request_state == '{"a": 1 }'
                return text(reply.content)
            case "wonder":
                refusals = []
                dance: types.Request[Any, Any] = types.Request(method="dance", params={})
                for request in (SAMPLE, types.ListRootsRequest(), dance):
                    try:
                        await session.send_request(request, types.EmptyResult)  # type: ignore[arg-type]
                    except MCPError as error:
                        refusals.append((error.error.code, error.error.message))
                await session.send_request(types.PingRequest(), types.EmptyResult)
                return text(refusals)
            case "change":
                await session.send_tool_list_changed()
                await self._bus.publish(ToolsListChanged())
                return text("changed")
        raise MCPError(-32050, f"no tool {params.name}", {"reason": "none"})

    def server(self) -> Server[Any]:
        async def tools(_: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
            names, cursor = PAGES[params.cursor if params else None]
            listed = [types.Tool(name=name, input_schema={"type": "object"}) for name in names]
            return types.ListToolsResult(tools=listed, next_cursor=cursor)

        async def read(_: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
            return types.ReadResourceResult(
                contents=[types.BlobResourceContents(uri=params.uri, mime_type="audio/wav", blob=BYTES)]
            )

        async def prompt(_: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
            said = types.TextContent(type="text", text=f"{params.name} {params.arguments}")
            return types.GetPromptResult(messages=[types.PromptMessage(role="assistant", content=said)])

        return Server(
            "oracle",
            version="1",
            on_call_tool=self.call,
            on_list_tools=tools,
            on_read_resource=read,
            on_get_prompt=prompt,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
