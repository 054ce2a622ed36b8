"""The pages and the graph that are shipped with the package: what is searched, read and asked about."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

_DATA: Final = "playhead.servers.template"
_WORD: Final = re.compile(r"[a-z0-9]+")
_TITLE_COUNTS: Final = 3
"""A word of the title counts as three of the text."""
_STOP_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        "a about an and are as at be but by for from have he her his how in is it its not of on or "
        "our she so that the their them there they this to was were what when where which who why "
        "will with you",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of the small encyclopaedia of sound."""

    slug: str
    title: str
    text: str

    @property
    def uri(self) -> str:
        """Under which it is a resource of this server."""
        return f"pages://{self.slug}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """All pages, in the order of their slugs."""

    pages: tuple[Page, ...]

    @classmethod
    def load(cls) -> Pages:
        """Reads the shipped file: some kilobytes."""
        found = json.loads(files(_DATA).joinpath("data/pages.json").read_text("utf-8"))
        return cls(pages=tuple(sorted((Page(**page) for page in found["pages"]), key=lambda page: page.slug)))

    def get(self, slug: str) -> Page | None:
        """The page with this slug."""
        return next((page for page in self.pages if page.slug == slug), None)

    def search(self, query: str, most: int) -> list[tuple[Page, float]]:
        """The `most` best pages and their scores, best first; none where no word of the query occurs.

        Each word counts by how often a page has it, and by how few pages do (tf-idf).
        """
        counts = [_counts(page) for page in self.pages]
        scores = [0.0] * len(counts)
        for word in set(words(query)):
            having = sum(word in page for page in counts)
            if having:
                rarity = math.log(1 + len(counts) / having)
                scores = [
                    score + rarity * (1 + math.log(page[word])) if page[word] else score
                    for score, page in zip(scores, counts, strict=True)
                ]
        found = [(page, score) for page, score in zip(self.pages, scores, strict=True) if score]
        return sorted(found, key=lambda pair: (-pair[1], pair[0].slug))[:most]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A node of the graph."""

    name: str
    kind: str
    page: str | None
    """The slug of the page about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """An edge: `source relation target`, read as a sentence."""

    source: str
    relation: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Who found what, and what rests on what."""

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]

    @classmethod
    def load(cls) -> Graph:
        """Reads the shipped file."""
        found = json.loads(files(_DATA).joinpath("data/graph.json").read_text("utf-8"))
        return cls(
            entities=tuple(Entity(**entity) for entity in found["entities"]),
            relations=tuple(
                Relation(source=source, relation=relation, target=target)
                for source, relation, target in found["relations"]
            ),
        )

    def get(self, name: str) -> Entity | None:
        """The entity of this name, upper and lower case alike."""
        wanted = " ".join(name.casefold().split())
        return next((entity for entity in self.entities if entity.name.casefold() == wanted), None)

    def around(
        self, entity: Entity, *, depth: int, relation: str | None
    ) -> tuple[list[Entity], list[Relation]]:
        """`entity` and what is within `depth` relations of it, in both directions, and those relations.

        A `relation` lets only relations of this name count.
        """
        edges = [edge for edge in self.relations if relation in (None, edge.relation)]
        reached, met = {entity.name}, []
        for _ in range(depth):
            met = [edge for edge in edges if edge.source in reached or edge.target in reached]
            reached |= {name for edge in met for name in (edge.source, edge.target)}
        return [each for each in self.entities if each.name in reached], met


def words(text: str) -> list[str]:
    """The words of a text that say something, in lower case."""
    return [word for word in _WORD.findall(text.casefold()) if word not in _STOP_WORDS]


def _counts(page: Page) -> Counter[str]:
    return Counter(words(page.text) + words(page.title) * _TITLE_COUNTS)
