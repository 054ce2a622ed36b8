"""The relay of a house: audio of the servers, read once and served to any number of devices.

Each resource has one copy in a temporary file, which one stream fills where a device reads. So 50 devices
cost the far server the bytes of one. A copy of a resource with a validator serves every address of it, those
of other hosts too within the server's `cacheScope`. Without a validator it is dropped once no device has read
it for a while, because its bytes may change.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import trio
from mcp.shared.exceptions import MCPError

from playhead._core import decode_base64
from playhead.client.call_results.media import BytesMedia, ResourceMedia
from playhead.client.session.session import Session
from playhead.config.outputs import Extent
from playhead.config.outputs.writer import write_at
from playhead.errors import PlayheadError
from playhead.servers.byte_sources import ResourceBytes, read_file
from playhead.servers.proxy.media_table import MediaEntry, MediaTable
from playhead.servers.proxy.result_audio import Media
from playhead.servers.proxy.upstream import Upstream, wire_error
from playhead.servers.ranged_resource import RESOURCE_NOT_FOUND
from playhead.stream.options import StreamOptions

AHEAD_BYTES: Final = 2 * 1024 * 1024
"""The bytes that a copy reads ahead of its devices: a minute of 256 kbit/s."""
IDLE_SECONDS: Final = 30.0
"""The time without a read after which a copy closes its stream."""
RING_BYTES: Final = 1024 * 1024
"""The capacity of a copy's stream: enough for 60 Mbit/s at a round trip of 0.1 s. When the copy goes on
elsewhere, the bytes in it are lost."""
STICK_BYTES: Final = 1024 * 1024
"""The bytes that a copy reads at least before it goes on elsewhere, and the longest gap that it reads rather
than leaves out. Devices at several places of a song would otherwise make it move with each chunk."""
COPIES_BYTES: Final = 512 * 1024 * 1024
"""Limits the copies that no device reads. The one that was read longest ago goes first."""


class _Copy:
    """The bytes of one resource that have been read so far."""

    def __init__(
        self,
        entry: MediaEntry,
        origin: Upstream | None,
        session: Callable[[], Awaitable[Session]],
        table: MediaTable,
    ) -> None:
        """Raises `OSError`."""
        self.entry = entry
        self.origin = origin
        """The server in the session of the host whose address began the copy; None for the relay's own."""
        self.is_filling = False
        self.readers = 0
        self.size_bytes = entry.size_bytes
        """A hint until the end was reached."""
        self._is_ended = False
        self._session = session
        self._table = table
        self._file = table.open_copy()
        self._extent = Extent()
        self._wanted = 0
        """The offset of the newest read."""
        self._may_share: bool | None = None
        """None until the server has answered."""
        self._error: PlayheadError | None = None
        self._arrived = trio.lowlevel.ParkingLot()
        self._read = trio.lowlevel.ParkingLot()

    @property
    def held_bytes(self) -> int:
        return self._extent.total

    def close(self) -> None:
        self._file.close()

    async def may_serve_others(self) -> bool:
        """Wait for an answer of the server, and return whether other hosts may share the copy."""
        while self.is_filling and self._may_share is None:
            await self._arrived.park()
        return self._may_share is True

    async def read(self, start: int, end: int, begin: Callable[[_Copy], None]) -> bytes:
        """Read `[start, end)` or its first part; empty at the end. `begin` starts `fill` if it does not run.

        Raises the `PlayheadError` that ended the stream, and `OSError`.
        """
        while True:
            held = self._extent.next_missing(start)
            if held > start:
                self._wanted = max(start, min(end, held))
                self._read.unpark_all()
                return os.pread(self._file.fileno(), min(end, held) - start, start)
            if self.size_bytes is not None and start >= self.size_bytes and self._is_ended:
                return b""
            self._wanted, self._error = start, None
            if not self.is_filling:
                begin(self)
            self._read.unpark_all()
            await self._arrived.park()
            if self._error is not None:
                raise self._error

    async def fill(self) -> None:
        """Read from the server where devices read, until all is there or no device has read for a while."""
        try:
            session = await self._session()
            media = ResourceMedia(
                uri=self.entry.uri,
                title=self.entry.title,
                mime_type=self.entry.mime_type,
                size_bytes=self.entry.size_bytes,
                validator=self.entry.validator,
                description=self.entry.description,
                tool=self.entry.tool,
                is_local=self.entry.is_local,
                streams=session,
            )
            async with media.open(StreamOptions(capacity_bytes=RING_BYTES)) as stream:
                at = moved_to = 0
                while True:
                    missing = self._missing()
                    if missing is not None and missing != at and not self._goes_on(at, moved_to, missing):
                        at = moved_to = missing
                        await stream.seek(at)
                    data = b"" if missing is None else await stream.receive_some()
                    if data:
                        with self._table.saving():
                            write_at(self._file.fileno(), at, memoryview(data))
                        self._extent.add(at, at + len(data))
                        at += len(data)
                        self._may_share = session.may_share(stream)
                        self.size_bytes = max(stream.size_bytes or 0, at)
                    elif missing is not None:
                        self.size_bytes, self._is_ended = min(at, stream.size_bytes or at), True
                    self._arrived.unpark_all()
                    if self._is_ended or at > self._wanted + AHEAD_BYTES:
                        while self._missing_soon() is None:
                            with trio.move_on_after(IDLE_SECONDS) as idle:
                                await self._read.park()
                            if idle.cancelled_caught:
                                return
        except PlayheadError as error:
            self._error = error
        finally:
            self.is_filling = False
            self._arrived.unpark_all()

    def _missing(self) -> int | None:
        """Return the first missing byte from the wanted one on, or the first of all; None if all is there."""
        for first in (self._wanted, 0):
            at = self._extent.next_missing(first)
            if not self._is_ended or self.size_bytes is None or at < self.size_bytes:
                return at
        return None

    def _goes_on(self, at: int, moved_to: int, missing: int) -> bool:
        """Return whether to read on at `at`, although another byte is missing where a device reads."""
        is_missing = self._extent.next_missing(at) == at and not (self._is_ended and at == self.size_bytes)
        return is_missing and (at - moved_to < STICK_BYTES or at < missing < at + STICK_BYTES)

    def _missing_soon(self) -> int | None:
        missing = self._missing()
        return missing if missing is not None and missing <= self._wanted + AHEAD_BYTES else None


@dataclass(slots=True, kw_only=True)
class Relay:
    """The addresses and the copies of one proxy."""

    table: MediaTable
    session: Callable[[MediaEntry], Awaitable[Session]]
    """Opens a session with the server of audio whose host has left. Raises `PlayheadError`."""
    nursery: trio.Nursery
    base_url: str = ""
    _origins: dict[str, Upstream] = field(default_factory=dict)
    _copies: list[_Copy] = field(default_factory=list)
    """The one that was read newest is the last."""

    async def addresses(self, upstream: Upstream, media: Sequence[Media]) -> list[str]:
        """Return an address for each item of audio of a result. Raises `PlayheadError` if saving fails."""
        made: list[str] = []
        for each in media:
            link = each if isinstance(each, ResourceMedia) else None
            if link is not None and (link.queue_arguments is not None or link.file is not None):
                continue  # a queue can be read only once, and a file only as long as its permission
            entry = MediaEntry(
                server=upstream.name,
                identity=upstream.identity,
                uri="" if link is None else link.uri,
                title=each.title,
                mime_type=each.mime_type,
                size_bytes=each.size_bytes,
                validator="" if link is None else link.validator,
                description=None if link is None else link.description,
                tool=None if link is None else link.tool,
                is_local=link is not None and link.is_local,
                read_at=0.0,
            )
            with self.table.saving():
                address = self.table.add(entry)
                if isinstance(each, BytesMedia):
                    data = decode_base64(each.payload)
                    await trio.to_thread.run_sync(self.table.save_audio, address, data)
            self._origins[address] = upstream
            made.append(f"{self.base_url}/media/{address}")
        return made

    async def read(self, start: int, end: int, *, address: str) -> ResourceBytes:
        """Read a part of the audio at an address. Raises `MCPError`."""
        entry = self.table.get(address)
        if entry is None:
            raise MCPError(
                RESOURCE_NOT_FOUND, "this address is unknown, or has expired", {"address": address}
            )
        if not entry.uri:
            piece = await read_file(self.table.path(address), start, end)
            return ResourceBytes(
                data=piece.data,
                total_bytes=piece.total_bytes,
                mime_type=entry.mime_type,
                etag=f'"{address[:16]}"',
            )
        try:
            with self.table.saving():
                copy = await self._copy(entry, address)
                copy.readers += 1
                try:
                    data = await copy.read(start, end, self._begin)
                finally:
                    copy.readers -= 1
        except PlayheadError as error:
            raise wire_error(error) from error
        return ResourceBytes(
            data=data,
            total_bytes=copy.size_bytes,
            mime_type=entry.mime_type,
            etag=_etag(entry) if entry.validator else None,
            name=entry.title,
        )

    async def _copy(self, entry: MediaEntry, address: str) -> _Copy:
        """Return the copy for an address: one that the same session fills, else one that may be shared."""
        key, origin = _key(entry), self._origin(address)
        copies = [copy for copy in self._copies if _key(copy.entry) == key]
        if entry.validator and all(copy.origin is not origin for copy in copies):
            for each in copies:
                if await each.may_serve_others() and each in self._copies:
                    origin = each.origin
                    break
        for copy in self._copies:
            if copy.origin is origin and _key(copy.entry) == key:
                self._copies.remove(copy)
                break
        else:
            copy = _Copy(entry, origin, partial(self._session_of, address, entry), self.table)
            self._make_room()
        self._copies.append(copy)
        return copy

    def _begin(self, copy: _Copy) -> None:
        copy.is_filling = True
        self.nursery.start_soon(self._fill, copy)

    async def _fill(self, copy: _Copy) -> None:
        await copy.fill()
        if not copy.entry.validator and not copy.readers:
            self._drop(copy)

    def close(self) -> None:
        """Drop all copies."""
        for copy in self._copies:
            copy.close()

    def _origin(self, address: str) -> Upstream | None:
        """Return the server in the session of the host whose result has the audio; None if it has left."""
        origin = self._origins.get(address)
        if origin is not None and origin.server.session is None:
            del self._origins[address]
            return None
        return origin

    async def _session_of(self, address: str, entry: MediaEntry) -> Session:
        origin = self._origin(address)
        session = None if origin is None else origin.server.session
        return session if session is not None else await self.session(entry)

    def _make_room(self) -> None:
        idle = [copy for copy in self._copies if not copy.is_filling and not copy.readers]
        held = sum(copy.held_bytes for copy in self._copies)
        while idle and held > COPIES_BYTES:
            held -= idle[0].held_bytes
            self._drop(idle.pop(0))

    def _drop(self, copy: _Copy) -> None:
        if copy in self._copies:
            self._copies.remove(copy)
            copy.close()


def _key(entry: MediaEntry) -> tuple[str, ...]:
    return entry.server, entry.identity, entry.uri, entry.description or "", entry.validator


def _etag(entry: MediaEntry) -> str:
    identity = json.dumps([*_key(entry), entry.size_bytes])
    return f'"{hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]}"'
