"""A person at a terminal: keys go in, and the test waits for what is shown."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.e2e.command import HANG_SECONDS, environment
from tests.e2e.forked import Forked


class Typist:
    """A person at a terminal."""

    def __init__(self, master: int, process: Forked) -> None:
        self._master = master
        self._process = process
        self._read = b""
        self._seen = 0
        self.exit_code: int | None = None
        """Known once the process was waited for."""

    @property
    def screen(self) -> str:
        """All that was printed so far."""
        return self._read.decode("utf-8", "replace")

    @property
    def echoes(self) -> bool:
        """The terminal shows what is typed, and hands it over line by line."""
        wanted = termios.ECHO | termios.ICANON
        flags: int = termios.tcgetattr(self._master)[3]
        return flags & wanted == wanted

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    @property
    def pid(self) -> int:
        """Of the command."""
        return self._process.pid

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def type(self, line: str) -> None:
        self.press(line + "\n")

    async def see(self, text: str) -> str:
        """Wait until `text` is printed after what was seen before; what came until then."""
        wanted = text.encode()
        with trio.move_on_after(HANG_SECONDS) as scope:
            while (at := self._read.find(wanted, self._seen)) < 0:
                assert await self._more(), f"{text!r} never came; the screen: {self.screen}"
            came = self._read[self._seen : at]
            self._seen = at + len(wanted)
            return came.decode("utf-8", "replace")
        assert not scope.cancelled_caught, f"{text!r} did not come; the screen: {self.screen}"
        raise AssertionError

    async def say(self, line: str, *answers: str) -> None:
        """Type a line, and wait for each of `answers` in turn."""
        self.type(line)
        for answer in answers:
            await self.see(answer)

    async def end(self) -> int:
        """Wait for the process to end; its exit code."""
        with trio.fail_after(HANG_SECONDS):
            while await self._more():
                pass
            code = self.exit_code = await trio.to_thread.run_sync(self._process.wait)
        assert "Traceback" not in self.screen, self.screen
        assert "internal error" not in self.screen, self.screen
        return code

    async def _more(self) -> bool:
        await trio.lowlevel.wait_readable(self._master)
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # EIO: nobody has the other end open any more
            return False
        self._read += data
        return bool(data)


@asynccontextmanager
async def at_keyboard(
    *command: str | Path, cwd: Path, columns: int = 80, term: str = "dumb"
) -> AsyncIterator[Typist]:
    """One `playhead` command at a terminal. Killed if it still runs at the end."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        given = environment() | {"COLUMNS": str(columns), "TERM": term}
        process = Forked([*map(str, command)], environment=given, cwd=cwd, terminal=slave)
        os.close(slave)
        try:
            yield Typist(master, process)
        finally:
            process.kill()
            process.wait(HANG_SECONDS)
    finally:
        os.close(master)
