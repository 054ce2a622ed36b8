"""What can be read: each page as text, and one piece of music, whole or in ranges of bytes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import INVALID_PARAMS

from playhead.limits import MIB
from playhead.servers.template.codes import resource_not_found
from playhead.servers.template.pages import Pages

MUSIC_URI: Final = "music://first-light"
RANGE_TEMPLATE: Final = MUSIC_URI + "{?start,end}"
PAGE_TEMPLATE: Final = "pages://{slug}"
MOST_BYTES: Final = MIB
"""A longer range is answered with its first MiB: clients that read in ranges take a short page as it is."""

_MUSIC_MIME: Final = "audio/mpeg"
_LARGEST: Final = 2**53 - 1  # beyond it JSON numbers are no longer whole in every language
_EXPECTED: Final = f"expected whole numbers, 0 <= start < end, in bytes, in the URI like {RANGE_TEMPLATE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Everything that this server can be asked to read."""

    pages: Pages
    music: bytes

    @classmethod
    def load(cls, pages: Pages) -> Resources:
        """Reads the music that the package ships: blocking, and less than a megabyte."""
        return cls(
            pages=pages, music=files("playhead.servers.audio").joinpath("music/first-light.mp3").read_bytes()
        )

    def listed(self) -> list[types.Resource]:
        """All of them; the server cuts the list into pages."""
        music = types.Resource(
            uri=MUSIC_URI,
            name="first-light",
            title="First Light",
            description="A piece of a minute. Read it whole, or in ranges through the template.",
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
        """The forms of URI that are understood."""
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
        """Answers the params of a `resources/read`, as they came over the wire.

        Raises:
            MCPError: the code for an unknown resource (`codes.py`); -32602 for a range that is none.
        """
        uri = str(params.get("uri", ""))
        if uri.startswith("pages://"):
            page = self.pages.get(uri.removeprefix("pages://"))
            if page is not None:
                return types.ReadResourceResult(
                    contents=[types.TextResourceContents(uri=uri, mime_type="text/plain", text=page.text)]
                )
        elif (matched := UriTemplate.parse(RANGE_TEMPLATE).match(uri)) is not None:
            # Some clients write the range beside the URI; the SDK's typed params leave that out.
            beside = params.get("arguments")
            given = {**matched, **(beside if isinstance(beside, Mapping) else {})}
            start, end = _range(given.get("start"), given.get("end"), len(self.music))
            blob = base64.b64encode(self.music[start:end]).decode("ascii")
            return types.ReadResourceResult(
                contents=[types.BlobResourceContents(uri=uri, mime_type=_MUSIC_MIME, blob=blob)]
            )
        raise resource_not_found(
            revision, uri, f"no resource {uri[:200]!r} here; resources/list names what there is"
        )


def _range(start: object, end: object, size: int) -> tuple[int, int]:
    if start is None and end is None:
        return 0, size
    first, last = _offset(start, "start"), _offset(end, "end")
    if first >= last:
        raise MCPError(INVALID_PARAMS, f"start {first} is not before end {last}; {_EXPECTED}")
    return first, min(last, first + MOST_BYTES)


def _offset(value: object, name: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 16:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise MCPError(
            INVALID_PARAMS,
            f"{name} is {'missing' if value is None else repr(value)[:80]}; {_EXPECTED}",
        )
    return value
