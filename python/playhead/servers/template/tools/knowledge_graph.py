"""`knowledge_graph`: what an entity is related to, over the graph shipped with the package."""

from __future__ import annotations

import difflib
from typing import Any, Final

import mcp_types as types
import trio

from playhead.errors import UsageError
from playhead.servers.template.pages import Graph
from playhead.servers.template.tools.kit import Arguments, TemplateTool, answer

MAX_DEPTH: Final = 3

RELATIONS: Final = (
    "finds",
    "found",
    "founded",
    "is tuned in",
    "lived in",
    "played",
    "rests on",
    "studied",
    "worked at",
)

DEFINITION: Final = types.Tool(
    name="knowledge_graph",
    title="Knowledge graph",
    description="Says what a person, place, instrument, idea or codec of the history of sound is related to.",
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "entity": {
                "type": "string",
                "description": "Its name; upper and lower case do not matter.",
                "minLength": 1,
                "maxLength": 100,
                "examples": ["Claude Shannon"],
            },
            "relation": {
                "type": "string",
                "description": "Follow only relations of this name.",
                "enum": list(RELATIONS),
                "examples": ["found"],
            },
            "depth": {
                "type": "integer",
                "description": "How many relations away at most.",
                "minimum": 1,
                "maximum": MAX_DEPTH,
                "default": 1,
                "examples": [2],
            },
        },
        "required": ["entity"],
        "additionalProperties": False,
        "examples": [{"entity": "Claude Shannon"}, {"entity": "MP3", "relation": "rests on", "depth": 2}],
    },
    output_schema={
        "type": "object",
        "properties": {
            "entity": {"type": "string", "description": "The name as the graph writes it."},
            "entities": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "kind": {"enum": ["person", "place", "instrument", "idea", "codec"]},
                        "uri": {
                            "type": "string",
                            "format": "uri",
                            "description": "The page about it, to be read as a resource.",
                        },
                    },
                    "required": ["name", "kind"],
                    "additionalProperties": False,
                },
            },
            "relations": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "source": {"type": "string"},
                        "relation": {"enum": list(RELATIONS)},
                        "target": {"type": "string"},
                    },
                    "required": ["source", "relation", "target"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["entity", "entities", "relations"],
        "additionalProperties": False,
    },
    annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
)


def knowledge_graph(graph: Graph) -> TemplateTool:
    """The tool over a graph."""

    async def run(arguments: Arguments) -> types.CallToolResult:
        await trio.lowlevel.checkpoint()
        entity = graph.get(arguments["entity"])
        if entity is None:
            raise UsageError(_unknown(graph, arguments["entity"]))
        entities, relations = graph.around(
            entity, depth=arguments["depth"], relation=arguments.get("relation")
        )
        nodes: list[dict[str, Any]] = [
            {"name": each.name, "kind": each.kind} | ({"uri": f"pages://{each.page}"} if each.page else {})
            for each in entities
        ]
        edges = [
            {"source": each.source, "relation": each.relation, "target": each.target} for each in relations
        ]
        told = [f"{each.source} {each.relation} {each.target}." for each in relations]
        return answer(
            "\n".join(told) or f"{entity.name} has no such relation.",
            {"entity": entity.name, "entities": nodes, "relations": edges},
        )

    return TemplateTool(definition=DEFINITION, run=run)


def _unknown(graph: Graph, name: str) -> str:
    names = [entity.name for entity in graph.entities]
    near = difflib.get_close_matches(name.strip().title(), names, n=3)
    return f"the graph has no {name!r}; it has {', '.join(near or names)}"
