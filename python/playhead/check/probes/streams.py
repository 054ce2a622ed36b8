"""A resource through playhead's own stream: several reads in flight, and the bytes of a whole read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import trio

from playhead.check.probes import range_kinds as kinds
from playhead.check.probes.pages import MOST_BYTES, meta_key_of
from playhead.check.results import TestDraft
from playhead.check.target import Target
from playhead.client.media import ResourceMedia
from playhead.errors import PlayheadError
from playhead.limits import KIB
from playhead.stream.options import StreamOptions

PAGE_BYTES: Final = 32 * KIB
IN_FLIGHT: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What pages and streams are compared with: the beginning of the resource, or all of it."""

    data: bytes
    complete: bool


async def judge_stream(
    draft: TestDraft, target: Target, item: Mapping[str, Any], reference: Reference, *, size: int | None
) -> bytes:
    """Read `item` (a link or listed resource) through a stream, up to `MOST_BYTES`; what came of it.

    `size` is the announced one.
    """
    options = StreamOptions(
        page_bytes=PAGE_BYTES,
        in_flight=IN_FLIGHT,
        timeout=target.options.timeout_seconds,
        max_tries=2,
        meta_key=meta_key_of(item),
    )
    description = item.get("description")
    media = ResourceMedia(
        uri=item["uri"],
        title=item["uri"],
        description=description if isinstance(description, str) else None,
        size_bytes=size if size is not None and size >= 0 else None,
        streams=target.session,
    )
    came = bytearray()
    try:
        with trio.fail_after(target.options.timeout_seconds * IN_FLIGHT):
            async with media.open(options) as stream:
                while len(came) < MOST_BYTES and (chunk := await stream.receive_some()):
                    came += chunk
                draft.output = {"bytes": len(came), "ended_by": stream.statistics().ended_by}
    except trio.TooSlowError:
        draft.undecided = f"took too long; {len(came)} bytes were read"
    except PlayheadError as error:
        draft.failed(kinds.STREAM, f"expected the bytes of a whole read, came an error: {error}")
    else:
        _compare(draft, bytes(came), reference)
    return bytes(came)


def _compare(draft: TestDraft, came: bytes, reference: Reference) -> None:
    expected = reference.data
    common = min(len(came), len(expected))
    if came[:common] != expected[:common]:
        at = next(index for index in range(common) if came[index] != expected[index])
        draft.failed(kinds.STREAM, f"expected the bytes of a whole read; byte {at} differs")
    elif len(came) < len(expected):
        why = f"expected {len(expected)} bytes, as in a whole read; the stream has {common}"
        draft.failed(kinds.TAIL, why)
    elif reference.complete and len(came) > len(expected):
        why = f"expected {len(expected)} bytes, as in a whole read; came {len(came)}"
        draft.failed(kinds.STREAM, why)
    else:
        draft.passed(kinds.STREAM)
