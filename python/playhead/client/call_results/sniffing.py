"""First bytes of what a result links or names: they decide whether it is audio or a playlist.

A result costs at most `Limits.candidates` reads, two at a time, and `Limits.sniff_seconds` in total: of links
whose labels say nothing, from the server, and of the plan's candidates, one ranged GET each or one look at a
local file. A read that fails decides nothing: a link stays a link, and text stays text. If the result itself
holds audio, that plays, and no candidate is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import trio

from playhead.client.call_results.media import Head, ResourceMedia, SessionStreams
from playhead.concurrency import unwrap_exception_group
from playhead.content.audio import SNIFF_BYTES, AudioFormat, is_audio, is_playable_audio, sniff
from playhead.content.playlists import HLS_MIME, Playlist, PlaylistEntry, is_playlist, playlist_items
from playhead.errors import BlockedAddressError, PlayheadError, UsageError
from playhead.limits import KIB, Limits
from playhead.results.candidates import (
    OTHER_SIGNATURES,
    AddressedAudio,
    Candidate,
    Permission,
    Verdict,
    is_url,
    local_path,
    title_of,
)
from playhead.results.plan import Plan, PlayAudio
from playhead.stream.options import StreamOptions

SNIFF_PAGE_BYTES: Final = 4 * KIB
"""Requested size. `SNIFF_BYTES` would do, but a server may round a range or refuse an odd one."""
_HELD: Final = Verdict(reason="not asked: the result itself holds audio")


@dataclass(slots=True, kw_only=True)
class Sniffing:
    """The reads for one result, and what they found."""

    streams: SessionStreams
    options: StreamOptions
    limits: Limits
    audio: dict[int, bool] = field(default_factory=dict)
    """The findings about links, by block index."""
    failed: dict[int, str] = field(default_factory=dict)
    """The reason why a link could not be sniffed."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """The findings about candidates, by address."""
    _heads: dict[str, Head] = field(default_factory=dict)
    _reads: int = 0

    async def run(self, plan: Plan, link: Callable[[int], ResourceMedia]) -> None:
        """Settle the links that `plan` leaves unsettled, and its candidates. `link` opens one by block index.

        Never raises; cancelling ends every read.
        """
        at_once = trio.CapacityLimiter(self.limits.candidates_at_once)
        candidates = [each for each in plan.candidates if each.verdict is None]
        holds_audio = any(isinstance(part, PlayAudio) and part.payload is not None for part in plan.parts())

        async def settle(index: int) -> None:
            async with at_once:
                await self._sniff(index, link(index))

        async def ask(candidate: Candidate) -> None:
            async with at_once:
                self.verdicts[candidate.key] = await self._verdict(candidate, link)

        with (
            unwrap_exception_group(),
            trio.CancelScope(deadline=trio.current_time() + self.limits.sniff_seconds),
        ):
            async with trio.open_nursery() as nursery:
                for index in plan.unsettled:
                    if (refusal := self._count()) is not None:
                        self.failed[index] = refusal
                    else:
                        nursery.start_soon(settle, index)
                for each in candidates:
                    if holds_audio:
                        self.verdicts[each.key] = _HELD
                    elif each.playlist is None and (refusal := self._count()) is not None:
                        self.verdicts[each.key] = Verdict(reason=refusal)
                    else:
                        nursery.start_soon(ask, each)
        late = f"its first bytes did not arrive within {self.limits.sniff_seconds:g} s (Limits.sniff_seconds)"
        for index in plan.unsettled:
            if index not in self.audio:
                self.failed.setdefault(index, late)
        self._drop_repeated(candidates, late)

    def _drop_repeated(self, candidates: Sequence[Candidate], late: str) -> None:
        """Keep one of several addresses with the same audio: equal first bytes and an equal size."""
        known: dict[tuple[bytes, int], str] = {}
        for each in candidates:
            self.verdicts.setdefault(each.key, Verdict(reason=late))
            head = self._heads.get(each.address)
            # Silence is equal in many files.
            if head is None or head.total_bytes is None or len(set(head.data[SNIFF_BYTES:])) < 16:
                continue
            first = known.setdefault((head.data, head.total_bytes), each.address)
            if first != each.address and self.verdicts[each.address].items:
                self.verdicts[each.address] = Verdict(reason=f"the same audio as {first}")

    # --- links ---------------------------------------------------------------------------------------------

    async def _sniff(self, index: int, media: ResourceMedia) -> None:
        head = await self._head_of(media, SNIFF_BYTES)
        if isinstance(head, str):
            self.failed[index] = head
        else:
            self.audio[index] = is_playable_audio(head)

    async def _head_of(self, media: ResourceMedia, n_bytes: int) -> bytes | str:
        """Return the first bytes of a resource, or why they could not be read."""
        small = replace(
            self.options,
            page_bytes=SNIFF_PAGE_BYTES,
            capacity_bytes=SNIFF_PAGE_BYTES,
            in_flight=1,
            profile="save",
            patience_seconds=self.limits.sniff_seconds,
            size_bytes=None,
            max_bytes=None,
            only_repeatable=True,
        )
        head = bytearray()
        try:
            async with media.open(small) as stream:
                while len(head) < n_bytes and (chunk := await stream.receive_some(n_bytes - len(head))):
                    head += chunk
        except PlayheadError as error:
            return f"its first bytes could not be read: {error}"
        return bytes(head)

    def _count(self) -> str | None:
        """Count a read; return why it may not be sent."""
        self._reads += 1
        if self._reads <= self.limits.candidates:
            return None
        return f"only the first {self.limits.candidates} of a result are read (Limits.candidates)"

    # --- candidates ----------------------------------------------------------------------------------------

    async def _verdict(self, candidate: Candidate, link: Callable[[int], ResourceMedia]) -> Verdict:
        address = candidate.address
        try:
            if candidate.playlist is not None:
                opened: Verdict | Playlist = Playlist(candidate.playlist, address)
            elif candidate.row == "playlist":
                listed = replace(link(candidate.index), mime_type=None)  # the list, not what it plays
                data = await self._head_of(listed, self.limits.playlist_bytes + 1)
                if isinstance(data, str):  # perhaps because it has text
                    data = (await self.streams.read_text(address)).encode(errors="replace")
                opened = Playlist(data, address)
            else:
                opened = await self._open(address)
            return await self._follow(opened) if isinstance(opened, Playlist) else opened
        except PlayheadError as error:
            return _refused(error)

    async def _open(self, address: str, *, title: str = "") -> Verdict | Playlist:
        """Read the first bytes of a URL or a file; of a playlist all of them. Raises as `Streams.head`."""
        is_local = not is_url(address)
        if is_local:
            address = local_path(address)
        whole = self.limits.playlist_bytes + 1
        is_named = is_playlist(None, address)
        head = await self.streams.head(address, whole if is_named else SNIFF_PAGE_BYTES)
        if (is_named or is_playlist(head.mime_type, "")) and sniff(head.data) in (None, AudioFormat.TEXT):
            if len(head.data) == SNIFF_PAGE_BYTES != head.total_bytes:
                head = await self.streams.head(address, whole)
            return Playlist(head.data, address, is_local)
        self._heads[address] = head
        labelled, audio_format = is_audio(head.mime_type, None), sniff(head.data)
        is_other = audio_format is None and head.data.startswith(OTHER_SIGNATURES)
        is_other = is_other or audio_format is AudioFormat.TEXT or labelled is False
        if is_other or not (labelled or is_playable_audio(head.data)):
            return Verdict(reason=f"not audio: {head.mime_type or 'of an unknown type'}")
        reason = "a file below an allowed directory" if is_local else "a URL whose origin serves audio"
        return Verdict(reason=reason, items=(AddressedAudio(_uri(address), title, head.mime_type),))

    async def _follow(self, playlist: Playlist) -> Verdict:
        """Return the entries of a playlist whose first is audio. Raises as `playlist_items`."""
        is_proved = False
        refused: Verdict | None = None

        async def open_entry(entry: PlaylistEntry) -> Sequence[AddressedAudio] | Playlist:
            nonlocal is_proved, refused
            address, title = entry.address, entry.title or title_of(entry.address)
            if entry.is_hls:
                is_proved = True
                return [AddressedAudio(address, title, HLS_MIME)]
            if is_proved and not is_playlist(None, address):
                return [AddressedAudio(_uri(address), title, None)]
            if (refusal := self._count()) is not None:
                raise UsageError(refusal)
            opened = await self._open(address, title=title)
            if isinstance(opened, Playlist):
                return opened
            is_proved = is_proved or bool(opened.items)
            refused = refused or (None if opened.items else opened)
            return opened.items

        def on_error(entry: PlaylistEntry, error: PlayheadError) -> Sequence[AddressedAudio]:
            nonlocal refused
            refused = refused or _refused(error)
            return ()

        items = await playlist_items(playlist, open_entry, on_error, limits=self.limits)
        if not items and refused is not None:
            return replace(refused, reason=f"a playlist without an entry to play: {refused.reason}")
        return Verdict(reason=f"a playlist of {len(items)} entries", items=tuple(items))


def _refused(error: PlayheadError) -> Verdict:
    if isinstance(error, BlockedAddressError):
        permission = None if error.permission is None else Permission(*error.permission)
        return Verdict(reason=str(error), permission=permission)
    return Verdict(reason=f"could not be read: {error}")


def _uri(address: str) -> str:
    """Return the URI of a URL, path or `file:` URI. Raises `UsageError` for anything else."""
    try:
        return address if is_url(address) else Path(local_path(address)).as_uri()
    except ValueError as error:
        raise UsageError(f"expected a URL or an absolute path, got {address[:80]!r}") from error
