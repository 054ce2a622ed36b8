"""The MCP face of the template server: tools, resources and prompts as handlers of the SDK's server."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, PaginatedRequestParams

from playhead.content.revisions import downgrade
from playhead.errors import PlayheadError
from playhead.servers.template.codes import explain_errors, first_revision, prompt_not_found, tool_not_found
from playhead.servers.template.metrics import Metrics
from playhead.servers.template.prompts import TemplatePrompt
from playhead.servers.template.resources import Resources, ShippedPages
from playhead.servers.template.tools import TemplateTool, checked_arguments, failed
from playhead.servers.template.tools.calculator import CALCULATOR
from playhead.servers.template.tools.document_analyzer import document_analyzer
from playhead.servers.template.tools.knowledge_graph import KnowledgeGraph, knowledge_graph
from playhead.servers.template.tools.web_search import Engine, web_search

NAME: Final = "playhead-template"
DESCRIPTION: Final = "A small MCP server with one of everything, to copy from: tools, resources and prompts."

_Context = ServerRequestContext[dict[str, Any]]
_Page = types.PaginatedRequestParams | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateServer:
    """The handlers and what they use. They hold no state of their own: any number of clients may share
    them."""

    tools: Mapping[str, TemplateTool]
    resources: Resources
    prompts: Mapping[str, TemplatePrompt]
    pager: Pager

    def server(self, metrics: Metrics) -> Server[dict[str, Any]]:
        """A server of the SDK, for any transport; `metrics` counts its requests."""
        server = Server(
            NAME,
            version=version("playhead"),
            title="Template server",
            description=DESCRIPTION,
            instructions="Look up facts with web_search and knowledge_graph, and calculate with calculator.",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )
        server.middleware += [metrics.middleware, explain_errors, first_revision]
        return server

    async def _list_tools(self, context: _Context, params: _Page) -> types.ListToolsResult:
        definitions = [tool.definition for tool in self.tools.values()]
        tools, cursor = self.pager.page("tools", definitions, params)
        return types.ListToolsResult(tools=tools, next_cursor=cursor)

    async def _call_tool(
        self, context: _Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = self.tools.get(params.name)
        if tool is None:
            raise tool_not_found(
                context.protocol_version,
                f"unknown tool {params.name[:80]!r}; this server has {', '.join(self.tools)}",
            )
        try:
            arguments = checked_arguments(tool.definition.input_schema, params.arguments or {})
            result = await tool.run(arguments)
        except PlayheadError as error:
            return failed(str(error))
        return downgrade(result, context.protocol_version)

    async def _list_resources(self, context: _Context, params: _Page) -> types.ListResourcesResult:
        resources, cursor = self.pager.page("resources", self.resources.listed(), params)
        return types.ListResourcesResult(resources=resources, next_cursor=cursor)

    async def _list_templates(self, context: _Context, params: _Page) -> types.ListResourceTemplatesResult:
        templates, cursor = self.pager.page("templates", self.resources.templates(), params)
        return types.ListResourceTemplatesResult(resource_templates=templates, next_cursor=cursor)

    async def _read_resource(
        self, context: _Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return self.resources.read(context.params or {}, context.protocol_version)

    async def _list_prompts(self, context: _Context, params: _Page) -> types.ListPromptsResult:
        definitions = [prompt.definition for prompt in self.prompts.values()]
        prompts, cursor = self.pager.page("prompts", definitions, params)
        return types.ListPromptsResult(prompts=prompts, next_cursor=cursor)

    async def _get_prompt(
        self, context: _Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        prompt = self.prompts.get(params.name)
        if prompt is None:
            raise prompt_not_found(
                context.protocol_version,
                f"unknown prompt {params.name[:80]!r}; this server has {', '.join(self.prompts)}",
            )
        return prompt.get(params.arguments or {})


_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pager:
    """Cut listings into pages. They do not change while the server runs, so a cursor stays valid."""

    items: int
    """Of one page."""

    def page(
        self, listing: str, everything: Sequence[_Item], params: PaginatedRequestParams | None
    ) -> tuple[list[_Item], str | None]:
        """One page of the listing of this name, and the cursor of the next.

        Raises `MCPError` (-32602) for a cursor that this listing did not return.
        """
        start = 0
        if params is not None and params.cursor is not None:
            start = _offset(listing, params.cursor)
            if start % self.items or not 0 < start < len(everything):
                raise _unknown(params.cursor)
        end = start + self.items
        return list(everything[start:end]), _cursor(listing, end) if end < len(everything) else None


def _cursor(listing: str, offset: int) -> str:
    return base64.urlsafe_b64encode(f"{listing}:{offset}".encode()).decode()


def _offset(listing: str, cursor: str) -> int:
    try:
        name, _, offset = base64.urlsafe_b64decode(cursor.encode("ascii")).decode("ascii").partition(":")
    except (binascii.Error, ValueError):
        raise _unknown(cursor) from None
    if name != listing or not offset.isdecimal() or len(offset) > 9:
        raise _unknown(cursor)
    return int(offset)


def _unknown(cursor: str) -> MCPError:
    return MCPError(INVALID_PARAMS, f"unknown cursor {cursor[:80]!r}; start again without a cursor")


def all_tools(pages: ShippedPages, graph: KnowledgeGraph, engine: Engine | None) -> dict[str, TemplateTool]:
    """Every tool by its name, in the order of the listing."""
    tools = (CALCULATOR, web_search(pages, engine), document_analyzer(pages), knowledge_graph(graph))
    return {tool.name: tool for tool in tools}
