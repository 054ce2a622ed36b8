"""Classification of a tool result, without side effects: no I/O, no clock, no state.

| block | destination |
|---|---|
| text | the model, and the user if its audience includes them |
| text holding a structured response from a trusted tool | replaced by the content of the response |
| audio, blob with an audio type | the player |
| link with an audio type: by MIME type, else suffix, else first bytes | the player, in ranges |
| other link or blob | none: kept as a reference for the caller to read |
| image | the user, and a vision model |
| embedded text | the model |
| file (SEP-2631) | as a link |
| base64 in text or in `structuredContent` | the player, and the text with a line in its place |
| URL or path in text or in `structuredContent` | the player as well, if it leads to audio and is allowed |
| anything else | reported |

An error result plays nothing. A block whose base64 is invalid or too large becomes a reference with a
finding, so that nobody waits for audio that cannot arrive. Findings never stop a block from being classified.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, assert_never

from playhead._core import check_base64
from playhead.content import ABSENT, Block, UnknownBlock
from playhead.content.audio import AudioFormat, has_signature, is_audio, sniff, split_mime
from playhead.content.findings import Finding, kind_of
from playhead.content.formats import as_string, decoded_bytes, head_of_base64
from playhead.content.playlists import is_playlist
from playhead.errors import Base64Error, ResponseError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.results.candidates import (
    CandidateFinder,
    Verdict,
    is_parsed,
)
from playhead.results.kinds import BlockView, view_of
from playhead.results.model_text import audio_line
from playhead.results.plan import (
    DEFAULT_POLICY,
    AudioSource,
    Disposition,
    KeepReference,
    Part,
    Plan,
    PlayAudio,
    Policy,
    ReportUnknown,
    Respond,
    SendText,
    ShowImage,
    decide,
)
from playhead.results.responses import DEFAULT_REGISTRY, ResponseRegistry, StructuredResponse
from playhead.results.responses.registry import common_keys, parse
from playhead.results.responses.types import raw_content

_PLAYS: Final[Mapping[AudioSource, str]] = {
    "audio": "audio",
    "blob": "a blob with an audio type",
    "link": "a link with an audio type",
}
_FILMS: Final = frozenset({AudioFormat.MP4, AudioFormat.WEBM})
"""Containers that hold video as often as audio, so that a signature alone is not enough to play them."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The index of a part's block, and the block; it is None for a part of a structured response."""

    index: int
    block: Block | None

    def path(self, key: str) -> str:
        # The blocks of a structured response are inside its text.
        return f"$.content[{self.index}].{key if self.block is not None else 'text'}"


@dataclass(slots=True, kw_only=True)
class PartMaker:
    """Builds the parts of one plan, and collects findings and unsettled links."""

    is_error: bool
    policy: Policy
    sniffed: Mapping[int, bool]
    verdicts: Mapping[str, Verdict]
    limits: Limits
    findings: list[Finding] = field(default_factory=list)
    unsettled: list[int] = field(default_factory=list)

    def part(self, index: int, block: Block | None, view: BlockView, *, failed: bool = False) -> Part:
        """Route a block. `block` is None for a part of a structured response, and `failed` is True if that
        response reports a failure."""
        if view.kind == "text":
            return SendText(
                index=index,
                block=block,
                reason="text" if view.uri is None else "embedded text",
                text=view.text,
                to_user=view.to_user,
                is_error=failed or self.is_error,
                uri=view.uri,
            )
        at = _Place(index, block)
        match view.kind:
            case "audio":
                return self._playable(at, view, "audio", self._fault(at, view))
            case "image":
                return self._image(at, view)
            case "link":
                return self._link(at, view)
            case "data":
                return self._blob(at, view)
            case _:
                assert_never(view.kind)

    def _image(self, at: _Place, view: BlockView) -> Part:
        if (fault := self._fault(at, view)) is not None:
            return _kept(at, view, fault)
        return ShowImage(
            index=at.index,
            block=at.block,
            reason="an image",
            mime_type=view.mime_type or "",
            base64=as_string(view.data or ""),
            size_bytes=view.size_bytes or 0,
        )

    def _blob(self, at: _Place, view: BlockView) -> Part:
        if is_playlist(view.mime_type, view.uri or ""):
            return _kept(at, view, "a playlist")
        audio = is_audio(view.mime_type, view.uri)
        if audio is None:
            audio = _has_audio_signature(head_of_base64(view.data or ""))
        why_not = self._fault(at, view) or (None if audio else "a blob that is not audio")
        return self._playable(at, view, "blob", why_not)

    def _link(self, at: _Place, view: BlockView) -> Part:
        uri = view.uri or ""
        if uri[:5].lower() == "data:":
            return self._data_uri(at, view, uri)
        if is_playlist(view.mime_type, uri):
            return _kept(at, view, "a playlist")
        audio = is_audio(view.mime_type, uri)
        if audio is None and view.name is not None:
            audio = is_audio(view.mime_type, view.name)
        why_not = "a link that is not audio"
        if audio is None and at.block is not None:
            audio = self.sniffed.get(at.index)
            if audio is None and self.policy.sniff_links and not self.is_error:
                self.unsettled.append(at.index)
                why_not = "a link whose type and suffix are unknown"
        return self._playable(at, view, "link", None if audio else why_not)

    def _data_uri(self, at: _Place, view: BlockView, uri: str) -> Part:
        """Route a `data:` URI (RFC 2397), which needs no read or sniffing."""
        header, _, data = uri[5:].partition(",")
        mime_type = view.mime_type or split_mime(header)[0]
        view = view._replace(mime_type=mime_type)
        if is_playlist(mime_type, ""):
            return _kept(at, view, "a playlist")
        if is_audio(mime_type, None) and header.lower().endswith(";base64"):
            view = view._replace(uri=None, data=data, data_key="uri", size_bytes=decoded_bytes(data))
            return self._playable(at, view, "audio", self._fault(at, view))
        return _kept(at, view, "a link with inline data")

    def inline(self, index: int, finder: CandidateFinder, *, is_in_text: bool) -> Iterator[Part]:
        """Play the audio in text or in `structuredContent`."""
        for audio in finder.inline.get(index, ()):
            view, at = BlockView("audio", data=audio.base64), _Place(index, None)
            view = view._replace(
                mime_type=audio.mime_type, title=audio.title, size_bytes=decoded_bytes(audio.base64)
            )
            part = self._playable(at, view, "audio", self._fault(at, view))
            yield replace(part, is_in_text=is_in_text) if isinstance(part, PlayAudio) else part

    def addressed(self, index: int, finder: CandidateFinder) -> Iterator[PlayAudio]:
        """Play the audio to which text or `structuredContent` leads."""
        for candidate in finder.candidates.get(index, ()):
            if (verdict := self.verdicts.get(candidate.key)) is not None:
                for item in verdict.items:
                    yield PlayAudio(
                        index=index,
                        block=None,
                        reason=verdict.reason,
                        source="link",
                        title=item.title or candidate.title,
                        mime_type=item.mime_type,
                        uri=item.address,
                        base64=None,
                        is_local=item.address[:5] == "file:",
                    )

    def _playable(self, at: _Place, view: BlockView, source: AudioSource, why_not: str | None) -> Part:
        """Play the block, or keep it as a reference if the result is an error or `why_not` has a reason."""
        if why_not is not None or self.is_error:
            return _kept(at, view, why_not or "audio, not played because the result is an error")
        return PlayAudio(
            index=at.index,
            block=at.block,
            reason=_PLAYS[source],
            source=source,
            title=view.title,
            mime_type=view.mime_type,
            uri=view.uri,
            base64=None if view.data is None else as_string(view.data),
            size_bytes=view.size_bytes,
        )

    def _fault(self, at: _Place, view: BlockView) -> str | None:
        """Return the defect of a block's base64, and record it as a finding; None if it is valid."""
        data, key, size = view.data or "", view.data_key, view.size_bytes or 0
        allowed = self.limits.block_bytes
        if size > allowed:
            expected = f"base64 of at most {allowed} bytes (Limits.block_bytes)"
            self._find(at, key, f"{size} bytes", expected=expected)
            return f"its {size} bytes exceed Limits.block_bytes ({allowed})"
        if not data:
            self._find(at, key, "an empty string")
            return "it holds no bytes"
        try:
            check_base64(data)
        except Base64Error as error:
            self._find(at, key, f"an invalid character at {error.index}")
            return f"invalid base64 at character {error.index}"
        return None

    def _find(self, at: _Place, key: str, got: str, *, expected: str = "base64") -> None:
        self.findings.append(Finding(path=at.path(key), expected=expected, got=got))


def _kept(at: _Place, view: BlockView, reason: str) -> KeepReference:
    return KeepReference(
        index=at.index,
        block=at.block,
        reason=reason,
        kind=view.kind,
        title=view.title,
        mime_type=view.mime_type,
        uri=view.uri,
        size_bytes=view.size_bytes,
    )


def _has_audio_signature(head: bytes) -> bool:
    return has_signature(head) and sniff(head) not in _FILMS | {None}


_JSON_SPACE: Final = " \t\r\n"


def recognise(
    text: str, registry: ResponseRegistry, limits: Limits
) -> StructuredResponse | ResponseError | None:
    """Parse `text` as a structured response. Return None for any other text, an error for a near miss.

    A response is a JSON object with a registered `type`, a boolean `success` and a string `tool_name`. A near
    miss has the type and one of the other two, or all three and an invalid field.

    Text is parsed only if it starts with `{`, ends with `}`, and is within the limits of a message
    (`Limits.message_bytes`, `Limits.json_values`), because the message's own check counted it as one string.
    The parser rejects more than 200 levels.
    """
    bare = text.strip(_JSON_SPACE)
    if not (bare.startswith("{") and bare.endswith("}")) or not is_parsed(bare, limits):
        return None
    if not _names_a_response(bare):
        return None
    try:
        raw = parse(bare)
    except ValueError:
        return None
    fields = common_keys(raw)
    name, success, tool = fields.get("type"), fields.get("success"), fields.get("tool_name")
    reader = registry.reader(name) if isinstance(name, str) else None
    if reader is None:
        return None
    match isinstance(success, bool), isinstance(tool, str):
        case True, True:
            pass
        case True, False:
            return _wrong("tool_name", "a string", tool, there="tool_name" in fields)
        case False, True:
            return _wrong("success", "a boolean", success, there="success" in fields)
        case _:
            return None
    try:
        return reader(raw)
    except ResponseError as error:
        return error


def _names_a_response(text: str) -> bool:
    """Return True if `text` may contain `success` or `tool_name`, in any case and possibly escaped.

    Most JSON is parsed by its consumer, so this check avoids parsing it here as well.
    """
    folded = text.lower()
    return "success" in folded or "tool_name" in folded or "\\u" in text


def _wrong(key: str, expected: str, value: object, *, there: bool) -> ResponseError:
    got = kind_of(value) if there else "nothing"
    return ResponseError(
        f"expected {expected} at $.{key} of a structured response, got {got}",
        code="INVALID_FIELD",
        path=f"$.{key}",
        expected=expected,
        got=got,
    )


STRUCTURED_INDEX: Final = -1
"""The index of the disposition of `structuredContent`."""
_NOTHING: Final[Mapping[int, bool]] = MappingProxyType({})
_NO_VERDICTS: Final[Mapping[str, Verdict]] = MappingProxyType({})


def classify(
    blocks: Sequence[Block],
    *,
    is_error: bool,
    structured: object = ABSENT,
    policy: Policy = DEFAULT_POLICY,
    registry: ResponseRegistry = DEFAULT_REGISTRY,
    sniffed: Mapping[int, bool] = _NOTHING,
    verdicts: Mapping[str, Verdict] = _NO_VERDICTS,
    limits: Limits = DEFAULT_LIMITS,
) -> Plan:
    """Plan the handling of a result. Never raises because of server data.

    Args:
        blocks: Blocks of the result, in order (`playhead.content.parse_blocks`).
        is_error: The result's `isError`.
        structured: Its `structuredContent`, or `playhead.content.ABSENT` if missing (null is a value). Sent
            to the model as compact JSON if no block gives the model text.
        policy: Trust in structured responses, and the conditions that end the turn.
        registry: Known types of structured response.
        sniffed: Result of sniffing the links in `Plan.unsettled` of an earlier plan, by block index: True if
            the first bytes are audio. Until sniffed, such a link is kept as a reference.
        verdicts: The outcome of asking for the first bytes of `Plan.candidates` of an earlier plan, by
            address. Until asked, such an address is text.
        limits: `block_bytes` bounds the data to play or show; `message_bytes` and `json_values` bound the
            text parsed as a structured response.
    """
    maker = PartMaker(is_error=is_error, policy=policy, sniffed=sniffed, verdicts=verdicts, limits=limits)
    dispositions: list[Disposition] = []
    findings: list[Finding] = []
    views = [None if (fields := block.fields) is None else view_of(fields) for block in blocks]
    finder = _finder(views, limits, is_error=is_error)
    for index, (block, view) in enumerate(zip(blocks, views, strict=True)):
        if block.findings:
            findings += (
                replace(each, path=f"$.content[{index}]{each.path.removeprefix('$')}")
                for each in block.findings
            )
        if view is None:
            reason = block.content.reason if isinstance(block.content, UnknownBlock) else ""
            dispositions.append(ReportUnknown(index=index, block=block, reason=reason))
            continue
        if view.kind == "text" and view.uri is None and policy.trust_structured:
            response = recognise(view.text, registry, limits)
            if isinstance(response, ResponseError):
                findings.append(_finding(index, response))
            elif response is not None:
                dispositions.append(_respond(index, block, response, maker))
                continue
        if view.kind == "text" and view.uri is None and not is_error:
            text = finder.in_text(index, view.text)
            if text or not view.text:
                dispositions.append(maker.part(index, block, view._replace(text=text)))
            dispositions += maker.inline(index, finder, is_in_text=bool(text))
            dispositions += maker.addressed(index, finder)
        else:
            # The file of a link, or the entries of a playlist, take the place of their block.
            addressed = [*maker.addressed(index, finder)]
            dispositions += addressed or [maker.part(index, block, view)]
    if not is_error:
        structured = finder.in_structured(structured)
    has_model_text = any(isinstance(each, SendText | Respond) for each in dispositions)
    if structured is not ABSENT and not has_model_text:
        dispositions.append(_structured(structured, maker))
    dispositions += maker.inline(STRUCTURED_INDEX, finder, is_in_text=not has_model_text)
    dispositions += maker.addressed(STRUCTURED_INDEX, finder)
    return Plan(
        dispositions=tuple(dispositions),
        turn=decide(dispositions, is_error=is_error, policy=policy),
        is_error=is_error,
        findings=(*findings, *maker.findings),
        unsettled=tuple(maker.unsettled),
        candidates=tuple(
            each if each.row == "base64" else replace(each, verdict=verdicts.get(each.key))
            for candidates in finder.candidates.values()
            for each in candidates
            if each.row == "base64" or policy.sniff_links
        ),
        structured=structured,
    )


def _finder(views: Sequence[BlockView | None], limits: Limits, *, is_error: bool) -> CandidateFinder:
    """Return a finder that skips what the blocks hold: a block takes precedence over text with its audio."""
    known = [view for view in views if view is not None]
    finder = CandidateFinder(
        taken={view.uri or "" for view in known if view.kind == "link"},
        payloads=[view.data for view in known if view.data is not None and view.kind != "image"],
        limits=limits,
        describe=lambda audio: audio_line(audio.title, audio.mime_type, decoded_bytes(audio.base64)),
    )
    for index, view in enumerate(views):
        if view is None or is_error:
            continue
        if view.kind == "link":
            finder.in_link(index, view)
        elif view.uri is not None:
            finder.in_embedded(index, view)
    return finder


def _respond(index: int, block: Block, response: StructuredResponse, maker: PartMaker) -> Respond:
    failed = not response.success
    return Respond(
        index=index,
        block=block,
        reason=f"a structured response of type {response.type!r} from a trusted tool",
        response=response,
        parts=tuple(maker.part(index, None, view_of(each), failed=failed) for each in raw_content(response)),
    )


def _finding(index: int, error: ResponseError) -> Finding:
    path = f"$.content[{index}].text{error.path.removeprefix('$')}"
    return Finding(path=path, expected=f"{error.expected}, as in a structured response", got=error.got)


def _structured(structured: object, maker: PartMaker) -> SendText:
    try:
        text = json.dumps(structured, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        got = kind_of(structured)
        maker.findings.append(
            Finding(
                path="$.structuredContent", expected="a JSON value", got=f"{got} that JSON cannot represent"
            )
        )
        text = "[structuredContent that cannot be encoded as JSON]"
    return SendText(
        index=STRUCTURED_INDEX,
        block=None,
        reason="structuredContent, because no block gives the model text",
        text=text,
        to_user=False,
        is_error=maker.is_error,
    )
