"""What a tool's configuration makes of its result: handler, saving, routing, in this order.

Nothing here can lose a result. A handler that fails and a disk that is full are noted beside it, and the text
is then what it would have been without them. An error result passes by: it is no output, so no handler sees
it and nothing is saved, and the model is told of it whatever is configured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import trio

from playhead.client.calls import CallResult
from playhead.client.media import ResourceMedia
from playhead.client.tee import TeeMedia
from playhead.config.outputs import Content, OutputStore, SavedOutput, content_of
from playhead.config.tools import Delivery, Resolution, ToolConfig, ToolContent, ToolResponse, run_handler
from playhead.errors import ConfigError, HandlerError, PlayheadError, SavingError
from playhead.limits import Limits
from playhead.results.plan import (
    Disposition,
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
from playhead.results.routing import text_for_model
from playhead.stream.source import Media

DELIVERED: Final = "delivered to the user"
"""What the model hears in place of a result that a configuration keeps from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessedResult:
    """A result, and what became of it."""

    result: CallResult
    """As it came, whatever happened to it."""
    tool_id: str
    resolution: Resolution
    """What was configured for the call, and by which layer."""
    text_for_user: str
    """The handler's message; else all text where the model does not get it, or what is meant for the user.
    Text in it is the server's: escape it for a terminal."""
    text_for_model: str
    """One message for the model, never empty, at most `Limits.model_text_chars`."""
    turn: Turn
    """Whether the model is called again, and why."""
    media: tuple[Media, ...] = ()
    """What is to be played, in order; streams are saved while they play (`TeeMedia`) where that is
    configured."""
    saved: tuple[SavedOutput, ...] = ()
    """What was saved at once: texts, images, and bytes that came in the result."""
    handler_response: ToolResponse | None = None
    handler_error: HandlerError | ConfigError | None = None
    """Why there is no answer of the handler's that is configured."""
    saving_error: PlayheadError | None = field(default=None)
    """Why not all that was to be saved is in `saved`; the first reason."""

    @property
    def is_error(self) -> bool:
        return self.result.is_error


async def process(
    tool: str,
    arguments: Mapping[str, Any] | None,
    result: CallResult,
    *,
    resolution: Resolution,
    outputs: OutputStore,
    limits: Limits,
) -> ProcessedResult:
    """See `Hub.process_tool_response`. Cancelled: what was saved by then stays, each file whole."""
    # A stream is saved when it plays, and the caller may use its mapping for the next call before.
    called_with = None if arguments is None else deepcopy(dict(arguments))
    config = None if result.is_error else resolution.config
    response: ToolResponse | None = None
    handler_error: HandlerError | ConfigError | None = None
    if config is not None and config.response_handler is not None:
        content = ToolContent(
            server=resolution.server,
            tool=tool,
            arguments=deepcopy(called_with or {}),
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
    media: tuple[Media, ...] = result.media
    if config is not None and config.save_output:
        saving = _Saving(outputs, resolution.tool_id, called_with, config)
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
    texts = (part for part in _parts(plan.dispositions) if isinstance(part, SendText))
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
        # Said only where a text is cut; one file is the whole of it.
        handle = f"saved as {saved[0].path.name}" if len(saved) == 1 else None
        return text_for_model(result.plan, limit_chars=limits.model_text_chars, handle=handle).text
    text = response.message if response.text_for_model is None else response.text_for_model
    plan = replace(result.plan, dispositions=tuple(_with_text(result.plan, text)))
    return text_for_model(plan, limit_chars=limits.model_text_chars).text


def _turn(result: CallResult, delivery: Delivery) -> Turn:
    if delivery is Delivery.USER:
        return Turn(
            decision="stop", reason="the result was delivered to the user (send_result_to_ai is false)"
        )
    return result.turn


def _with_text(plan: Plan, text: str) -> Iterator[Disposition]:
    """A handler's text in place of the result's own, and the media as they are."""
    yield SendText(
        index=-1, block=None, reason="what the handler made", text=text, to_user=True, is_error=False
    )
    for part in _parts(plan.dispositions):
        if isinstance(part, PlaySound | ShowImage | KeepReference):
            yield part


def _parts(dispositions: Iterable[Disposition]) -> Iterator[Part | ReportUnknown]:
    for item in dispositions:
        if isinstance(item, Respond):
            yield from item.parts
        else:
            yield item


# --- saving ------------------------------------------------------------------------------------------


class _Saving:
    """Saves the parts of one call's result. Blocks on the disk."""

    def __init__(
        self,
        outputs: OutputStore,
        tool_id: str,
        arguments: Mapping[str, Any] | None,
        config: ToolConfig,
    ) -> None:
        self._outputs = outputs
        self._tool_id = tool_id
        self._arguments = arguments
        self._metadata = config.metadata or None
        tags = config.metadata.get("tags")
        self._tags = tuple(map(str, tags)) if isinstance(tags, list | tuple) else ()

    def save_all(self, plan: Plan, limits: Limits) -> tuple[tuple[SavedOutput, ...], PlayheadError | None]:
        """What could be saved, and the first reason where something could not. A block whose base64 is broken
        keeps no other from the disk; a disk that refuses one refuses the rest. In a thread of trio's, which a
        cancellation ends between two files: ten thousand blocks take minutes."""
        saved: list[SavedOutput] = []
        failed: PlayheadError | None = None
        for part in _parts(plan.dispositions):
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
            case PlaySound(base64=str(text), mime_type=mime_type, title=title):
                yield self._outputs.save_base64(
                    self._tool_id,
                    self._arguments,
                    text,
                    mime_type=mime_type,
                    title=title or None,
                    tags=self._tags,
                    metadata=self._metadata,
                )
            case SendText(block=None, text=text):
                yield self._keep(Content(data=text, mime_type="text/plain"))
            case _ if part.block is not None:
                content = content_of(part.block.content, limits=limits)
                if content is not None:
                    yield self._keep(content)

    def _keep(self, content: Content) -> SavedOutput:
        return self._outputs.save(
            self._tool_id,
            self._arguments,
            content.data,
            mime_type=content.mime_type,
            title=content.title,
            tags=self._tags,
            metadata=self._metadata,
        )

    def teed(self, media: ResourceMedia) -> TeeMedia:
        """`media`, saved while it plays."""
        return TeeMedia(
            media,
            partial(
                self._outputs.open_writer,
                self._tool_id,
                self._arguments,
                mime_type=media.mime_type,
                title=media.title,
                tags=self._tags,
                metadata=self._metadata,
            ),
        )
