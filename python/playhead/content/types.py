"""The types of content blocks for programs: the SDK's, and one for a file, which the SDK lacks."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from mcp_types import (
    Annotations,
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from pydantic import BaseModel, ConfigDict, Field

_HEX_SHA256: Final = re.compile("[0-9a-fA-F]{64}", re.ASCII)
_BASE64_SHA256: Final = re.compile("[A-Za-z0-9+/_-]{43}=?", re.ASCII)
_URL_SAFE: Final = str.maketrans("+/", "-_")


class FileValue(BaseModel):
    """A file to download outside of MCP (SEP-2631, a draft): its handle, and the server's description."""

    model_config = ConfigDict(populate_by_name=True, frozen=True)

    uri: str
    """The handle: the argument of `files/authorizeDownload`. `resources/read` may not accept it."""
    name: str | None = None
    mime_type: str | None = Field(default=None, alias="mimeType")
    size: int | None = None
    digest: dict[str, Any] | None = None
    """`{"sha-256": value}`, or `{"algorithm": "sha-256", "value": value}` in newer drafts."""

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of the file in hexadecimal; None if the server sent none, or an invalid one."""
        digest = self.digest or {}
        value = digest.get("sha-256")
        if str(digest.get("algorithm", "")).lower() == "sha-256":
            value = digest.get("value")
        if not isinstance(value, str):
            return None
        if _HEX_SHA256.fullmatch(value):
            return value.lower()
        if _BASE64_SHA256.fullmatch(value) is None:
            return None
        try:
            return base64.urlsafe_b64decode(value.rstrip("=").translate(_URL_SAFE) + "=").hex()
        except binascii.Error:
            return None


class FileContent(BaseModel):
    """A content block with a `FileValue`. The SDK has no type for it."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["file"] = "file"
    file: FileValue
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = Field(default=None, alias="_meta")


StandardContent = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
"""The blocks of the protocol's revisions."""
TypedContent = StandardContent | FileContent

KNOWN: Final[Mapping[str, type[TypedContent]]] = {
    "text": TextContent,
    "image": ImageContent,
    "audio": AudioContent,
    "resource_link": ResourceLink,
    "resource": EmbeddedResource,
    "file": FileContent,
}


def typed(kind: str, raw: Mapping[str, Any]) -> TypedContent:
    """Validate `raw` as a block of a known type. Raises `pydantic.ValidationError`."""
    # mypy reduces a union of models to their base class.
    content: Any = KNOWN[kind].model_validate(raw, by_name=False)
    return content  # type: ignore[no-any-return]
