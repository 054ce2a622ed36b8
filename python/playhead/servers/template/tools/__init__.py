"""The tools of the template server. To add one: write a file beside these, and name it here."""

from __future__ import annotations

from playhead.servers.template.pages import Graph, Pages
from playhead.servers.template.tools.calculator import CALCULATOR
from playhead.servers.template.tools.document_analyzer import document_analyzer
from playhead.servers.template.tools.kit import TemplateTool
from playhead.servers.template.tools.knowledge_graph import knowledge_graph
from playhead.servers.template.tools.web_search import Engine, web_search


def all_tools(pages: Pages, graph: Graph, engine: Engine | None) -> dict[str, TemplateTool]:
    """Every tool by its name, in the order in which they are listed."""
    tools = (CALCULATOR, web_search(pages, engine), document_analyzer(pages), knowledge_graph(graph))
    return {tool.name: tool for tool in tools}
