"""The tool `knowledge_graph`: the relations of an entity, in the graph shipped with the package."""

from __future__ import annotations

import difflib
import json
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, Final

import mcp_types as types
import trio

from playhead.errors import UsageError
from playhead.servers.template.tools import Arguments, TemplateTool, answer

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
    description="Finds the relations of a person, place, instrument, idea or codec in the history of sound.",
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "entity": {
                "type": "string",
                "description": "Its name, in upper or lower case.",
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
                "description": "The greatest distance, in relations.",
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
                            "description": "The page about it, a resource of this server.",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A node of the graph."""

    name: str
    kind: str
    page: str | None
    """The slug of the page about the entity, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """An edge: `source relation target`, read as a sentence."""

    source: str
    relation: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeGraph:
    """People, places, instruments, ideas and codecs, and their relations."""

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]

    @classmethod
    def load(cls) -> KnowledgeGraph:
        """Read the shipped file."""
        text = files("playhead.servers.template").joinpath("data/graph.json").read_text("utf-8")
        graph = json.loads(text)
        return cls(
            entities=tuple(Entity(**entity) for entity in graph["entities"]),
            relations=tuple(
                Relation(source=source, relation=relation, target=target)
                for source, relation, target in graph["relations"]
            ),
        )

    def get(self, name: str) -> Entity | None:
        """Return the entity of this name, ignoring case, if any."""
        folded = " ".join(name.casefold().split())
        return next((entity for entity in self.entities if entity.name.casefold() == folded), None)

    def around(
        self, entity: Entity, *, depth: int, relation: str | None
    ) -> tuple[list[Entity], list[Relation]]:
        """Collect the entities within `depth` relations of `entity`, itself included, and those relations.

        A relation counts in both directions. With `relation`, only relations of this name count.
        """
        edges = [edge for edge in self.relations if relation in (None, edge.relation)]
        names, reached = {entity.name}, list[Relation]()
        for _ in range(depth):
            reached = [edge for edge in edges if edge.source in names or edge.target in names]
            for edge in reached:
                names |= {edge.source, edge.target}
        return [each for each in self.entities if each.name in names], reached


def knowledge_graph(graph: KnowledgeGraph) -> TemplateTool:
    """Return the tool over a graph."""

    async def run(arguments: Arguments) -> types.CallToolResult:
        await trio.lowlevel.checkpoint()
        entity = graph.get(arguments["entity"])
        if entity is None:
            raise UsageError(_unknown_entity(graph, arguments["entity"]))
        entities, relations = graph.around(
            entity, depth=arguments["depth"], relation=arguments.get("relation")
        )
        nodes: list[dict[str, Any]] = [
            {"name": each.name, "kind": each.kind} | ({"uri": f"pages://{each.page}"} if each.page else {})
            for each in entities
        ]
        edges = [asdict(each) for each in relations]
        sentences = [f"{each.source} {each.relation} {each.target}." for each in relations]
        return answer(
            "\n".join(sentences) or f"{entity.name} has no such relation.",
            {"entity": entity.name, "entities": nodes, "relations": edges},
        )

    return TemplateTool(definition=DEFINITION, run=run)


def _unknown_entity(graph: KnowledgeGraph, name: str) -> str:
    names = [entity.name for entity in graph.entities]
    near = difflib.get_close_matches(name.strip().title(), names, n=3)
    return f"unknown entity {name!r}; the graph has {', '.join(near or names)}"
