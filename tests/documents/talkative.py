"""A server that says everything an MCP server may say, to have its messages held against the schema."""

from __future__ import annotations

import base64
from typing import Any

import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Context = ServerRequestContext[Any, Any]

NOTE = types.Annotations(audience=["user"], priority=0.5, last_modified="2026-01-12T15:00:58Z")
META = {"com.example/key": [None, 1]}
ICON = types.Icon(src="https://example.org/i.png", mime_type="image/png", sizes=["48x48"], theme="dark")
BYTES = base64.b64encode(bytes(range(40))).decode()
LINK = types.ResourceLink(
    type="resource_link",
    uri="x://song",
    name="song",
    title="Song",
    description="A song.",
    mime_type="audio/wav",
    size=40,
    icons=[ICON],
    annotations=NOTE,
)
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "loud": {"type": "boolean"}},
    "required": ["name"],
}
ASK = types.ElicitRequest(params=types.ElicitRequestFormParams(message="Who?", requested_schema=FORM))
SAMPLE = types.CreateMessageRequest(
    params=types.CreateMessageRequestParams(
        messages=[types.SamplingMessage(role="user", content=types.TextContent(type="text", text="Say it."))],
        max_tokens=9,
        system_prompt="Be short.",
        temperature=0.5,
        model_preferences=types.ModelPreferences(speed_priority=1),
    )
)


def talkative_server() -> Server[Any]:
    bus = InMemorySubscriptionBus()

    async def list_tools(_: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        if params is None or params.cursor is None:
            names, following = ["everything", "progress"], "2"
        else:
            names, following = ["ask", "hang", "fail", "changed"], None
        return types.ListToolsResult(tools=[tool(name) for name in names], next_cursor=following)

    async def call(
        context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        match params.name:
            case "everything":
                return everything()
            case "progress":
                await context.session.report_progress(1, 2, "half")
                await context.session.send_notification(
                    types.LoggingMessageNotification(
                        params=types.LoggingMessageNotificationParams(
                            level="info", logger="talk", data={"at": 1}
                        )
                    ),
                    related_request_id=context.request_id,
                )
                return text("done")
            case "ask":
                return await ask(context, params)
            case "hang":
                await context.session.report_progress(0)
                await trio.sleep_forever()
            case "fail":
                return types.CallToolResult(content=[], is_error=True)
            case "changed":
                await bus.publish(ToolsListChanged())
                return text("told")
        raise MCPError(-32602, f"no such tool: {params.name}")

    async def resources(_: Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[types.Resource(uri="x://song", name="song", size=40, annotations=NOTE, icons=[ICON])]
        )

    async def templates(
        _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[types.ResourceTemplate(uri_template="x://{name}", name="any", title="Any")]
        )

    async def read(_: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        if params.uri != "x://song":
            raise MCPError(-32602, "no such resource", {"uri": params.uri})
        return types.ReadResourceResult(
            contents=[
                types.TextResourceContents(uri="x://song", mime_type="text/plain", text="la", _meta=META),
                types.BlobResourceContents(uri="x://song", mime_type="audio/wav", blob=BYTES),
            ]
        )

    async def done(_: Context, __: object) -> types.EmptyResult:
        return types.EmptyResult()

    async def prompts(_: Context, __: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        argument = types.PromptArgument(name="topic", description="What of.", required=True)
        return types.ListPromptsResult(prompts=[types.Prompt(name="sing", arguments=[argument])])

    async def prompt(_: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        said = types.TextContent(type="text", text=f"Sing of {(params.arguments or {}).get('topic')}.")
        return types.GetPromptResult(
            description="A song.",
            messages=[
                types.PromptMessage(role="user", content=said),
                types.PromptMessage(role="assistant", content=LINK),
            ],
        )

    async def complete(_: Context, __: types.CompleteRequestParams) -> types.CompleteResult:
        return types.CompleteResult(
            completion=types.Completion(values=["sea", "seasons"], total=2, has_more=False)
        )

    return Server(
        "talkative",
        version="1",
        title="Talkative",
        instructions="Ask anything.",
        website_url="https://example.org",
        icons=[ICON],
        on_list_tools=list_tools,
        on_call_tool=call,
        on_list_resources=resources,
        on_list_resource_templates=templates,
        on_read_resource=read,
        on_subscribe_resource=done,
        on_unsubscribe_resource=done,
        on_subscriptions_listen=ListenHandler(bus),
        on_list_prompts=prompts,
        on_get_prompt=prompt,
        on_completion=complete,
    )


def tool(name: str) -> types.Tool:
    return types.Tool(
        name=name,
        title=name.title(),
        description=f"It does {name}.",
        input_schema={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"a": {"type": "integer"}, "any": {}},
        },
        output_schema={"type": "object", "properties": {"a": {"type": "integer"}}},
        annotations=types.ToolAnnotations(
            title=name,
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
        icons=[ICON],
        _meta=META,
    )


def text(said: str) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=said)], structured_content={"a": 1}
    )


def everything() -> types.CallToolResult:
    contents = types.TextResourceContents(uri="x://notes", text="notes")
    blob = types.BlobResourceContents(uri="x://blob", blob=BYTES)
    return types.CallToolResult(
        content=[
            types.TextContent(type="text", text="héllo \u2028 \x00", annotations=NOTE, _meta=META),
            types.ImageContent(type="image", data=BYTES, mime_type="image/png"),
            types.AudioContent(type="audio", data=BYTES, mime_type="audio/wav", annotations=NOTE),
            LINK,
            types.EmbeddedResource(type="resource", resource=contents),
            types.EmbeddedResource(type="resource", resource=blob, _meta=META),
        ],
        structured_content={"a": 1, "deep": [{"b": None}]},
        _meta=META,
    )


async def ask(
    context: Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    """Questions of a server to its client: requests of its own, or in its result, by the protocol version."""
    roots = types.ListRootsRequest()
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        if params.input_responses is None:
            questions: dict[str, types.InputRequest] = {"who": ASK, "model": SAMPLE, "roots": roots}
            return types.InputRequiredResult(input_requests=questions, request_state="state")
        return text(f"{len(params.input_responses)} answers")
    session = context.session
    await session.send_request(types.PingRequest(), types.EmptyResult)
    await session.send_request(ASK, types.ElicitResult)
    await session.send_request(SAMPLE, types.CreateMessageResult)
    await session.send_request(roots, types.ListRootsResult)
    await session.send_tool_list_changed()
    await session.send_resource_updated("x://song")
    return text("asked")
