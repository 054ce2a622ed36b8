"""The result of a tool call: every block as it came, what it means, and what can be opened in it.

What a result means is decided once, by `results.classify`; everything here is a view of that plan. Views are
made when they are asked for, since most callers look at one or two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

import trio
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from playhead.client.media import BytesMedia, ImageMedia, ResourceMedia, Streams
from playhead.client.sniffing import explained, look
from playhead.content import ABSENT, Block, Finding, parse_blocks
from playhead.limits import Limits
from playhead.results.classify import classify
from playhead.results.plan import (
    KeepReference,
    Part,
    Plan,
    PlaySound,
    ReportUnknown,
    Respond,
    SendText,
    ShowImage,
    Turn,
)
from playhead.results.policy import Policy
from playhead.results.responses import ErrorResponse, ResponseRegistry
from playhead.results.routing import ModelText, text_for_model
from playhead.stream.options import StreamOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """What a tool call gave back. Media can be opened for as long as the session is."""

    raw: Mapping[str, Any]
    """The result as it came on the wire."""
    blocks: tuple[Block, ...]
    is_error: bool
    plan: Plan
    """What is to happen with each block, in their order."""
    streams: Streams = field(repr=False, compare=False)
    limits: Limits = field(repr=False, compare=False)
    _model_text: ModelText | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def turn(self) -> Turn:
        """Whether a model is to be called again after this result, and why."""
        return self.plan.turn

    @property
    def text(self) -> str:
        """The text blocks, one a line. A structured response is none: see `plan`, `errors`, `model_text`."""
        return "\n".join(
            item.text
            for item in self.plan.dispositions
            if isinstance(item, SendText)
            and item.block is not None
            and isinstance(item.block.content, TextContent)
        )

    @property
    def text_for_model(self) -> str:
        """What a model is to read: all text, and a short line in place of each medium. Never base64. Longer
        ones are cut to their head and tail at `Limits.model_text_chars` (100,000)."""
        return self.model_text.text

    @property
    def model_text(self) -> ModelText:
        """`text_for_model`, with a handle to the whole of it where it was cut. Made once."""
        if self._model_text is None:
            made = text_for_model(self.plan, limit_chars=self.limits.model_text_chars)
            object.__setattr__(self, "_model_text", made)  # frozen to its users
            return made
        return self._model_text

    @property
    def media(self) -> tuple[ResourceMedia | BytesMedia, ...]:
        """What can be played, in order: links, audio blocks, blobs, and what structured responses bring."""
        return tuple(self._sound(item) for item in self._parts() if isinstance(item, PlaySound))

    @property
    def links(self) -> tuple[ResourceMedia, ...]:
        """Every link that leads elsewhere, in order, sound or not; one that holds its sound is in `media`."""
        return tuple(item for item in self.resources if isinstance(item, ResourceMedia))

    @property
    def resources(self) -> tuple[ResourceMedia | BytesMedia, ...]:
        """Everything that can be opened, in order, whatever it is: `media`, and the other links and blobs."""
        return tuple(found for item in self._parts() if (found := self._opened(item)) is not None)

    @property
    def images(self) -> tuple[ImageMedia, ...]:
        """The images, in order, those too that can't be shown: their `data()` says why."""
        return tuple(found for item in self._parts() if (found := self._image(item)) is not None)

    @property
    def errors(self) -> tuple[str, ...]:
        """What went wrong, in the tool's words: the texts of an `isError` result, and error responses."""
        found: list[str] = []
        for item in self.plan.dispositions:
            if isinstance(item, Respond):
                failed = self.is_error or isinstance(item.response, ErrorResponse)
                found += [part.text for part in item.parts if failed and isinstance(part, SendText)]
            elif isinstance(item, SendText) and item.is_error:
                found.append(item.text)
        return tuple(found)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was wrong with the blocks."""
        return self.plan.findings

    # --- from a disposition to what can be opened --------------------------------------------------------

    def _parts(self) -> Iterator[Part | ReportUnknown]:
        """The dispositions, with a structured response's own in its place."""
        for item in self.plan.dispositions:
            if isinstance(item, Respond):
                yield from item.parts
            else:
                yield item

    def _sound(self, sound: PlaySound) -> ResourceMedia | BytesMedia:
        if sound.base64 is not None:  # a `data:` link too: its bytes are here, and no server has them
            return self._held(sound.title or sound.uri or "audio", sound.base64, sound.mime_type, sound.uri)
        if sound.block is not None and isinstance(sound.block.content, ResourceLink):
            return linked(sound.block.content, streams=self.streams)
        uri = sound.uri or ""
        return ResourceMedia(
            uri=uri,
            title=sound.title or uri,
            mime_type=sound.mime_type,
            size_bytes=sound.size_bytes,
            streams=self.streams,
        )

    def _opened(self, item: Part | ReportUnknown) -> ResourceMedia | BytesMedia | None:
        match item:
            case PlaySound():
                return self._sound(item)
            case KeepReference() | ShowImage() | SendText() | ReportUnknown():
                content = item.block.content if item.block is not None else None
            case _:
                assert_never(item)
        match content:
            case ResourceLink():
                return linked(content, streams=self.streams)
            case AudioContent(data=data, mime_type=mime_type):
                return self._held("audio", data, mime_type)
            case EmbeddedResource(resource=BlobResourceContents() as inner):
                return self._held(inner.uri, inner.blob, inner.mime_type, inner.uri)
            case _:
                return None

    def _image(self, item: Part | ReportUnknown) -> ImageMedia | None:
        if isinstance(item, ShowImage):
            mime_type, data = item.mime_type, item.base64
        elif item.block is not None and isinstance(item.block.content, ImageContent):
            mime_type, data = item.block.content.mime_type, item.block.content.data
        else:
            return None
        return ImageMedia(mime_type=mime_type, base64=data, block_bytes=self.limits.block_bytes)

    def _held(self, title: str, data: str, mime_type: str | None, uri: str | None = None) -> BytesMedia:
        return BytesMedia(
            title=title,
            mime_type=mime_type,
            base64=data,
            block_bytes=self.limits.block_bytes,
            uri=uri,
        )


def linked(link: ResourceLink, *, streams: Streams) -> ResourceMedia:
    """What a link leads to."""
    return ResourceMedia(
        uri=link.uri,
        title=link.title or link.name,
        description=link.description,
        mime_type=link.mime_type,
        size_bytes=link.size,
        streams=streams,
    )


def as_media(what: ResourceLink | ResourceMedia | str, *, streams: Streams) -> ResourceMedia:
    """Something that a player accepts: a URI alone is its own title."""
    match what:
        case ResourceMedia():
            return what
        case str():
            return ResourceMedia(uri=what, title=what, streams=streams)
        case ResourceLink():
            return linked(what, streams=streams)
        case _:
            assert_never(what)


async def understood(
    raw: Mapping[str, Any],
    *,
    policy: Policy,
    registry: ResponseRegistry,
    output_schema: object,
    streams: Streams,
    options: StreamOptions,
    limits: Limits,
    server: str,
) -> CallResult:
    """The result that came as `raw`, classified; links that say nothing of themselves are looked at first.

    `options` are those of a stream that brings none; `output_schema` is the tool's, where it has one: what
    doesn't conform to it is a finding. Raises what `parse_blocks` does; a link that can't be
    read is no error. Cancelling ends every read.
    """
    blocks = parse_blocks(raw, limits=limits, server=server)
    is_error = raw.get("isError") is True

    def plan_with(sniffed: Mapping[int, bool]) -> Plan:
        return classify(
            blocks,
            is_error=is_error,
            structured=raw.get("structuredContent", ABSENT),
            policy=policy,
            registry=registry,
            sniffed=sniffed,
            limits=limits,
        )

    plan = plan_with({})
    if plan.unsettled:  # never where the policy says not to look
        looks = await look(blocks, plan, streams=streams, options=options, limits=limits)
        plan = explained(plan_with(looks.sound), looks.failed)
    if output_schema is not None:
        # Imported when first needed: jsonschema takes a while, and most tools have no outputSchema.
        from playhead.content.validation import check_structured_content

        found = await trio.to_thread.run_sync(
            check_structured_content, raw, output_schema, abandon_on_cancel=True
        )
        plan = replace(plan, findings=(*plan.findings, *found))
    return CallResult(raw=raw, blocks=blocks, is_error=is_error, plan=plan, streams=streams, limits=limits)
