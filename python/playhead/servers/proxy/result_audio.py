"""Audio of results: it goes to the player, and the host gets a line of text in its place."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import trio

from playhead.client.call_results.call_result import CallResult
from playhead.client.call_results.media import BytesMedia, ResourceMedia
from playhead.content import ABSENT
from playhead.errors import NoDeviceError, PlayheadError
from playhead.escaping import escape_line, shortened
from playhead.playback.player import Player
from playhead.playback.player_tools import PLAYER_TOOLS
from playhead.protocol import messages
from playhead.results.model_text import text_for_model
from playhead.results.plan import PlayAudio, ReportUnknown, SendText, ShowImage
from playhead.servers.proxy import ProxyOptions
from playhead.servers.proxy.upstream import Upstream
from playhead.stream.source import Playable

ADDRESS_META: Final = "playhead/audio"
HEARD_META: Final = "playhead/heard_seconds"

Media = ResourceMedia | BytesMedia
Addresses = Callable[[Upstream, Sequence[Media]], Awaitable[list[str]]]
"""Returns the addresses of a result's audio for the host."""


async def uris(upstream: Upstream, media: Sequence[Media]) -> list[str]:
    """Return the URIs of audio in the proxy, for hosts that read resources."""
    own = (each.uri for each in media)
    return [upstream.scheme + uri for uri in own if uri and not uri.startswith("data:")]


async def with_addresses(raw: dict[str, Any], addresses: Awaitable[list[str]]) -> dict[str, Any]:
    """Add the addresses of its audio to a result, or the reason why it has none."""
    try:
        if made := await addresses:
            return {**raw, "_meta": {**(raw.get("_meta") or {}), ADDRESS_META: made}}
    except PlayheadError as error:
        note = f"[the audio has no address: {shortened(escape_line(str(error)), 300)}]"
        return {**raw, "content": [*(raw.get("content") or ()), {"type": "text", "text": note}]}
    return raw


async def _none_is_missing() -> str | None:
    await trio.lowlevel.checkpoint()
    return None


async def missing_device() -> str | None:
    """Return the reason if this machine has no audio device; None if it has one."""
    from playhead.playback.sinks.device import device_names

    try:
        return None if await device_names() else "this machine has no audio device"
    except NoDeviceError as error:
        return str(error)


@dataclass(slots=True, kw_only=True)
class ResultAudio:
    """The player of the proxy, and the results that it plays. All hosts share it."""

    player: Player
    options: ProxyOptions
    addresses: Addresses = uris
    missing_device: Callable[[], Awaitable[str | None]] = _none_is_missing
    """Returns why nothing can be heard on this machine now; None if it can."""
    _calls: int = 0
    """The calls in flight that duck or pause the audio."""
    _paused: bool = False
    """True if a player tool has stopped or paused the audio since the last result."""
    _heard: float = 0.0
    """The seconds heard before that."""
    _turn: trio.Lock = field(default_factory=trio.Lock)

    def keeps(self, server: str) -> bool:
        """Return whether results of a server keep their audio, and are not played."""
        return server in self.options.keep_audio

    @asynccontextmanager
    async def quiet(self) -> AsyncIterator[Callable[[], None]]:
        """Duck or pause the audio while the body runs, and while any other call does. Yields a function that
        ends it before: the audio is then the call's own."""
        player, how = self.player, self.options.on_call

        def end() -> None:
            self._calls -= 1
            if not self._calls:
                if how == "duck":
                    player.unduck()
                elif how == "pause":
                    player.release("call")

        self._calls += 1
        if how == "duck":
            player.duck()
        elif how == "pause":
            player.hold("call")
        with ExitStack() as stack:
            stack.callback(end)
            yield stack.close

    async def control(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run a player tool, and return its result."""
        async with self._turn:
            heard = self.player.snapshot().heard_seconds
            response = await PLAYER_TOOLS[tool].call(self.player, arguments)
        content = [
            {"type": "text", "text": block.text} for block in response.content() if block.type == "text"
        ]
        result: dict[str, Any] = {"content": content, "isError": not response.success}
        if response.success and tool in ("pause", "stop"):
            self._paused = True
            self._heard = self.player.snapshot().heard_seconds if tool == "pause" else heard
            result["_meta"] = {HEARD_META: self._heard}
            content.append({"type": "text", "text": f"[{self._heard:.1f} s heard]"})
        return result

    def with_heard(self, result: dict[str, Any]) -> dict[str, Any]:
        """Add the seconds that were heard before the last pause or stop, once."""
        if not self._paused:
            return result
        self._paused = False
        note = {"type": "text", "text": f"[the audio was stopped after {self._heard:.1f} s heard]"}
        meta = {**(result.get("_meta") or {}), HEARD_META: self._heard}
        return {**result, "content": [*result.get("content", ()), note], "_meta": meta}

    async def play(self, media: Sequence[Playable], *, after: Collection[str]) -> str | None:
        """Play the audio of a call, after the URIs that play already. Return the reason if it cannot be
        heard."""
        trouble = await self.missing_device()
        new = [each for each in media if each.uri not in after]
        try:
            if trouble is None and new:
                async with self._turn:
                    await (self.player.enqueue if after else self.player.play)(new)
        except PlayheadError as error:
            trouble = str(error)
        if trouble is not None:
            trouble = shortened(escape_line(trouble), 300)
            sys.stderr.write(f"playhead proxy: cannot play {media[0].title!r:.80}: {trouble}\n")
        return trouble

    async def removed(self, upstream: Upstream, result: CallResult) -> dict[str, Any]:
        """Give the audio of a result to the player, and return the result with text in its place."""
        raw = messages.plain(dict(result.raw))
        media = () if result.is_error or self.keeps(upstream.name) else result.media
        if not media:
            return raw
        trouble = await self.play(media, after=result.early_uris)
        raw["content"] = [
            self._in_place(upstream, result, item, trouble) for item in result.plan.dispositions
        ]
        if trouble is not None:
            raw["content"].append({"type": "text", "text": f"[nothing plays here: {trouble}]"})
        if result.plan.structured is not ABSENT:
            raw["structuredContent"] = result.plan.structured
        return await with_addresses(raw, self.addresses(upstream, media))

    def _in_place(self, upstream: Upstream, result: CallResult, item: Any, trouble: str | None) -> Any:
        """Return the block for the host in place of one of a result's."""
        block = item.block.raw if item.block is not None else None
        is_link = isinstance(block, Mapping) and block.get("type") == "resource_link"
        keeps = isinstance(item, ShowImage | ReportUnknown) or (
            is_link and (not isinstance(item, PlayAudio) or upstream.name in self.options.keep_links)
        )
        if keeps and block is not None:
            return block
        alone = replace(result.plan, dispositions=(item,), candidates=(), structured=ABSENT)
        limit = self.options.limits.model_text_chars
        text = text_for_model(alone, limit_chars=limit, playing=trouble is None).text
        kept = dict(block) if isinstance(block, Mapping) and isinstance(item, SendText) else {}
        return block if "resource" in kept else {**kept, "type": "text", "text": text}
