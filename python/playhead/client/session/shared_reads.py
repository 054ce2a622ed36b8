"""Reads in flight that the streams of a session share.

A range that is being read for one stream is not requested again for another. The read runs in a task of the
session (`RangeForm.start_soon`) and is shielded while other streams wait for it, so that closing the first
stream does not cancel it. `CachedReads` puts a page cache in front of `SharedReads`, if the session has one.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import trio

from playhead.cache import MemoryCache, PageCache, is_dated, resource_key
from playhead.client.session.arrivals import Arrivals
from playhead.errors import PlayheadError
from playhead.stream.answer import Answer, Page, pieces
from playhead.stream.in_flight import READ_SCOPE

Scope = Literal["public", "private"]
_LOOPBACK_PORT: Final = re.compile(
    r"\b((?:https?|wss?)://(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])):\d{1,5}(?=[/?#\"\\])", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class CachePlace:
    """A cache, and the key of a version of a resource in it."""

    cache: PageCache
    key: str


@dataclass(slots=True, kw_only=True)
class SessionReads:
    """The reads in flight of a session, its page cache, and the parts of the cache's keys that identify the
    server and the user."""

    cache: PageCache | None
    """None if the session shares only reads in flight."""
    server: object
    """The configured URL or command, in JSON's types; None for a server object in this process."""
    machine: str | None = None
    """A name for this machine if the server is identified only within it, by a loopback URL or a command.
    Ports may differ after each start."""
    credentials: str | None
    """A name for the credentials. Empty without any; None if they are unknown or change."""
    memory: MemoryCache = field(default_factory=MemoryCache)
    """A cache for blocks that must not leave this session."""
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    in_flight: dict[tuple[Hashable, int], _SharedRead] = field(default_factory=dict)
    """The reads by resource and first byte."""

    def places(
        self, *, server: object, resource: object, validator: str, scope: Scope | None
    ) -> tuple[CachePlace, ...]:
        """Return the places in which to look for blocks of a version. New blocks are stored in the first one.

        `scope` is the server's `cacheScope`; None if it is not known. A resource that is read with
        credentials is private unless the server says otherwise. A private resource stays in this session if
        there are no credentials, or none with a name. So does a resource without a validator.

        For a server that only this machine can reach, an entity tag or a digest identifies the bytes, so the
        ports of loopback URLs are left out of the key. A date and a size do not, so the machine is part of
        it.
        """
        assert self.cache is not None
        identity: object = [self.server, server, resource]
        if self.machine is not None and is_dated(validator):
            identity = [self.machine, identity]
        elif self.machine is not None and validator:
            identity = _LOOPBACK_PORT.sub(r"\1", json.dumps(identity, sort_keys=True, default=str))

        def at(cache: PageCache, access: str) -> CachePlace:
            return CachePlace(cache, resource_key(identity, validator=validator, access=access))

        public, here = at(self.cache, "public"), at(self.memory, f"session {self.nonce}")
        if not validator or self.server is None:
            return (here,)
        if scope == "public":
            return (public,)
        private = at(self.cache, f"private {self.credentials}") if self.credentials else here
        if scope == "private":
            return (private,)
        # Without a scope, the server may answer each user differently, even users without credentials.
        return (at(self.cache, "anonymous") if self.credentials == "" else private, public)

    def may_leave(self, scope: Scope | None) -> bool:
        """Return whether another session with the same server and credentials may have bytes of this one.

        They need a validator too, as in `places`.
        """
        return scope == "public" or bool(self.credentials) or (scope is None and self.credentials == "")


class _SharedRead(Arrivals):
    """One read in flight, and the streams that wait for it."""

    def __init__(self, start: int, end: int, stream: SharedReads) -> None:
        self.start = start
        self.end = end
        self.streams = [stream]
        self.scope = trio.CancelScope()
        self._outer = READ_SCOPE.get(None)
        self.over = trio.Event()
        self.page: Page | None = None
        self.error: PlayheadError | None = None

    def note(self, at: float) -> None:
        self.newest = at
        for stream in self.streams:
            stream.arrivals.newest = at

    @property
    def is_cancelled(self) -> bool:
        """True if trio is about to cancel the read, which a shield can no longer prevent."""
        return self._outer is not None and self._outer.cancel_called and not self.scope.shield

    async def join(self, stream: SharedReads, end: int) -> Page | None:
        """Wait for the page, and return its part up to `end`.

        A page of another length than was requested is returned whole, because its length is evidence of how
        the server treats ranges. Returns None if the read was cancelled just before. Raises the error of the
        read.
        """
        self.streams.append(stream)
        self.scope.shield = True
        stream.arrivals.note(self.newest)
        try:
            await self.over.wait()
        finally:
            self.streams.remove(stream)
            self.scope.shield = len(self.streams) > 1
        if self.error is not None:
            raise self.error
        page, n_bytes = self.page, self.end - self.start
        if page is None or self.end <= end or page.text_items or page.n_bytes != n_bytes:
            return page
        whole = Answer(offset=self.start, blobs=page.blobs, n_bytes=n_bytes)
        return replace(page, blobs=tuple(piece for _, piece in pieces(whole, self.start, end)))


@dataclass(slots=True, eq=False)
class SharedReads:
    """A `ReadRange` of one stream that shares reads in flight with other streams of the session."""

    send: Callable[[int, int, Arrivals], Awaitable[Page]]
    """Requests a range, and records the arrival of its bytes in the `Arrivals`."""
    session: SessionReads
    resource: Hashable
    arrivals: Arrivals

    async def __call__(self, start: int, end: int) -> Page:
        """Read `[start, end)`. Join a read in flight that begins at `start` and is at least as long, if any.

        A second read of the same stream is always sent, because the planner repeats a read only if the first
        one is late. Raises the errors of `send`. Cancelled: the read goes on if other streams wait for it.
        """
        reads, key = self.session.in_flight, (self.resource, start)
        while (read := reads.get(key)) is not None and read.end >= end and self not in read.streams:
            await trio.lowlevel.checkpoint_if_cancelled()  # do not join if the session was cancelled
            if read.is_cancelled:
                break
            if (shared := await read.join(self, end)) is not None:
                return shared
        read = reads[key] = _SharedRead(start, end, self)
        try:
            with read.scope:
                page = read.page = await self.send(start, end, read)
        except PlayheadError as error:
            read.error = error
            raise
        finally:
            if reads.get(key) is read:
                del reads[key]
            read.over.set()
        if len(read.streams) > 1:
            await trio.lowlevel.checkpoint_if_cancelled()  # the shield has deferred a cancellation
        return page


def credentials_name(values: object) -> str:
    """Return a name for credentials that does not reveal them; empty without any."""
    if not values:
        return ""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()
