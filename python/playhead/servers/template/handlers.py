"""`TemplateServer`: the handlers of the template server's requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp_types import PaginatedRequestParams

from playhead.content.revisions import downgrade
from playhead.errors import PlayheadError
from playhead.servers.template.metrics import Metrics
from playhead.servers.template.middleware import explain_errors, first_revision, not_found
from playhead.servers.template.pager import Pager
from playhead.servers.template.prompts import TemplatePrompt
from playhead.servers.template.resources import Resources
from playhead.servers.template.tools import TemplateTool, checked_arguments, failed

NAME: Final = "playhead-template"
DESCRIPTION: Final = "A small MCP server with one of everything, to copy from: tools, resources and prompts."

_Context = ServerRequestContext[dict[str, Any]]
_PageParams = PaginatedRequestParams | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateServer:
    """The handlers and their data. Nothing here changes, so any number of clients may share one instance."""

    tools: Mapping[str, TemplateTool]
    resources: Resources
    prompts: Mapping[str, TemplatePrompt]
    pager: Pager

    def server(self, metrics: Metrics) -> Server[dict[str, Any]]:
        """Return an SDK server with these handlers, for any transport. `metrics` counts its requests."""
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

    async def _list_tools(self, context: _Context, params: _PageParams) -> types.ListToolsResult:
        definitions = [tool.definition for tool in self.tools.values()]
        tools, cursor = self.pager.page("tools", definitions, params)
        return types.ListToolsResult(tools=tools, next_cursor=cursor)

    async def _call_tool(
        self, context: _Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = self.tools.get(params.name)
        if tool is None:
            raise not_found(context.protocol_version, "tool", params.name, self.tools)
        try:
            arguments = checked_arguments(tool.definition.input_schema, params.arguments or {})
            result = await tool.run(arguments)
        except PlayheadError as error:
            return failed(str(error))
        return downgrade(result, context.protocol_version)

    async def _list_resources(self, context: _Context, params: _PageParams) -> types.ListResourcesResult:
        resources, cursor = self.pager.page("resources", self.resources.listed(), params)
        return types.ListResourcesResult(resources=resources, next_cursor=cursor)

    async def _list_templates(
        self, context: _Context, params: _PageParams
    ) -> types.ListResourceTemplatesResult:
        templates, cursor = self.pager.page("templates", self.resources.templates(), params)
        return types.ListResourceTemplatesResult(resource_templates=templates, next_cursor=cursor)

    async def _read_resource(
        self, context: _Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return self.resources.read(context.params or {}, context.protocol_version)

    async def _list_prompts(self, context: _Context, params: _PageParams) -> types.ListPromptsResult:
        definitions = [prompt.definition for prompt in self.prompts.values()]
        prompts, cursor = self.pager.page("prompts", definitions, params)
        return types.ListPromptsResult(prompts=prompts, next_cursor=cursor)

    async def _get_prompt(
        self, context: _Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        prompt = self.prompts.get(params.name)
        if prompt is None:
            raise not_found(context.protocol_version, "prompt", params.name, self.prompts)
        return prompt.get(params.arguments or {})
