"""Apply a tool's configuration to its result: handler, saving, routing, in this order.

Nothing here can lose a result. A failed handler and a full disk are reported alongside it, and the text is
then the same as without them. Error results are passed through: no handler sees them, nothing is
saved, and the model gets them whatever the configuration says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import trio

from playhead.client.call_results.call_result import CallResult
from playhead.client.call_results.media import ResourceMedia
from playhead.client.call_results.tee import TeeMedia
from playhead.config.outputs import OutputStore, SavedOutput, content_of
from playhead.config.tools import Delivery, Resolution, ToolContent, ToolResponse, run_handler
from playhead.errors import ConfigError, HandlerError, PlayheadError, SavingError
from playhead.limits import Limits
from playhead.results.model_text import text_for_model
from playhead.results.plan import (
    Disposition,
    KeepReference,
    Part,
    Plan,
    PlayAudio,
    ReportUnknown,
    SendText,
    ShowImage,
    TurnDecision,
)
from playhead.stream.source import Playable

DELIVERED: Final = "delivered to the user"
"""The model's text for a result that the configuration withholds from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessedResult:
    """A result after its tool's configuration was applied."""

    result: CallResult
    """The unchanged result."""
    tool_id: str
    resolution: Resolution
    """The configuration of the call, with the layer that each part comes from."""
    text_for_user: str
    """The handler's message; else all text if the model does not get it, else the text meant for the user.
    Some of it is the server's: escape it for a terminal."""
    text_for_model: str
    """One message for the model, never empty, at most `Limits.model_text_chars`."""
    turn: TurnDecision
    """The decision whether the model is called again, with its reason."""
    media: tuple[Playable, ...] = ()
    """The media to play, in order; streams are saved while they play (`TeeMedia`) if so configured."""
    saved: tuple[SavedOutput, ...] = ()
    """Outputs saved at once: text, images, and bytes inside the result."""
    handler_response: ToolResponse | None = None
    handler_error: HandlerError | ConfigError | None = None
    """The failure of the configured handler, if any."""
    saving_error: PlayheadError | None = field(default=None)
    """The first reason why `saved` is incomplete, if it is."""

    @property
    def is_error(self) -> bool:
        return self.result.is_error

    @property
    def late_media(self) -> tuple[Playable, ...]:
        """`media` without what `on_media` got while the call went on."""
        return tuple(each for each in self.media if each.uri not in self.result.early_uris)


async def process(tool: str, result: CallResult, *, saving: Saving, limits: Limits) -> ProcessedResult:
    """See `Hub.process_tool_response`. Cancelled: files saved by then stay, each of them whole."""
    resolution = saving.resolution
    config = None if result.is_error else resolution.config
    response: ToolResponse | None = None
    handler_error: HandlerError | ConfigError | None = None
    if config is not None and config.response_handler is not None:
        content = ToolContent(
            server=resolution.server,
            tool=tool,
            arguments=deepcopy(saving.arguments or {}),
            blocks=result.blocks,
            raw=result.raw,
            is_error=result.is_error,
        )
        try:
            response = await run_handler(config, content)
        except (HandlerError, ConfigError) as error:
            handler_error = error

    saved: tuple[SavedOutput, ...] = ()
    saving_error: PlayheadError | None = None
    media: tuple[Playable, ...] = result.media
    if config is not None and config.save_output:
        saved, saving_error = await trio.to_thread.run_sync(saving.save_all, result.plan, limits)
        media = tuple(saving.teed(item) if isinstance(item, ResourceMedia) else item for item in media)

    delivery = Delivery.PLAN if result.is_error else resolution.delivery
    return ProcessedResult(
        result=result,
        tool_id=resolution.tool_id,
        resolution=resolution,
        text_for_user=_for_user(result.plan, response, delivery),
        text_for_model=_for_model(result, response, delivery, saved=saved, limits=limits),
        turn=_turn(result, delivery),
        media=media,
        saved=saved,
        handler_response=response,
        handler_error=handler_error,
        saving_error=saving_error,
    )


# --- routing -----------------------------------------------------------------------------------------


def _for_user(plan: Plan, response: ToolResponse | None, delivery: Delivery) -> str:
    if response is not None:
        return response.message
    texts = (part for part in plan.parts() if isinstance(part, SendText))
    return "\n".join(text.text for text in texts if text.to_user or delivery is Delivery.USER)


def _for_model(
    result: CallResult,
    response: ToolResponse | None,
    delivery: Delivery,
    *,
    saved: tuple[SavedOutput, ...],
    limits: Limits,
) -> str:
    if delivery is Delivery.USER:
        return DELIVERED
    if response is None:
        # Mentioned only if the text is cut; a single file holds all of it.
        handle = f"saved as {saved[0].path.name}" if len(saved) == 1 else None
        return text_for_model(result.plan, limit_chars=limits.model_text_chars, handle=handle).text
    text = response.message if response.text_for_model is None else response.text_for_model
    plan = replace(result.plan, dispositions=tuple(_with_text(result.plan, text)))
    return text_for_model(plan, limit_chars=limits.model_text_chars).text


def _turn(result: CallResult, delivery: Delivery) -> TurnDecision:
    if delivery is Delivery.USER:
        return TurnDecision(
            decision="stop", reason="the result was delivered to the user (send_result_to_ai is false)"
        )
    return result.turn


def _with_text(plan: Plan, text: str) -> Iterator[Disposition]:
    """Yield the handler's text in place of the result's own, and the media unchanged."""
    yield SendText(
        index=-1, block=None, reason="the text of the handler", text=text, to_user=True, is_error=False
    )
    for part in plan.parts():
        if isinstance(part, PlayAudio) and part.is_in_text:
            yield replace(part, is_in_text=False)
        elif isinstance(part, PlayAudio | ShowImage | KeepReference):
            yield part


# --- saving ------------------------------------------------------------------------------------------


class Saving:
    """Saves the parts of one call's result. Blocks on the disk."""

    def __init__(
        self, outputs: OutputStore, resolution: Resolution, arguments: Mapping[str, Any] | None
    ) -> None:
        self.resolution = resolution
        # A stream is saved when it plays; the caller may have reused its mapping by then.
        self.arguments = arguments = None if arguments is None else deepcopy(dict(arguments))
        self._teed: dict[str, TeeMedia] = {}
        metadata = None if resolution.config is None else resolution.config.metadata or None
        named = (metadata or {}).get("tags")
        tags = tuple(map(str, named)) if isinstance(named, list | tuple) else ()
        tool_id = resolution.tool_id
        self._save_bytes = partial(outputs.save, tool_id, arguments, tags=tags, metadata=metadata)
        self._save_base64 = partial(outputs.save_base64, tool_id, arguments, tags=tags, metadata=metadata)
        self._open_writer = partial(outputs.open_writer, tool_id, arguments, tags=tags, metadata=metadata)

    def save_all(self, plan: Plan, limits: Limits) -> tuple[tuple[SavedOutput, ...], PlayheadError | None]:
        """Return the saved outputs, and the first reason if some could not be saved.

        A block with invalid base64 does not affect the others; after a disk error nothing more is tried. Runs
        in a trio thread, and a cancellation ends it between two files: ten thousand blocks take minutes.
        """
        saved: list[SavedOutput] = []
        failed: PlayheadError | None = None
        for part in plan.parts():
            trio.from_thread.check_cancelled()
            try:
                saved += self._save(part, limits)
            except SavingError as error:
                return tuple(saved), failed or error
            except PlayheadError as error:
                failed = failed or error
        return tuple(saved), failed

    def _save(self, part: Part | ReportUnknown, limits: Limits) -> Iterator[SavedOutput]:
        match part:
            case PlayAudio(payload=str() | memoryview() as base64, mime_type=mime_type, title=title):
                yield self._save_base64(base64, mime_type=mime_type, title=title or None)
            case SendText(block=None, text=text):
                yield self._save_bytes(text, mime_type="text/plain")
            case _ if part.block is not None:
                content = content_of(part.block.content, limits=limits)
                if content is not None:
                    data = part.text if isinstance(part, SendText) else content.data  # without inline audio
                    yield self._save_bytes(data, mime_type=content.mime_type, title=content.title)

    def teed(self, media: Playable) -> Playable:
        """Return `media`, saved while it plays if so configured. A URI is one item."""
        if not self.resolution.save_output or media.uri is None:
            return media
        if media.uri not in self._teed:
            writer = partial(self._open_writer, mime_type=media.mime_type, title=media.title)
            self._teed[media.uri] = TeeMedia(media, writer)
        return self._teed[media.uri]
