"""Routing of one content block, or one part of a structured response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mcp_types import (
    Annotations,
    BlobResourceContents,
    ImageContent,
    ResourceLink,
)

from playhead._core import check_base64
from playhead.content import Block, TypedContent
from playhead.content.audio import AudioFormat, has_signature, is_audio, sniff, split_mime
from playhead.content.blocks import FileValue
from playhead.content.findings import Finding
from playhead.content.formats import Base64Text, as_string, decoded_bytes, head_of_base64
from playhead.errors import Base64Error
from playhead.limits import Limits
from playhead.results.plan import KeepReference, Part, PlayAudio, Policy, SendText, ShowImage

_SILENT: Final = "audio, not played because the result is an error"
_FILMS: Final = frozenset({AudioFormat.MP4, AudioFormat.WEBM})
"""Containers used for video as often as audio: a signature alone is not enough to play them."""


@dataclass(slots=True, kw_only=True)
class PartMaker:
    """Build the parts of one plan, and collect findings and unsettled links."""

    is_error: bool
    policy: Policy
    sniffed: Mapping[int, bool]
    limits: Limits
    findings: list[Finding] = field(default_factory=list)
    unsettled: list[int] = field(default_factory=list)

    def part(self, index: int, block: Block | None, content: TypedContent, *, failed: bool = False) -> Part:
        """Route `content`. `block` is None for a part of a structured response, and `failed` is True if
        that response reports a failure."""
        # By `type`, not class: a negative isinstance check takes pydantic a microsecond.
        if content.type == "text":
            return self._text(index, block, content.text, content.annotations, failed=failed)
        if content.type == "audio":
            return self._audio(index, block, _payload(block, content.data), content.mime_type)
        if content.type == "image":
            return self._image(index, block, content)
        if content.type == "resource_link":
            return self._link(index, block, content, title=content.title or content.name)
        if content.type == "file":
            file = content.file
            return self._link(index, block, file, title=file.name or _last_segment(file.uri))
        resource = content.resource
        if isinstance(resource, BlobResourceContents):
            return self._blob(index, block, resource)
        return self._text(index, block, resource.text, content.annotations, failed=failed, uri=resource.uri)

    def _text(
        self,
        index: int,
        block: Block | None,
        text: str,
        annotations: Annotations | None,
        *,
        failed: bool,
        uri: str | None = None,
    ) -> SendText:
        return SendText(
            index=index,
            block=block,
            reason="text" if uri is None else "embedded text",
            text=text,
            to_user=annotations is not None and "user" in (annotations.audience or ()),
            is_error=failed or self.is_error,
            uri=uri,
        )

    def _image(self, index: int, block: Block | None, image: ImageContent) -> Part:
        data = _payload(block, image.data)
        size = decoded_bytes(data)
        fault = self._fault(index, block, "data", data)
        if fault is not None:
            return _kept(index, block, fault, mime_type=image.mime_type, size_bytes=size)
        return ShowImage(
            index=index,
            block=block,
            reason="an image",
            mime_type=image.mime_type,
            base64=as_string(data),
            size_bytes=size,
        )

    def _audio(
        self,
        index: int,
        block: Block | None,
        data: Base64Text,
        mime_type: str,
        *,
        title: str = "",
        key: str = "data",
    ) -> Part:
        size = decoded_bytes(data)
        fault = self._fault(index, block, key, data)
        if fault is not None or self.is_error:
            reason = fault or _SILENT
            return _kept(index, block, reason, title=title, mime_type=mime_type, size_bytes=size)
        return PlayAudio(
            index=index,
            block=block,
            reason="audio",
            source="audio",
            title=title,
            mime_type=mime_type,
            uri=None,
            base64=as_string(data),
            size_bytes=size,
        )

    def _blob(self, index: int, block: Block | None, resource: BlobResourceContents) -> Part:
        uri, mime_type, blob = resource.uri, resource.mime_type, _payload(block, resource.blob)
        title = _last_segment(uri)
        size = decoded_bytes(blob)
        audio = is_audio(mime_type, uri)
        if audio is None:
            audio = _has_audio_signature(head_of_base64(blob))
        fault = self._fault(index, block, "resource.blob", blob)
        if fault is not None or not audio or self.is_error:
            reason = fault or (_SILENT if audio else "a blob that is not audio")
            return _kept(index, block, reason, title=title, mime_type=mime_type, uri=uri, size_bytes=size)
        return PlayAudio(
            index=index,
            block=block,
            reason="a blob with an audio type",
            source="blob",
            title=title,
            mime_type=mime_type,
            uri=uri,
            base64=as_string(blob),
            size_bytes=size,
        )

    def _link(self, index: int, block: Block | None, link: ResourceLink | FileValue, *, title: str) -> Part:
        mime_type, uri = link.mime_type, link.uri
        if uri[:5].lower() == "data:":
            return self._inline(index, block, link, title)
        audio = is_audio(mime_type, uri)
        if audio is None and isinstance(link, FileValue):
            audio = is_audio(mime_type, link.name)  # the URI is a handle, the name has the suffix
        reason = "a link that is not audio"
        if audio is None and block is not None:
            audio = self.sniffed.get(index)
            if audio is None and self.policy.sniff_links and not self.is_error:
                self.unsettled.append(index)
                reason = "a link whose type and suffix are unknown"
        if audio and not self.is_error:
            return PlayAudio(
                index=index,
                block=block,
                reason="a link with an audio type",
                source="link",
                title=title,
                mime_type=mime_type,
                uri=uri,
                base64=None,
                size_bytes=link.size,
            )
        if audio:
            reason = _SILENT
        return _kept(index, block, reason, title=title, mime_type=mime_type, uri=uri, size_bytes=link.size)

    def _inline(self, index: int, block: Block | None, link: ResourceLink | FileValue, title: str) -> Part:
        """Route a `data:` URI (RFC 2397), which needs no read or sniffing."""
        header, _, data = link.uri[5:].partition(",")
        mime_type = link.mime_type or split_mime(header)[0]
        if is_audio(mime_type, None) and header.lower().endswith(";base64"):
            return self._audio(index, block, data, mime_type, title=title, key="uri")
        reason = "a link with inline data"
        return _kept(
            index, block, reason, title=title, mime_type=mime_type, uri=link.uri, size_bytes=link.size
        )

    def _fault(self, index: int, block: Block | None, key: str, data: Base64Text) -> str | None:
        """Return the defect of base64 data, and record it as a finding; None if valid."""
        size = decoded_bytes(data)
        if size > self.limits.block_bytes:
            allowed = self.limits.block_bytes
            expected = f"base64 of at most {allowed} bytes (Limits.block_bytes)"
            self._find(index, block, key, expected=expected, came=f"{size} bytes")
            return f"its {size} bytes exceed Limits.block_bytes ({allowed})"
        if not data:
            self._find(index, block, key, expected="base64", came="an empty string")
            return "it holds no bytes"
        try:
            check_base64(data)
        except Base64Error as error:
            self._find(index, block, key, expected="base64", came=f"an invalid character at {error.index}")
            return f"invalid base64 at character {error.index}"
        return None

    def _find(self, index: int, block: Block | None, key: str, *, expected: str, came: str) -> None:
        # The blocks of a structured response are inside its text.
        path = f"$.content[{index}].{key if block is not None else 'text'}"
        self.findings.append(Finding(path=path, expected=expected, came=came))


def _kept(
    index: int,
    block: Block | None,
    reason: str,
    *,
    mime_type: str | None,
    title: str = "",
    uri: str | None = None,
    size_bytes: int | None,
) -> KeepReference:
    return KeepReference(
        index=index,
        block=block,
        reason=reason,
        title=title,
        mime_type=mime_type,
        uri=uri,
        size_bytes=size_bytes,
    )


def _payload(block: Block | None, base64: str) -> Base64Text:
    """The base64 of a block, of whose content (`Block.outline`) it may be left out."""
    held = None if block is None else block.payload
    return base64 if held is None else held


def _has_audio_signature(head: bytes) -> bool:
    return has_signature(head) and sniff(head) not in _FILMS | {None}


def _last_segment(uri: str) -> str:
    """Name a resource after its URI. A `data:` URI contains no name."""
    return "" if uri[:5].lower() == "data:" else uri.rsplit("/", 1)[-1]
