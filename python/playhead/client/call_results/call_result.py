"""The result of a tool call: its raw blocks, the plan for them, and the contents that can be opened.

`results.classify` decides once what to do with a result; everything here is a view of that plan. Views are
computed on access, since most callers need one or two of them.

Links whose labels don't say whether they are audio are sniffed first (`sniffing`), and so are the URLs and
paths that a result gives in text or in `structuredContent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, assert_never

import trio

from playhead.cache import ETAG_META, LIVE_META, dated_validator, strong_etag
from playhead.client.call_results.media import (
    BytesMedia,
    ImageMedia,
    ResourceMedia,
    SessionStreams,
    Streams,
    checked,
)
from playhead.client.call_results.sniffing import Sniffing
from playhead.content import ABSENT, Block, Finding, parse_blocks
from playhead.content.blocks import fields_of
from playhead.content.formats import Base64Text, Postponed, as_string, postpone
from playhead.limits import Limits
from playhead.protocol import messages
from playhead.results.classify import classify
from playhead.results.kinds import view_of
from playhead.results.model_text import ModelText, text_for_model
from playhead.results.plan import (
    KeepReference,
    Part,
    Plan,
    PlayAudio,
    Policy,
    ReportUnknown,
    Respond,
    SendText,
    ShowImage,
    TurnDecision,
)
from playhead.results.responses import ErrorResponse, ResponseRegistry
from playhead.stream.options import StreamOptions

if TYPE_CHECKING:
    from mcp_types import ResourceLink


def with_reasons(plan: Plan, failed: Mapping[int, str]) -> Plan:
    """Return `plan` with the reason for each link that could not be sniffed."""
    if not failed:
        return plan
    return replace(
        plan,
        dispositions=tuple(
            replace(item, reason=f"{item.reason}; {failed[item.index]}")
            if isinstance(item, KeepReference) and item.index in failed
            else item
            for item in plan.dispositions
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult(Postponed):
    """The result of a tool call. Its media can be opened as long as the session is open."""

    raw: Mapping[str, Any]
    """The raw result."""
    blocks: tuple[Block, ...]
    is_error: bool
    plan: Plan
    """The disposition of each block, in order."""
    tool: str | None = None
    """The name of the tool that was called."""
    early_uris: frozenset[str] = frozenset()
    """The URIs that the call's progress named before, which `on_media` got."""
    streams: Streams = field(repr=False, compare=False)
    limits: Limits = field(repr=False, compare=False)
    _model_text: ModelText | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def turn(self) -> TurnDecision:
        """The decision whether a model is called again after this result, with its reason."""
        return self.plan.turn

    @property
    def text(self) -> str:
        """The text blocks, one per line, without structured responses: see `plan`, `errors`, `model_text`."""
        return "\n".join(
            item.text
            for item in self.plan.dispositions
            if isinstance(item, SendText) and item.block is not None and item.uri is None
        )

    @property
    def text_for_model(self) -> str:
        """The text for a model: all text, and a short line instead of each media item; never base64. Cut to
        its head and tail at `Limits.model_text_chars` (100,000)."""
        return self.model_text.text

    @property
    def model_text(self) -> ModelText:
        """`text_for_model`, with a handle to the full text if it was cut. Made once."""
        if self._model_text is None:
            made = text_for_model(self.plan, limit_chars=self.limits.model_text_chars)
            object.__setattr__(self, "_model_text", made)  # frozen to its users
            return made
        return self._model_text

    @property
    def media(self) -> tuple[ResourceMedia | BytesMedia, ...]:
        """The playable items, in order: links, audio blocks, blobs, and items of structured responses."""
        return tuple(self._playable(item) for item in self.plan.parts() if isinstance(item, PlayAudio))

    @property
    def late_media(self) -> tuple[ResourceMedia | BytesMedia, ...]:
        """`media` without what `on_media` got while the call went on."""
        return tuple(each for each in self.media if each.uri not in self.early_uris)

    @property
    def links(self) -> tuple[ResourceMedia, ...]:
        """All links to resources, in order, audio or not. A `data:` link is in `media` only."""
        return tuple(item for item in self.resources if isinstance(item, ResourceMedia))

    @property
    def resources(self) -> tuple[ResourceMedia | BytesMedia, ...]:
        """Everything that can be opened, in order: `media`, and all other links and blobs."""
        return tuple(resource for item in self.plan.parts() if (resource := self._opened(item)) is not None)

    @property
    def images(self) -> tuple[ImageMedia, ...]:
        """The images, in order, including images that can't be shown: their `data()` raises the reason."""
        return tuple(image for item in self.plan.parts() if (image := self._image(item)) is not None)

    @property
    def errors(self) -> tuple[str, ...]:
        """The tool's own error messages: the text of an `isError` result, and error responses."""
        texts: list[str] = []
        for item in self.plan.dispositions:
            if isinstance(item, Respond):
                failed = self.is_error or isinstance(item.response, ErrorResponse)
                texts += [part.text for part in item.parts if failed and isinstance(part, SendText)]
            elif isinstance(item, SendText) and item.is_error:
                texts.append(item.text)
        return tuple(texts)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The faults of the blocks."""
        return self.plan.findings

    # --- from a disposition to what can be opened --------------------------------------------------------

    def _playable(self, audio: PlayAudio) -> ResourceMedia | BytesMedia:
        if (base64 := audio.payload) is not None:  # a `data:` link too: no server has its bytes
            title = audio.title or audio.uri or "audio"
            # A plan plays valid base64 only.
            return checked(self._embedded(title, base64, audio.mime_type, audio.uri))
        if (fields := fields_of(audio.block)) and view_of(fields).kind == "link":
            return linked(fields, streams=self.streams, tool=self.tool)
        uri = audio.uri or ""
        return ResourceMedia(
            uri=uri,
            title=audio.title or uri,
            mime_type=audio.mime_type,
            size_bytes=audio.size_bytes,
            tool=self.tool,
            is_local=audio.is_local,
            streams=self.streams,
        )

    def _opened(self, item: Part | ReportUnknown) -> ResourceMedia | BytesMedia | None:
        match item:
            case PlayAudio():
                return self._playable(item)
            case KeepReference() | ShowImage() | SendText() | ReportUnknown():
                block = item.block
            case _:
                assert_never(item)
        if not (fields := fields_of(block)):
            return None
        view = view_of(fields)
        if view.kind == "link":
            return linked(fields, streams=self.streams, tool=self.tool)
        if view.kind == "image" or view.data is None:
            return None
        return self._embedded(view.uri or "audio", view.data, view.mime_type, view.uri)

    def _image(self, item: Part | ReportUnknown) -> ImageMedia | None:
        if isinstance(item, ShowImage):
            mime_type, base64 = item.mime_type, item.payload
        elif not (fields := fields_of(item.block)) or (view := view_of(fields)).kind != "image":
            return None
        else:
            mime_type, base64 = view.mime_type or "", view.data or ""
        return ImageMedia(mime_type=mime_type, base64=as_string(base64), block_bytes=self.limits.block_bytes)

    def _embedded(
        self, title: str, base64: Base64Text, mime_type: str | None, uri: str | None = None
    ) -> BytesMedia:
        return BytesMedia(
            title=title,
            mime_type=mime_type,
            base64=as_string(base64),
            block_bytes=self.limits.block_bytes,
            uri=uri,
        )


def linked(link: Mapping[str, Any], *, streams: Streams, tool: str | None = None) -> ResourceMedia:
    """Return the resource that a link of a result of `tool` leads to, by the fields of its block."""
    if link["type"] == "file":
        from playhead.content.mending import file_value  # the SDK's types

        file = file_value(link["file"], uri=link["file"]["uri"])
        return ResourceMedia(
            uri=file.uri,
            title=file.name or file.uri,
            mime_type=file.mime_type,
            size_bytes=file.size,
            file=file,
            tool=tool,
            validator="" if file.sha256 is None else f"sha-256 {file.sha256}",
            streams=streams,
        )
    return ResourceMedia(
        uri=link["uri"],
        title=link.get("title") or link["name"],
        description=link.get("description"),
        mime_type=link.get("mimeType"),
        size_bytes=link.get("size"),
        tool=tool,
        is_live=(link.get("_meta") or {}).get(LIVE_META) is True,
        validator=_validator(link),
        streams=streams,
    )


def _validator(link: Mapping[str, Any]) -> str:
    """Return the version that a link names: an entity tag or a digest, else its last change and its size.

    A size alone is not a version, because an edited recording may have the same size.
    """
    meta: Mapping[str, Any] = link.get("_meta") or {}
    for name, value in sorted(meta.items(), key=lambda item: item[0] != ETAG_META):
        kind = name.rpartition("/")[2]
        if kind == "etag" and (etag := strong_etag(value)) is not None:
            return etag
        if kind in {"digest", "sha256", "sha-256"} and isinstance(value, str):
            return f"{kind} {value}"
    modified, size = (link.get("annotations") or {}).get("lastModified"), link.get("size")
    return "" if modified is None or size is None else dated_validator(modified, size)


def as_media(what: ResourceLink | ResourceMedia | str, *, streams: Streams) -> ResourceMedia:
    """Make a playable resource of a link or a URI; a URI is its own title."""
    match what:
        case ResourceMedia():
            return what
        case str():
            return ResourceMedia(uri=what, title=what, streams=streams)
        case _:
            return linked(what.model_dump(by_alias=True), streams=streams)


async def classify_result(
    raw: dict[str, Any],
    *,
    policy: Policy,
    registry: ResponseRegistry,
    output_schema: object,
    streams: SessionStreams,
    options: StreamOptions,
    limits: Limits,
    server: str,
    tool: str | None = None,
    early_uris: frozenset[str] = frozenset(),
) -> CallResult:
    """Classify the raw result; links without telling labels are sniffed first.

    `options` are the defaults for streams. Deviations from `output_schema`, the tool's own if it has one, are
    findings. Raises what `parse_blocks` raises; a link that can't be read is not an error. Cancelling ends
    every read.
    """
    blocks = parse_blocks(raw, limits=limits, server=server)
    is_error = raw.get("isError") is True

    found = Sniffing(streams=streams, options=options, limits=limits)

    def new_plan() -> Plan:
        return classify(
            blocks,
            is_error=is_error,
            structured=raw.get("structuredContent", ABSENT),
            policy=policy,
            registry=registry,
            sniffed=found.audio,
            verdicts=found.verdicts,
            limits=limits,
        )

    plan = new_plan()
    if plan.unsettled or plan.candidates:  # never for what the policy forbids to sniff
        await found.run(plan, lambda index: linked(fields_of(blocks[index]), streams=streams, tool=tool))
        plan = with_reasons(new_plan(), found.failed)
    if output_schema is not None:
        # Imported when first needed: jsonschema takes a while, and most tools have no outputSchema.
        from playhead.content.validation import check_structured_content

        deviations = await trio.to_thread.run_sync(
            check_structured_content, raw, output_schema, abandon_on_cancel=True
        )
        plan = replace(plan, findings=(*plan.findings, *deviations))
    result = CallResult(
        raw=raw,
        blocks=blocks,
        is_error=is_error,
        plan=plan,
        tool=tool,
        early_uris=early_uris,
        streams=streams,
        limits=limits,
    )

    def plain(received: dict[str, Any]) -> dict[str, Any]:
        for block in blocks:
            _ = block.raw  # makes its string, which is then the same object in both
        return messages.plain(received)

    postpone(result, raw, raw=plain)
    return result
