"""Links whose labels don't say whether they are sound: a look at their first bytes.

A look is one small read, ended as soon as it is enough. A result can't cost more than `Limits.sniffed_links`
of them, two at once, and `Limits.sniff_seconds` in all. One that fails decides nothing: the link stays a
link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import trio
from mcp_types import ResourceLink

from playhead.client.groups import bare
from playhead.client.media import Streams
from playhead.content import Block
from playhead.content.audio import SNIFF_BYTES, AudioFormat, sniff
from playhead.errors import PlayheadError
from playhead.limits import KIB, Limits
from playhead.results.plan import KeepReference, Plan
from playhead.stream.options import StreamOptions

PAGE_BYTES: Final = 4 * KIB
"""What is asked for; `SNIFF_BYTES` would do, but a server may round a range or refuse one that is odd."""
TRIES: Final = 2
AT_ONCE: Final = 2
"""A server that ignores ranges answers each look with its whole resource, up to `Limits.message_bytes`."""
UTF16_MARK: Final = b"\xff\xfe"
"""Looks like an MPEG frame (Layer I, with a checksum), and is far more often text."""
SOUND_BRANDS: Final = frozenset({b"M4A ", b"M4B "})
"""Of the files that begin with `ftyp` (ISO 14496-12, 4.3): those that hold no film."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """What the first bytes of some links said, by block index."""

    sound: Mapping[int, bool]
    failed: Mapping[int, str]
    """Why nothing could be said, in words."""


def is_sound(head: bytes) -> bool:
    """Whether a resource that begins like this is to be played unasked.

    Matroska, and MP4 but for its sound-only brands, are as often films as music; their labels alone play
    nothing either (`content.audio.is_audio`).
    """
    found = sniff(head)
    match found:
        case None | AudioFormat.TEXT | AudioFormat.WEBM:
            return False
        case AudioFormat.MP4:
            return head[8:12] in SOUND_BRANDS
        case _:
            return not head.startswith(UTF16_MARK)


async def look(
    blocks: Sequence[Block], plan: Plan, *, streams: Streams, options: StreamOptions, limits: Limits
) -> Looks:
    """Look at the links that `plan` leaves unsettled. Never raises; cancelling ends every read.

    `options` are the session's own; what a look needs is set here.
    """
    sound: dict[int, bool] = {}
    failed: dict[int, str] = {}
    deadline = trio.current_time() + limits.sniff_seconds
    at_once = trio.CapacityLimiter(AT_ONCE)
    small = replace(
        options,
        page_bytes=PAGE_BYTES,
        capacity_bytes=PAGE_BYTES,
        in_flight=1,
        max_tries=TRIES,
        size_bytes=None,
        max_bytes=None,
    )

    async def one(index: int, link: ResourceLink) -> None:
        failed[index] = (
            f"its first bytes did not come within {limits.sniff_seconds:g} s (Limits.sniff_seconds)"
        )
        with trio.CancelScope(deadline=deadline):
            async with at_once:
                try:
                    sound[index] = is_sound(await _head(streams, link, small))
                    del failed[index]
                except PlayheadError as error:
                    failed[index] = f"its first bytes could not be read: {error}"

    with bare():
        async with trio.open_nursery() as nursery:
            for count, index in enumerate(plan.unsettled):
                link = blocks[index].content
                assert isinstance(link, ResourceLink), "only links are unsettled"
                if count < limits.sniffed_links:
                    nursery.start_soon(one, index, link)
                else:
                    failed[index] = (
                        f"only the first {limits.sniffed_links} such links of a result are looked at"
                        " (Limits.sniffed_links)"
                    )
    return Looks(sound=sound, failed=failed)


async def _head(streams: Streams, link: ResourceLink, options: StreamOptions) -> bytes:
    head = bytearray()
    async with streams.open(link, options=options) as stream:
        while len(head) < SNIFF_BYTES:
            chunk = await stream.receive_some(SNIFF_BYTES - len(head))
            if not chunk:
                break
            head += chunk
    return bytes(head)


def explained(plan: Plan, failed: Mapping[int, str]) -> Plan:
    """`plan`, with the reason why a link could not be looked at."""
    if not failed:
        return plan
    return replace(
        plan,
        dispositions=tuple(
            replace(item, reason=f"{item.reason}; {failed[item.index]}")
            if isinstance(item, KeepReference) and item.index in failed
            else item
            for item in plan.dispositions
        ),
    )
