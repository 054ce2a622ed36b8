"""The result of a tool call: its raw blocks, the plan for them, and the contents that can be opened.

`results.classify` decides once what to do with a result; everything here is a view of that plan. Views are
computed on access, since most callers need one or two of them.

Links whose labels don't say whether they are audio are sniffed: one small read of their first bytes. So are
the URLs that a result gives in text or in `structuredContent`, from their origins. A result
costs at most `Limits.sniffed_links` reads, two at a time, and `Limits.sniff_seconds` in total. A read that
fails decides nothing: the link stays a link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, assert_never

import trio

from playhead.cache import ETAG_META, dated_validator, strong_etag
from playhead.client.call_results.media import BytesMedia, ImageMedia, ResourceMedia, Streams, checked
from playhead.concurrency import unwrap_exception_group
from playhead.content import ABSENT, Block, Finding, parse_blocks
from playhead.content.audio import SNIFF_BYTES, AudioFormat, is_audio, sniff
from playhead.content.blocks import fields_of
from playhead.content.formats import Base64Text, Postponed, as_string, postpone
from playhead.errors import PlayheadError
from playhead.limits import KIB, Limits
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

PAGE_BYTES: Final = 4 * KIB
"""Requested size. `SNIFF_BYTES` would do, but a server may round a range or refuse an odd one."""
CONCURRENT_READS: Final = 2
"""A server that ignores ranges answers each read with its whole resource, up to `Limits.message_bytes`."""
UTF16_MARK: Final = b"\xff\xfe"
"""Resembles an MPEG frame (Layer I, with a checksum), but is far more often text."""
AUDIO_BRANDS: Final = frozenset({b"M4A ", b"M4B "})
"""Brands of `ftyp` files (ISO 14496-12, 4.3) that hold audio only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SniffedLinks:
    """The findings about links from their first bytes, by block index."""

    audio: Mapping[int, bool]
    failed: Mapping[int, str]
    """The reason why a link could not be sniffed."""
    audio_urls: Mapping[str, str | None]
    """The URLs in text or `structuredContent` that are audio, with their origin's MIME type."""


def is_playable_audio(head: bytes) -> bool:
    """True if a resource that begins with `head` should be played without a request.

    Matroska and MP4, except for the audio-only brands of MP4, are as often films as music; their labels alone
    play nothing either (`content.audio.is_audio`).
    """
    audio_format = sniff(head)
    match audio_format:
        case None | AudioFormat.TEXT | AudioFormat.WEBM:
            return False
        case AudioFormat.MP4:
            return head[8:12] in AUDIO_BRANDS
        case _:
            return not head.startswith(UTF16_MARK)


async def sniff_links(
    blocks: Sequence[Block],
    plan: Plan,
    *,
    streams: Streams,
    options: StreamOptions,
    limits: Limits,
    tool: str | None = None,
) -> SniffedLinks:
    """Read the first bytes of the links that `plan` leaves unsettled, and of its candidates on the web.

    The type that an origin gives counts before the bytes. Never raises; cancelling ends every read.

    `options` are the session's own, adapted here to small reads.
    """
    audio: dict[int, bool] = {}
    failed: dict[int, str] = {}
    audio_urls: dict[str, str | None] = {}
    deadline = trio.current_time() + limits.sniff_seconds
    at_once = trio.CapacityLimiter(CONCURRENT_READS)
    small = replace(
        options,
        page_bytes=PAGE_BYTES,
        capacity_bytes=PAGE_BYTES,
        in_flight=1,
        profile="save",
        patience_seconds=limits.sniff_seconds,
        size_bytes=None,
        max_bytes=None,
        only_repeatable=True,
    )

    from_the_web = replace(small, strategy="http-range")

    async def head_of(media: ResourceMedia, how: StreamOptions) -> tuple[bytes, str | None] | str:
        """Return the first bytes and the MIME type of the answer, or why they could not be read."""
        head = bytearray()
        with trio.CancelScope(deadline=deadline):
            try:
                async with at_once, media.open(how) as stream:
                    while chunk := await stream.receive_some(SNIFF_BYTES - len(head)):
                        head += chunk
                        if len(head) == SNIFF_BYTES:
                            break
                    return bytes(head), stream.statistics().mime_type
            except PlayheadError as error:
                return f"its first bytes could not be read: {error}"
        return f"its first bytes did not arrive within {limits.sniff_seconds:g} s (Limits.sniff_seconds)"

    async def one(index: int) -> None:
        beginning = await head_of(linked(fields_of(blocks[index]), streams=streams, tool=tool), small)
        if isinstance(beginning, str):
            failed[index] = beginning
        else:
            audio[index] = is_playable_audio(beginning[0])

    async def ask(url: str) -> None:
        beginning = await head_of(as_media(url, streams=streams), from_the_web)
        if isinstance(beginning, str):
            return  # the text or the structured content says what there is
        head, mime_type = beginning
        is_labelled = is_audio(mime_type, None)
        if is_labelled or (is_labelled is None and is_playable_audio(head)):
            audio_urls[url] = mime_type

    with unwrap_exception_group():
        async with trio.open_nursery() as nursery:
            for count, index in enumerate(plan.unsettled):
                if count < limits.sniffed_links:
                    nursery.start_soon(one, index)
                else:
                    failed[index] = (
                        f"only the first {limits.sniffed_links} such links of a result are read"
                        " (Limits.sniffed_links)"
                    )
            for candidate in plan.candidates[: max(0, limits.sniffed_links - len(plan.unsettled))]:
                nursery.start_soon(ask, candidate.url)
    return SniffedLinks(audio=audio, failed=failed, audio_urls=audio_urls)


def with_reasons(plan: Plan, failed: Mapping[int, str]) -> Plan:
    """`plan`, with the reason for each link that could not be sniffed."""
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
    """The resource that a link of a result of `tool` leads to, by the fields of its block."""
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
        validator=_validator(link),
        streams=streams,
    )


def _validator(link: Mapping[str, Any]) -> str:
    """Return the version that a link names: an entity tag or a digest, else its last change and its size.

    A size alone is none: an edited recording may keep it.
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
    streams: Streams,
    options: StreamOptions,
    limits: Limits,
    server: str,
    tool: str | None = None,
) -> CallResult:
    """Classify the raw result; links without telling labels are sniffed first.

    `options` are the defaults for streams. Deviations from `output_schema`, the tool's own if it has one, are
    findings. Raises what `parse_blocks` raises; a link that can't be read is not an error. Cancelling ends
    every read.
    """
    blocks = parse_blocks(raw, limits=limits, server=server)
    is_error = raw.get("isError") is True

    def plan_with(sniffed: Mapping[int, bool], audio_urls: Mapping[str, str | None]) -> Plan:
        return classify(
            blocks,
            is_error=is_error,
            structured=raw.get("structuredContent", ABSENT),
            policy=policy,
            registry=registry,
            sniffed=sniffed,
            audio_urls=audio_urls,
            limits=limits,
        )

    plan = plan_with({}, {})
    if plan.unsettled or plan.candidates:  # never if the policy forbids sniffing
        sniff_results = await sniff_links(
            blocks, plan, streams=streams, options=options, limits=limits, tool=tool
        )
        plan = with_reasons(plan_with(sniff_results.audio, sniff_results.audio_urls), sniff_results.failed)
    if output_schema is not None:
        # Imported when first needed: jsonschema takes a while, and most tools have no outputSchema.
        from playhead.content.validation import check_structured_content

        deviations = await trio.to_thread.run_sync(
            check_structured_content, raw, output_schema, abandon_on_cancel=True
        )
        plan = replace(plan, findings=(*plan.findings, *deviations))
    result = CallResult(
        raw=raw, blocks=blocks, is_error=is_error, plan=plan, tool=tool, streams=streams, limits=limits
    )

    def plain(received: dict[str, Any]) -> dict[str, Any]:
        for block in blocks:
            _ = block.raw  # makes its string, which is then the same object in both
        return messages.plain(received)

    postpone(result, raw, raw=plain)
    return result
