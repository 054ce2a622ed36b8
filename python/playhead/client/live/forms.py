"""The form of a web resource, by the first answer for its URL: a radio, HLS, or ranges.

The answer that decides is read on, so it costs no request. If the first GET fails, that of a retry decides.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Final, Literal

import trio

from playhead.client.live.hls import HlsReader
from playhead.client.live.radio import RadioReader
from playhead.client.session.arrivals import Arrivals
from playhead.client.session.http_range import RangeBody
from playhead.client.session.http_range_reader import HttpRangeReader
from playhead.client.transports.http_client import HttpClient
from playhead.content.playlists import HLS_HEAD_BYTES, has_playlist_head, is_hls
from playhead.errors import PlayheadError
from playhead.extras import require_extra
from playhead.limits import Limits
from playhead.stream.answer import Page
from playhead.stream.live_source import LinkRate
from playhead.stream.negotiation import FormChangedError, LateForm, RangeForm
from playhead.stream.options import StreamOptions

_LIST_HEAD_BYTES: Final = len(b"\xef\xbb\xbf#EXTM3U")


def web_form(
    reader: HttpRangeReader,
    make_plain: Callable[[], Awaitable[RangeForm]],
    *,
    options: StreamOptions,
    limits: Limits,
    rate: LinkRate,
    server_name: str,
    stack: AsyncExitStack,
) -> LateForm:
    """Return the form of the URL that `reader` reads. `make_plain` makes the form for ranges; `stack` is
    closed with the stream."""

    async def find() -> list[RangeForm]:
        try:
            body = await reader.begin()
        except PlayheadError as error:
            reader.check = partial(check, [error], trio.Lock())
            return [replace(await make_plain(), late=late)]
        kind = await kind_of(body)
        if kind == "radio":
            radio = RadioReader(reader.connect, body, server=server_name)
            reader.leave_body()
            await stack.enter_async_context(aclosing(radio))
            return [RangeForm(name="radio", read=radio, reason="endless", is_queue=True, live=radio.live)]
        if kind == "ranges":
            return [await make_plain()]
        try:
            hls = await open_hls(
                reader.client,
                body.final_url,
                await body.take(limits.playlist_bytes + 1),
                options=options,
                limits=limits,
                rate=rate,
                arrivals=reader.arrivals,
                stack=stack,
            )
        except PlayheadError as error:
            hls = RangeForm(name="hls", read=partial(_raise, error), is_queue=True)
        return [hls]

    async def kind_of(body: RangeBody) -> Literal["radio", "hls", "ranges"]:
        try:
            is_list = (
                not body.is_radio
                # A few bytes first: a station may take seconds to send as many as `HLS_HEAD_BYTES`.
                and has_playlist_head((await body.peek(_LIST_HEAD_BYTES)).decode("utf-8-sig", "replace"))
                and is_hls(await body.peek(HLS_HEAD_BYTES))
            )
        except PlayheadError:
            return "ranges"  # its first page raises the same error
        if is_list:
            return "hls"
        return "radio" if body.is_radio or (options.live and body.is_endless) else "ranges"

    async def check(failures: list[PlayheadError], turn: trio.Lock) -> None:
        """Raise the first failure once, and `FormChangedError` if a later answer is not read in ranges."""
        async with turn:
            if failures:
                raise failures.pop()
            if reader.check is not None and await kind_of(await reader.begin()) != "ranges":
                raise FormChangedError(f"{server_name}: expected a resource with ranges, got a live stream")
            reader.check = None

    late = LateForm(name="http-range", find=find)
    return late


async def open_hls(
    client: HttpClient,
    url: str,
    data: bytes,
    *,
    options: StreamOptions,
    limits: Limits,
    rate: LinkRate,
    arrivals: Arrivals | None,
    stack: AsyncExitStack,
    read_list: Callable[[], Awaitable[bytes]] | None = None,
) -> RangeForm:
    """Return the form of an HLS playlist; see `HlsReader`.

    Raises `UsageError` without the extra `formats`.
    """
    require_extra("formats", "HLS playlists")
    await trio.to_thread.run_sync(import_module, "m3u8")
    # The decoder will need it, and it takes longer to load than the first segment to arrive.
    threading.Thread(target=import_module, args=("av",), daemon=True).start()
    hls = HlsReader(
        client,
        url,
        data,
        limits=limits,
        patience_seconds=options.patience_seconds,
        rate=rate,
        arrivals=arrivals,
        read_list=read_list,
    )
    await stack.enter_async_context(aclosing(hls))
    return RangeForm(name="hls", read=hls, reason="a playlist of segments", is_queue=True, live=hls.live)


async def _raise(error: PlayheadError, _start: int, _end: int) -> Page:
    raise error
