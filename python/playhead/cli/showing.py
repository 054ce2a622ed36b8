"""Show a tool's result on the terminal: one renderer per disposition, in the order of the blocks.

Results go to stdout, remarks to stderr. The caller prints the tool's error, if any, at the end. No part of an
image's file name is from the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

import trio

from playhead.cli.targets import refusal, remedy
from playhead.cli.terminal import Terminal, escape_line, human_bytes
from playhead.client import TeeMedia
from playhead.client.call_results.spool import NotSaved, Saved
from playhead.content import ABSENT, UnknownBlock
from playhead.content.blocks import fields_of
from playhead.errors import PlayheadError
from playhead.results.kinds import view_of
from playhead.results.plan import KeepReference, PlayAudio, ReportUnknown, Respond, SendText, ShowImage
from playhead.results.responses import ContentResponse

if TYPE_CHECKING:
    from playhead.client import CallResult
    from playhead.client.call_results.media import ImageMedia
    from playhead.client.call_results.processing import ProcessedResult
    from playhead.config.outputs import SavedOutput
    from playhead.results.plan import Disposition, Part, TurnDecision

SHOWN_FINDINGS: Final = 20
"""Limits the findings that are shown. A result can have ten thousand; `--json` has them all."""


@dataclass(kw_only=True)
class Showing:
    """Show one result of `tool`. Images are saved in `folder`; None saves none."""

    tool: str
    terminal: Terminal
    folder: Path | None
    verbose: bool
    images: list[dict[str, object]] = field(default_factory=list)
    """Each image: its type, size, and the path or the reason for not saving it."""
    _structured: object = None
    """The structured content, until it is shown."""
    _hides_text: bool = False
    """True if a handler's message replaces the text blocks."""

    async def show(self, result: CallResult, *, turn: TurnDecision, message: str | None = None) -> None:
        """Show all blocks, then the structured content unless a block repeats it, then the remarks.

        `turn` is the decision with the tool's configuration applied. `message` is from the handler, and
        replaces the text blocks.
        """
        images = iter(result.images)
        structured = result.plan.structured if message is None else ABSENT
        self._structured = None if structured is ABSENT else structured
        self._hides_text = message is not None
        if message is not None:
            self.terminal.show_markdown(message)
        for disposition in result.plan.dispositions:
            await self._show(disposition, images)
        if self._structured is not None:
            self._show_json(self._structured)
        for refused in () if result.media else result.plan.refused:
            self._remark(f"not played: {refusal(refused)}", style="yellow")
        for finding in result.findings[:SHOWN_FINDINGS]:
            self._remark(f"note: {finding}", style="yellow")
        if len(result.findings) > SHOWN_FINDINGS:
            self._remark(f"and {len(result.findings) - SHOWN_FINDINGS} more notes; --json has them all")
        if self.verbose:
            self._remark(f"turn: {turn.decision} ({turn.reason})")

    async def _show(self, disposition: Disposition, images: Iterator[ImageMedia]) -> None:
        match disposition:
            case SendText():
                self._show_text(disposition)
            case PlayAudio():
                fields = fields_of(disposition.block)
                is_link = bool(fields) and view_of(fields).kind == "link"
                self._show_reference("link" if is_link else "audio", disposition)
            case ShowImage():
                await self._show_image(next(images))
            case KeepReference():
                self._show_reference(disposition.kind, disposition)
            case ReportUnknown():
                content = None if disposition.block is None else disposition.block.content
                kind = content.kind if isinstance(content, UnknownBlock) else ""
                kind = f"of type {escape_line(kind)}" if kind else "without a type"
                self.terminal.show(f"a block {kind}, which is not supported; --json shows it")
            case Respond():
                for part in disposition.parts:
                    await self._show(part, images)
                response = disposition.response
                if isinstance(response, ContentResponse) and response.data is not None:
                    self._show_json(response.data)
                elif self.verbose or not disposition.parts:
                    self._show_json(json.loads(response.to_json()))
            case _:
                assert_never(disposition)
        if self.verbose:
            self._remark(f"  block {disposition.index}: {disposition.reason}")

    def _show_text(self, text: SendText) -> None:
        if text.is_error or text.index < 0 or self._hides_text:
            # The caller shows an error at the end, and `show` structured content or a handler's message.
            return
        if text.uri is not None:
            self.terminal.show(f"text of <{escape_line(text.uri)}>:")
        if _equals_json(text.text, self._structured):  # the specification recommends this repetition
            self._show_json(self._structured)
            self._structured = None
            return
        notes = fields_of(text.block).get("annotations") or {}
        if text.uri is None and notes.get("audience") == ["assistant"]:
            self._remark("for the model:")
        self.terminal.show_markdown(text.text)

    def _show_reference(self, what: str, item: PlayAudio | KeepReference) -> None:
        parts: list[str] = []
        if item.title and item.title != item.uri:
            parts.append(escape_line(item.title))
        if item.uri is not None:
            parts.append(f"<{escape_line(item.uri)}>")
        size = "" if item.size_bytes is None else f", {human_bytes(item.size_bytes)}"
        kind = escape_line(item.mime_type) if item.mime_type else "unknown type"
        about = f"{' '.join(parts)} ({kind}{size})" if parts else f"{kind}{size}"
        # If audio or an image is not played or shown, say why.
        unused = isinstance(item, KeepReference) and item.kind in ("audio", "image")
        self.terminal.show(f"{what}: {about}" + (f", not used: {item.reason}" if unused else ""))

    async def _show_image(self, image: ImageMedia) -> None:
        kind = escape_line(image.mime_type)
        about: dict[str, object] = {
            "mime_type": image.mime_type,
            "size_bytes": image.size_bytes,
            "path": None,
        }
        self.images.append(about)
        line = f"image: {kind}, {human_bytes(image.size_bytes)}"
        try:
            data = image.data()
        except PlayheadError as error:
            about["not_saved"] = str(error)
            self.terminal.show(f"{line}, not saved: {error}")
            return
        if self.folder is None:
            about["not_saved"] = "as requested"
        elif len(self.images) > SAVED_IMAGES:
            about["not_saved"] = f"only the first {SAVED_IMAGES} of a result are saved"
            line += f", not saved: {about['not_saved']}"
        else:
            line += f", saved as {await self._save(data, image.mime_type, about)}"
        self.terminal.show(line)

    async def _save(self, data: bytes, mime_type: str, about: dict[str, object]) -> Path:
        from playhead.config.outputs.record import clean_mime, suffix_of

        assert self.folder is not None
        suffix = suffix_of(clean_mime(mime_type), data[:64])
        number = len(self.images)
        save = partial(save_image, data, self.folder, tool=self.tool, number=number, suffix=suffix)
        path = await trio.to_thread.run_sync(save)
        about["path"] = str(path)
        return path

    def _show_json(self, value: object) -> None:
        self.terminal.show(json.dumps(value, indent=2, ensure_ascii=False))

    def _remark(self, text: str, *, style: str = "dim") -> None:
        self.terminal.say(text, style=style)


def _equals_json(text: str, value: object) -> bool:
    if value is None or not text.lstrip().startswith(("{", "[")):
        return False
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


# --- images ------------------------------------------------------------------------------------------------

SAVED_IMAGES: Final = 100
"""Limits the images of one result that are saved, so that a server cannot fill the directory."""
_UNSAFE_CHARS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_CHARS: Final = 64


def save_image(data: bytes, folder: Path, *, tool: str, number: int, suffix: str) -> Path:
    """Write `data` as `TOOL-NUMBER.SUFFIX`, or under the first free `TOOL-NUMBER-2.SUFFIX`. Blocks.

    The name consists of the tool's name as the user typed it, a count, and a suffix from a table. It never
    replaces an existing file, and follows no link. Raises `OSError`, and then leaves no file.
    """
    stem = f"{_UNSAFE_CHARS.sub('-', tool).strip('-')[:_NAME_CHARS] or 'image'}-{number}"
    for again in count(1):
        path = folder / (f"{stem}.{suffix}" if again == 1 else f"{stem}-{again}.{suffix}")
        try:
            file = path.open("xb")
        except FileExistsError:
            continue
        try:
            with file:
                file.write(data)
        except OSError as error:
            path.unlink(missing_ok=True)
            error.filename = str(path)  # the error of a full disk names no file
            raise
        return path
    raise AssertionError("count() has no end")


# --- for --json --------------------------------------------------------------------------------------------


def result_report(tool: str, result: CallResult) -> dict[str, object]:
    """Return the `--json` report of a result. Base64 appears in `result` only, unchanged."""
    return {
        "tool": tool,
        "result": result.raw,
        "plan": [_disposition_report(item) for item in result.plan.dispositions],
        "turn": turn_report(result.turn),
        "text_for_model": result.text_for_model,
        "media": [
            {name: getattr(media, name) for name in ("title", "mime_type", "uri", "size_bytes")}
            for media in result.media
        ],
        "images": [],
        "saved": [],
        "candidates": [
            dict(zip(("row", "place", "address", "outcome"), each, strict=True))
            for each in _candidates(result)
        ],
        "findings": [asdict(finding) for finding in result.findings],
        "player": None,
    }


def _candidates(result: CallResult) -> Iterator[tuple[str, str, str, str]]:
    """Yield the row, place, address and outcome of each candidate for audio."""
    for part in result.plan.parts():
        if part.block is None or not isinstance(part, PlayAudio | KeepReference):
            continue
        if isinstance(part, PlayAudio) or part.kind != "image":
            outcome = "plays" if isinstance(part, PlayAudio) else f"not played: {part.reason}"
            yield "block", f"$.content[{part.index}]", part.uri or "", outcome
    for each in result.plan.candidates:
        if each.verdict is None:
            outcome = "not asked"
        elif each.row == "base64" or each.verdict.items:
            outcome = f"plays: {each.verdict.reason}"
        elif each.verdict.permission is not None:
            outcome = f"not allowed: {remedy(each)}"
        else:
            outcome = f"not played: {each.verdict.reason}"
        yield each.row, each.place, each.address, outcome


def candidate_rows(result: CallResult) -> Iterator[tuple[str, str]]:
    for row, place, address, outcome in _candidates(result):
        yield f"{row} {escape_line(place)}", f"{escape_line(address)} {escape_line(outcome)}".strip()


def turn_report(turn: TurnDecision) -> dict[str, object]:
    return {"decision": turn.decision, "reason": turn.reason}


_REPORTED_FIELDS: Final[Mapping[type[object], tuple[str, ...]]] = {
    SendText: ("to_user", "is_error"),
    PlayAudio: ("source", "title", "mime_type"),
    KeepReference: ("title", "mime_type", "uri"),
    ShowImage: ("mime_type", "size_bytes"),
    ReportUnknown: (),
}
"""The fields of each disposition that `--json` reports."""


def _disposition_report(item: Disposition | Part) -> dict[str, object]:
    about: dict[str, object] = {"index": item.index, "does": type(item).__name__, "reason": item.reason}
    if isinstance(item, Respond):
        return about | {
            "type": item.response.type,
            "parts": [_disposition_report(part) for part in item.parts],
        }
    return about | {name: getattr(item, name) for name in _REPORTED_FIELDS[type(item)]}


async def saved_report(
    processed: ProcessedResult, terminal: Terminal, *, played: bool
) -> list[dict[str, object]]:
    """Report the saved outputs on the terminal and for `--json`, with the streams if they were `played`."""
    outputs: list[dict[str, object]] = [_saved_output(output, terminal) for output in processed.saved]
    for media in processed.media if played else ():
        if not isinstance(media, TeeMedia):
            continue
        with trio.CancelScope(shield=True):  # even after an interrupt this returns at once
            outcome = await media.saved()
        match outcome:
            case Saved(output=output):
                outputs.append(_saved_output(output, terminal))
            case NotSaved(reason=reason):
                terminal.say(f"{media.title}: {reason}", style="yellow")
                outputs.append({"path": None, "title": media.title, "reason": reason})
    return outputs


def _saved_output(output: SavedOutput, terminal: Terminal) -> dict[str, object]:
    """Print the path of a saved output, and return the report on it."""
    terminal.say(f"saved as {output.path}", whole=True)
    return {"path": str(output.path), "mime_type": output.mime, "sha256": output.sha256}
