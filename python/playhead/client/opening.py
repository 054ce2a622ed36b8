"""From a link to the callable that reads its ranges: through the server, or from the web.

A link that leads to the web and that the server does not offer as a resource is read by HTTP Range, under
the same planner and end rules, and only from addresses that anybody may reach.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from playhead.client.http_range import HttpRangeReader
from playhead.client.media import ResourceMedia
from playhead.client.templates import Templates
from playhead.config.servers import ServerConfig
from playhead.limits import Limits
from playhead.net_guard import guarded_client, parse_origins
from playhead.stream.options import DEFAULT_OPTIONS, StreamOptions
from playhead.stream.page import ReadRange
from playhead.stream.ranges import RangeStrategy, choose_strategy, is_url


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a stream's pages are had: by what, under which name in statistics, from whom in messages."""

    read: ReadRange
    strategy: str
    server: str


def leads_to_the_web(uri: str, strategy: RangeStrategy, override: str | None) -> bool:
    """Whether `uri` could be fetched, and nobody said how to ask the server for a range of it."""
    return override is None and strategy.name == "whole" and is_url(uri)


def options_of(config: ServerConfig, limits: Limits) -> StreamOptions:
    """The server's settings over the usual defaults."""
    return StreamOptions(
        page_bytes=config.page_size_bytes or DEFAULT_OPTIONS.page_bytes,
        in_flight=config.in_flight or DEFAULT_OPTIONS.in_flight,
        compat=config.compat,
        timeout=limits.page_seconds,
    )


async def strategy_for(
    media: ResourceMedia, options: StreamOptions, *, config: ServerConfig, templates: Templates
) -> RangeStrategy:
    """How ranges of `media` are asked for. Raises `UsageError` where the strategy asked for does not fit."""
    override = options.strategy or config.range_strategy
    offered: tuple[str, ...] = ()
    if override in (None, "uri-template"):
        described = override is None and is_url(media.description)
        offered = await templates.known(described=described)
    return choose_strategy(
        uri=media.uri,
        description=media.description,
        templates=offered,
        override=override,
        extra_arguments=options.extra_arguments or config.extra_arguments,
        meta_key=options.meta_key or config.meta_key,
    )


@asynccontextmanager
async def web_reading(uri: str, *, limits: Limits, allow_origins: tuple[str, ...]) -> AsyncIterator[Reading]:
    """Read `uri` from its origin. Raises `BlockedAddressError` for a URL that may not be fetched."""
    async with guarded_client(allow_origins=parse_origins(allow_origins), limits=limits) as client:
        yield Reading(
            read=HttpRangeReader(client, uri, limits=limits),
            strategy="http-range",
            server="the link's origin",
        )
