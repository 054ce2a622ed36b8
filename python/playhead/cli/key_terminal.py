"""The terminal of stdin, while its keys control a player.

To read without blocking, `opened_key_terminal` opens the terminal a second time: the flag for this belongs to
an open file, and the process shares the file on stdin with the shell. While keys are read, the terminal
neither echoes them nor waits for the end of a line. Ctrl-C stays a signal. A process in the terminal's
background reads and sets nothing, because the kernel would stop it.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import trio

from playhead.cli.key_parser import Key, KeyParser
from playhead.cli.terminal import Terminal, mode_restorer

_READ_BYTES: Final = 1024

_BACKGROUND_SECONDS: Final = 1.0
"""The time between two checks of whether this process is still in the background."""


class KeyTerminal:
    """The terminal behind `fd`, for one reader of keys. In its background, `take` and `give_back` do
    nothing."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._continued = trio.Event()
        self._restore = mode_restorer(fd)

    @property
    def is_ours(self) -> bool:
        """True if this process is in the terminal's foreground."""
        try:
            return os.tcgetpgrp(self.fd) == os.getpgrp()
        except OSError:  # it was closed
            return False

    def take(self) -> None:
        """Make the terminal report each key at once, and echo none."""
        if self.is_ours:
            with suppress(termios.error):
                mode = termios.tcgetattr(self.fd)
                mode[3] &= ~(termios.ECHO | termios.ICANON)
                mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
                termios.tcsetattr(self.fd, termios.TCSANOW, mode)

    def give_back(self) -> None:
        """Restore the terminal's mode."""
        self._restore()

    def discard(self) -> None:
        """Drop the keys that were not read, so that the shell does not get them."""
        if self.is_ours:
            with suppress(termios.error):
                termios.tcflush(self.fd, termios.TCIFLUSH)

    async def read_keys(self, press: Callable[[Key], Awaitable[None]]) -> None:
        """Call `press` with each key that is typed, until the terminal is closed."""
        parser = KeyParser()
        while True:
            await trio.lowlevel.wait_readable(self.fd)
            if not self.is_ours:  # typed for another process
                with trio.move_on_after(_BACKGROUND_SECONDS):
                    await self._continued.wait()
                continue
            self.take()  # Bash sends no SIGCONT to a running job that it moves to the foreground
            try:
                data = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:  # another process has read it
                continue
            except OSError:  # EIO: closed
                return
            if not data:
                return
            for key in parser.feed(data):
                await press(key)

    async def follow_jobs(self, signals: AsyncIterator[int]) -> None:
        """Give the terminal back while the shell has stopped this process (Ctrl-Z)."""
        async for number in signals:
            if number == signal.SIGTSTP:
                self.give_back()
                handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
                signal.raise_signal(signal.SIGTSTP)  # returns when continued, or at once without a shell
                signal.signal(signal.SIGTSTP, handler)
            self.take()
            self._continued.set()
            self._continued = trio.Event()


@contextmanager
def opened_key_terminal(terminal: Terminal) -> Iterator[KeyTerminal | None]:
    """Take the terminal of stdin for a block; None if keys cannot be read."""
    fd = _open_again() if terminal.is_live else None
    if fd is None:
        yield None
        return
    try:
        keyboard = KeyTerminal(fd)
        if not keyboard.is_ours:
            yield None
            return
        try:
            keyboard.take()
            yield keyboard
        finally:
            keyboard.discard()
            keyboard.give_back()
    finally:
        os.close(fd)


def _open_again() -> int | None:
    """Open the terminal of stdin without blocking; None if stdin is something else."""
    try:
        return os.open(os.ttyname(sys.stdin.fileno()), os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError, AttributeError):  # not a terminal, closed, or None
        return None
