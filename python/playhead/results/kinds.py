"""The kinds of content: what becomes of a block depends on its kind, never on its type.

Each type of block has one row here: its kind, and its fields under the names that all types share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from playhead.content.formats import Base64Text, decoded_bytes

Kind = Literal["text", "audio", "image", "link", "data"]


class BlockView(NamedTuple):
    """The fields of a valid block, whatever its type. A tuple is made in a third of a dataclass's time."""

    kind: Kind
    text: str = ""
    data: Base64Text | None = None
    """Base64 of audio, an image or data, under `data_key` of the block."""
    data_key: str = "data"
    mime_type: str | None = None
    uri: str | None = None
    """The address of a link or an embedded resource."""
    name: str | None = None
    """The name of a linked file: its suffix may tell the type if the URI, a handle, doesn't."""
    title: str = ""
    size_bytes: int | None = None
    """The size of `data` once decoded, or the size that a link announces, if any."""
    to_user: bool = False
    """True if the audience includes the user."""


def view_of(fields: Mapping[str, Any]) -> BlockView:
    """View the valid fields of a block (`Block.fields`)."""
    match fields["type"]:
        case "text":
            return BlockView("text", text=fields["text"], to_user=_is_for_user(fields))
        case "audio" | "image" as kind:
            data = fields["data"]
            return BlockView(kind, data=data, mime_type=fields["mimeType"], size_bytes=decoded_bytes(data))
        case "resource_link":
            title, mime_type, size = fields.get("title"), fields.get("mimeType"), fields.get("size")
            return BlockView(
                "link",
                uri=fields["uri"],
                title=title or fields["name"],
                mime_type=mime_type,
                size_bytes=size,
            )
        case "file":
            file = fields["file"]
            uri, name, mime_type, size = file["uri"], file.get("name"), file.get("mimeType"), file.get("size")
            title = name or _last_segment(uri)
            return BlockView("link", uri=uri, name=name, title=title, mime_type=mime_type, size_bytes=size)
        case "resource":
            contents = fields["resource"]
            uri, mime_type = contents["uri"], contents.get("mimeType")
            if "blob" not in contents:
                to_user = _is_for_user(fields)
                return BlockView("text", text=contents["text"], uri=uri, mime_type=mime_type, to_user=to_user)
            data, key, title = contents["blob"], "resource.blob", _last_segment(uri)
            size = decoded_bytes(data)
            return BlockView(
                "data", data=data, data_key=key, uri=uri, title=title, mime_type=mime_type, size_bytes=size
            )
        case other:
            raise AssertionError(f"expected a type of block with a kind, got {other!r}")


def _is_for_user(fields: Mapping[str, Any]) -> bool:
    return "user" in ((fields.get("annotations") or {}).get("audience") or ())


def _last_segment(uri: str) -> str:
    """Name a resource after its URI. A `data:` URI contains no name."""
    return "" if uri[:5].lower() == "data:" else uri.rsplit("/", 1)[-1]
