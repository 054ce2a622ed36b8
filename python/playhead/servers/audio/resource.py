"""The resource `resource://read_from_http`: one read is one byte range of one URL.

A client gives the range in one of three ways, all answered alike: `arguments` alongside the URI in the params
of `resources/read` (as the reference system does), a `_meta` entry, or the expanded URI template. The URL is
plain or in base64url, in which reserved characters survive a URI template.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import httpx2
import mcp_types as types
import trio
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate

from playhead.client.session.http_range import HttpRange, fetch_range
from playhead.errors import BlockedAddressError, DeadlineError, PlayheadError, RangePastEndError
from playhead.limits import MIB, Limits
from playhead.servers.audio import DEFAULT_META_KEY

URI = "resource://read_from_http"
TEMPLATE = URI + "{?url,start,end}"
MOST_BYTES = 8 * MIB
"""A longer range is answered with its first 8 MiB. To a client a short page is a hint, never the end."""
RETRY_SECONDS = 1.0
DONE = b"[DONE]"
"""The blob that marks the end: nothing is at this offset or after it."""

_EXPECTED = (
    "expected url (an http or https URL, plain or in base64url), start and end "
    "(bytes, whole numbers, 0 <= start < end), as `arguments`, as `_meta`, or in the URI like " + TEMPLATE
)
_LARGEST = 2**53 - 1  # beyond it JSON numbers are no longer whole in every language
_PARSED_TEMPLATE = UriTemplate.parse(TEMPLATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeAsked:
    """The range of one read: `[start, end)` of `url`, in bytes."""

    url: str
    start: int
    end: int


def parse_range(
    params: Mapping[str, object], *, meta_key: str = DEFAULT_META_KEY, unknown_code: int = -32002
) -> RangeAsked:
    """Find the range in the params of a `resources/read`, as received.

    Raises:
        MCPError: -32602 for an invalid range; `unknown_code` for another resource (-32002 before revision
            2026-07-28, -32602 since: SEP-2164).
    """
    uri = str(params.get("uri", ""))
    matched = _PARSED_TEMPLATE.match(uri)
    if uri.split("?", 1)[0] != URI or matched is None:
        raise MCPError(
            unknown_code, f"unknown resource {uri[:200]!r}; this server has {TEMPLATE}", {"uri": uri[:200]}
        )
    meta = params.get("_meta")
    ways = (params.get("arguments"), meta.get(meta_key) if isinstance(meta, Mapping) else None)
    # `_meta` may hold the range only; the URL is then in `arguments` or in the URI.
    given = {str(name): value for way in ways if isinstance(way, Mapping) for name, value in way.items()}
    values = {**matched, **given}
    from_uri = values.keys() - given.keys()
    start = _offset(values.get("start"), "start", may_be_string="start" in from_uri)
    end = _offset(values.get("end"), "end", may_be_string="end" in from_uri)
    if start >= end:
        _refuse(f"start {start} is not before end {end}")
    return RangeAsked(url=_url(values.get("url")), start=start, end=min(end, start + MOST_BYTES))


async def read_page(
    asked: RangeAsked, client: httpx2.AsyncClient, *, uri: str, limits: Limits
) -> types.ReadResourceResult:
    """Fetch one range as one blob; `[DONE]` if the resource ends before it.

    A request that the origin does not answer in time is repeated once, after a second. Cancelling closes the
    HTTP request.

    Raises:
        MCPError: -32602 if the URL may not be fetched, -32603 if fetching failed.
    """
    try:
        answer = await _fetch_with_one_retry(asked, client, limits)
    except RangePastEndError:
        return _blob(uri, DONE, None)
    except BlockedAddressError as error:
        raise MCPError(-32602, f"{error} (with this server's --allow-origin)") from error
    except PlayheadError as error:
        raise MCPError(-32603, f"reading failed: {error}", {"kind": type(error).__name__}) from error
    return _blob(uri, answer.body[: asked.end - asked.start], answer.mime_type)


async def _fetch_with_one_retry(asked: RangeAsked, client: httpx2.AsyncClient, limits: Limits) -> HttpRange:
    try:
        return await fetch_range(client, asked.url, asked.start, asked.end, limits=limits)
    except DeadlineError:
        await trio.sleep(RETRY_SECONDS)
        return await fetch_range(client, asked.url, asked.start, asked.end, limits=limits)


def _blob(uri: str, data: bytes, mime_type: str | None) -> types.ReadResourceResult:
    text = base64.b64encode(data).decode("ascii")
    return types.ReadResourceResult(
        contents=[types.BlobResourceContents(uri=uri, mime_type=mime_type, blob=text)]
    )


def _offset(value: object, name: str, *, may_be_string: bool) -> int:
    if (
        may_be_string
        and isinstance(value, str)
        and value.isascii()
        and value.isdecimal()
        and len(value) <= 16
    ):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(f"{name} is {value!r:.80}" if value is not None else f"{name} is missing")
    if not 0 <= value <= _LARGEST:
        _refuse(f"{name} is {str(value)[:40]}")
    return value


def _url(value: object) -> str:
    if not isinstance(value, str) or not value:
        _refuse(f"url is {value!r:.80}" if value is not None else "url is missing")
    if ":" in value:  # never in base64url
        return value
    try:
        padded = value.rstrip("=").encode("ascii") + b"=" * (-len(value.rstrip("=")) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        text = ""
    if ":" not in text:
        _refuse(f"url is {value!r:.80}, neither a URL nor one in base64url")
    return text


def _refuse(fault: str) -> NoReturn:
    raise MCPError(-32602, f"{fault}; {_EXPECTED}")
