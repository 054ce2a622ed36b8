"""Speech from espeak-ng as a growing resource, which clients hear while it is synthesised.

The program gets the text on its stdin, never on its command line, which other users of the machine can read.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import mcp_types as types
import trio
from mcp.server import Server
from mcp.shared.exceptions import MCPError

from playhead.errors import PlaybackError
from playhead.escaping import shortened
from playhead.servers.ranged_resource import RangedResource, ranged_resource

PROGRAM: Final = "espeak-ng"
URI: Final = "speech://{id}.wav"
PIECE_BYTES: Final = 64 * 1024
"""Limits one read of the program's output. It writes 4 KiB at a time."""
TEXT_CHARS: Final = 100_000
"""Limits the text of one call: two hours of speech."""
MOST_WAITING: Final = 32
"""Limits the texts whose speech nobody has read yet. Links to the oldest ones end."""
TITLE_CHARS: Final = 60


class Speech:
    """The texts to speak, and their resources."""

    def __init__(self, server: Server[Any], *, program: str) -> None:
        self._program = program
        self._texts: dict[str, str] = {}
        """The texts whose speech has not begun, the oldest first."""
        self._resource: RangedResource = ranged_resource(
            server,
            URI,
            growing=self._begin_speech,
            name="speech",
            description="Speech that was asked for with the tool speak, while it is synthesised.",
            mime_type="audio/wav",
        )

    @classmethod
    def of(cls, server: Server[Any]) -> Speech | None:
        """Return the speech of `server`, to which its resources are added; None if espeak-ng is not
        installed."""
        program = shutil.which(PROGRAM)
        return None if program is None else cls(server, program=program)

    async def link(self, text: str) -> types.ResourceLink:
        """Begin to speak `text`, and return the link to it. Raises `MCPError` if too many are in progress."""
        id = secrets.token_urlsafe(12)
        self._texts[id] = text
        while len(self._texts) > MOST_WAITING:
            del self._texts[next(iter(self._texts))]
        link = await self._resource.link(id=id)
        link.name = link.title = shortened(" ".join(text.split()), TITLE_CHARS)
        return link

    async def spoken(self, link: types.ResourceLink) -> types.ResourceLink:
        """Wait until the speech behind `link` is synthesised, and return the link with its size. Raises
        `MCPError` if that failed."""
        values = self._resource.known(self._resource.match(str(link.uri)) or {}, {})
        item = self._resource.growing_item(**values)
        await item.wait_over()
        item.read(item.size_bytes, item.size_bytes)  # raises the error of a failed source
        now = await self._resource.link(**values)
        return link.model_copy(update={"size": now.size, "meta": now.meta})

    def _begin_speech(self, id: str) -> AsyncIterator[bytes]:
        text = self._texts.pop(id, None)
        if text is None:
            raise MCPError(
                types.INVALID_PARAMS, f"unknown speech {id[:80]!r}; call the tool speak for a new one"
            )
        return _synthesise(self._program, text)


async def _synthesise(program: str, text: str) -> AsyncIterator[bytes]:
    """Speak `text`, and yield the WAV in pieces as they are made. Raises `PlaybackError` if the program
    fails.

    Cancellation, and closing the generator, kill the program.
    """
    with tempfile.TemporaryFile() as stdin:  # in place of a pipe, which a second task would have to fill
        stdin.write(text.encode("utf-8", "replace"))
        stdin.seek(0)
        process = await trio.lowlevel.open_process(
            [program, "--stdin", "--stdout"],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    try:
        assert process.stdout is not None
        while piece := await process.stdout.receive_some(PIECE_BYTES):
            yield bytes(piece)
        if (status := await process.wait()) != 0:
            raise PlaybackError(f"{program} failed with exit code {status}")
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            if process.stdout is not None:
                await process.stdout.aclose()
