"""`Resources`: the pages shipped with the package, and a piece of music that clients read in ranges."""

from __future__ import annotations

import base64
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import INVALID_PARAMS

from playhead.limits import MIB
from playhead.servers.template.middleware import resource_not_found

_PACKAGE: Final = "playhead.servers.template"
_WORD: Final = re.compile(r"[a-z0-9]+")
_TITLE_WEIGHT: Final = 3
"""A word in the title counts as much as this number of occurrences in the page."""
_STOP_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        "a about an and are as at be but by for from have he her his how in is it its not of on or "
        "our she so that the their them there they this to was were what when where which who why "
        "will with you",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedPage:
    """A page of the small encyclopaedia of sound."""

    slug: str
    title: str
    text: str

    @property
    def uri(self) -> str:
        """The URI of the resource that is this page."""
        return f"pages://{self.slug}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedPages:
    """All pages, in the order of their slugs."""

    pages: tuple[ShippedPage, ...]

    @classmethod
    def load(cls) -> ShippedPages:
        """Read the shipped file: some kilobytes."""
        document = json.loads(files(_PACKAGE).joinpath("data/pages.json").read_text("utf-8"))
        pages = [ShippedPage(**page) for page in document["pages"]]
        return cls(pages=tuple(sorted(pages, key=lambda page: page.slug)))

    def get(self, slug: str) -> ShippedPage | None:
        """Return the page with this slug, if any."""
        return next((page for page in self.pages if page.slug == slug), None)

    def search(self, query: str, most: int) -> list[tuple[ShippedPage, float]]:
        """Return the `most` best pages and their scores, best first; empty if none of the words occurs.

        The weight of a word is its tf-idf: it grows with its count in the page, and with its rarity in
        others.
        """
        counts = [_word_counts(page) for page in self.pages]
        scores = [0.0] * len(counts)
        for word in set(words(query)):
            pages_with_word = sum(1 for page in counts if word in page)
            if pages_with_word:
                rarity = math.log(1 + len(counts) / pages_with_word)
                scores = [
                    score + rarity * (1 + math.log(page[word])) if page[word] else score
                    for score, page in zip(scores, counts, strict=True)
                ]
        hits = [(page, score) for page, score in zip(self.pages, scores, strict=True) if score]
        return sorted(hits, key=lambda pair: (-pair[1], pair[0].slug))[:most]


def words(text: str) -> list[str]:
    """Return the significant words of `text`, in lower case."""
    return [word for word in _WORD.findall(text.casefold()) if word not in _STOP_WORDS]


def _word_counts(page: ShippedPage) -> Counter[str]:
    return Counter(words(page.text) + words(page.title) * _TITLE_WEIGHT)


MUSIC_URI: Final = "music://first-light"
RANGE_TEMPLATE: Final = MUSIC_URI + "{?start,end}"
PAGE_TEMPLATE: Final = "pages://{slug}"
MOST_BYTES: Final = MIB
"""Limits a page. A longer range is answered with its first MiB, because clients accept a short page."""

_MUSIC_MIME: Final = "audio/mpeg"
_LARGEST_OFFSET: Final = 2**53 - 1
"""Limits an offset. Beyond it, JSON numbers are not exact in every language."""
_EXPECTED_RANGE: Final = (
    f"expected whole numbers, 0 <= start < end, in bytes, in the URI like {RANGE_TEMPLATE}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The readable resources of this server."""

    pages: ShippedPages
    music: bytes

    @classmethod
    def load(cls, pages: ShippedPages) -> Resources:
        """Read the shipped music, less than a megabyte. Blocking."""
        return cls(
            pages=pages, music=files("playhead.servers.audio").joinpath("music/first-light.mp3").read_bytes()
        )

    def listed(self) -> list[types.Resource]:
        """List all resources; the server cuts the list into pages."""
        music = types.Resource(
            uri=MUSIC_URI,
            name="first-light",
            title="First Light",
            description="A piece of one minute. Read it whole, or in ranges through the template.",
            mime_type=_MUSIC_MIME,
            size=len(self.music),
        )
        pages = [
            types.Resource(
                uri=page.uri,
                name=page.slug,
                title=page.title,
                description=page.text.partition(". ")[0].rstrip(".") + ".",
                mime_type="text/plain",
                size=len(page.text.encode()),
            )
            for page in self.pages.pages
        ]
        return [music, *pages]

    def templates(self) -> list[types.ResourceTemplate]:
        """List the URI templates that `read` understands."""
        return [
            types.ResourceTemplate(
                name="page",
                title="Page",
                uri_template=PAGE_TEMPLATE,
                description="A page of the encyclopaedia by its slug, such as sampling.",
                mime_type="text/plain",
            ),
            types.ResourceTemplate(
                name="music_range",
                title="Range of First Light",
                uri_template=RANGE_TEMPLATE,
                description="Bytes [start, end), from 0; a range past the end gives an empty blob.",
                mime_type=_MUSIC_MIME,
            ),
        ]

    def read(self, params: Mapping[str, object], revision: str) -> types.ReadResourceResult:
        """Answer the params of a `resources/read`, as received.

        Raises:
            MCPError: the code for an unknown resource (`middleware.py`); -32602 for an invalid range.
        """
        uri = str(params.get("uri", ""))
        if uri.startswith("pages://"):
            page = self.pages.get(uri.removeprefix("pages://"))
            if page is not None:
                return types.ReadResourceResult(
                    contents=[types.TextResourceContents(uri=uri, mime_type="text/plain", text=page.text)]
                )
        elif (matched := UriTemplate.parse(RANGE_TEMPLATE).match(uri)) is not None:
            # Some clients send the range alongside the URI; the SDK's typed params drop that.
            arguments = params.get("arguments")
            values = {**matched, **(arguments if isinstance(arguments, Mapping) else {})}
            start, end = _requested_range(values.get("start"), values.get("end"), len(self.music))
            blob = base64.b64encode(self.music[start:end]).decode("ascii")
            return types.ReadResourceResult(
                contents=[types.BlobResourceContents(uri=uri, mime_type=_MUSIC_MIME, blob=blob)]
            )
        raise resource_not_found(
            revision, uri, f"unknown resource {uri[:200]!r}; resources/list names the resources"
        )


def _requested_range(start: object, end: object, size: int) -> tuple[int, int]:
    """Check a range and cut it to `MOST_BYTES`. Without `start` and `end`, it is the whole music."""
    if start is None and end is None:
        return 0, size
    first, last = _offset(start, "start"), _offset(end, "end")
    if first >= last:
        raise MCPError(INVALID_PARAMS, f"start {first} is not before end {last}; {_EXPECTED_RANGE}")
    return first, min(last, first + MOST_BYTES)


def _offset(value: object, name: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 16:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST_OFFSET:
        raise MCPError(
            INVALID_PARAMS,
            f"{name} is {'missing' if value is None else repr(value)[:80]}; {_EXPECTED_RANGE}",
        )
    return value
