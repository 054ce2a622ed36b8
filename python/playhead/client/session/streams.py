"""Find how to read the ranges of a link: through the server, or from the web.

A web link that the server does not list as a resource is read with HTTP Range, under the same planner and end
rules, and from public addresses only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio
from mcp_types import ResourceTemplate

from playhead.client.call_results.media import ResourceMedia
from playhead.client.session.http_range import HttpRangeReader
from playhead.client.session.response_tap import Arrivals
from playhead.config.servers import ServerConfig
from playhead.errors import PlayheadError
from playhead.limits import Limits
from playhead.net_guard import guarded_client, parse_origins
from playhead.stream.negotiation import RangeForm
from playhead.stream.options import DEFAULT_OPTIONS, StreamOptions
from playhead.stream.strategies import RangeStrategy, candidate_strategies, is_url

WAIT_SECONDS = 2.0
"""Limit for opening a stream to wait for a listing in progress. The listing is sent before anything else, so
only a stream opened right after connecting waits at all, for about a round trip."""

DESCRIBED_WAIT_SECONDS = 1.0
"""The same for a link whose description is a URL: most servers accept that as `arguments`, but one that
offers only a template does not, and would fail at once."""


class Templates:
    """The resource templates of a server, listed once in the background, never on the path of a page."""

    def __init__(self) -> None:
        self._found: tuple[str, ...] = ()
        self._error: PlayheadError | None = None
        self._settled = trio.Event()

    async def learn(self, listing: Callable[[], Awaitable[list[ResourceTemplate]]] | None) -> None:
        """Run `listing` once; None for a server that declares no resources.

        Its error is remembered for `listed`.
        """
        try:
            if listing is not None:
                self._found = tuple(template.uri_template for template in await listing())
        except PlayheadError as error:
            self._error = error.with_traceback(None)
        finally:
            self._settled.set()

    async def known(self, *, within_seconds: float) -> tuple[str, ...] | None:
        """Return the templates; None if they are still being listed after `within_seconds`.

        A failed listing is empty: a stream then uses another form, or fails with its own error.
        """
        with trio.move_on_after(within_seconds):
            await self._settled.wait()
        return self._found if self._settled.is_set() else None

    async def listed(self) -> tuple[str, ...]:
        """Return the templates once they are listed, for a caller that needs them.

        The listing has its own deadline. Raises its error if it failed.
        """
        await self._settled.wait()
        if self._error is not None:
            raise self._error
        return self._found


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSource:
    """The source of a stream's pages, with the forms of a ranged read in the order to try them."""

    forms: tuple[RangeForm, ...]
    server: str
    """Its name in messages."""
    last_received: Callable[[], float]
    """Time of the newest byte of any answer, on trio's clock."""


def is_web_link(uri: str, strategy: RangeStrategy, override: str | None) -> bool:
    """True if `uri` can be fetched from the web and nothing offers ranges of it through the server."""
    return override is None and strategy.name == "whole" and is_url(uri)


def stream_options(config: ServerConfig, limits: Limits) -> StreamOptions:
    """The server's settings over the general defaults. A page size is a limit: pages do not grow beyond
    it."""
    return StreamOptions(
        page_bytes=config.page_size_bytes or DEFAULT_OPTIONS.page_bytes,
        page_bytes_max=config.page_size_bytes or DEFAULT_OPTIONS.page_bytes_max,
        in_flight=config.in_flight or DEFAULT_OPTIONS.in_flight,
        timeout=limits.page_seconds,
    )


async def range_strategies(
    media: ResourceMedia, options: StreamOptions, *, config: ServerConfig, templates: Templates
) -> tuple[RangeStrategy, ...]:
    """The forms of a ranged read of `media`, in the order to try them.

    Raises `UsageError` if the requested strategy does not fit, and the listing's error if it needs templates
    that could not be listed.
    """
    override = options.strategy or config.range_strategy
    offered: tuple[str, ...] = ()
    if override == "uri-template":
        offered = await templates.listed()
    elif override is None:
        within_seconds = DESCRIBED_WAIT_SECONDS if is_url(media.description) else WAIT_SECONDS
        offered = await templates.known(within_seconds=within_seconds) or ()
    return candidate_strategies(
        uri=media.uri,
        description=media.description,
        templates=offered,
        override=override,
        extra_arguments=options.extra_arguments or config.extra_arguments,
        meta_key=options.meta_key or config.meta_key,
        tool=media.tool,
    )


@asynccontextmanager
async def open_web_source(
    uri: str, *, limits: Limits, allow_origins: tuple[str, ...]
) -> AsyncIterator[RangeSource]:
    """Read `uri` from its origin. Raises `BlockedAddressError` for a URL that may not be fetched."""
    async with guarded_client(allow_origins=parse_origins(allow_origins), limits=limits) as client:
        arrivals = Arrivals()
        yield RangeSource(
            forms=(
                RangeForm(
                    name="http-range", read=HttpRangeReader(client, uri, limits=limits, arrivals=arrivals)
                ),
            ),
            server="the link's origin",
            last_received=arrivals.last_received,
        )
