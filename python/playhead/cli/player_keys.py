"""Keys that control a player from the terminal.

    bytes ─▶ KeyParser ─▶ Key ─▶ PlayerKeys ─▶ Player

The parser has no I/O and no clock, and any chunking of the bytes gives the same keys. That is why a lone
Escape does nothing: only a timer could tell it from the start of an arrow's sequence.

The terminal is opened a second time, without blocking: the flag belongs to an open file, and the one on stdin
is shared with the shell. While it is ours it neither echoes nor waits for the end of a line. Ctrl-C stays a
signal. In the background nothing is read or set, since the kernel would stop us.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import termios
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, assert_never

import trio

from playhead.cli.terminal import Terminal, mode_restorer
from playhead.concurrency import unwrap_exception_group
from playhead.errors import PlayheadError

if TYPE_CHECKING:
    from playhead.playback import Player

SEEK_SECONDS: Final = 5.0
VOLUME_STEP: Final = 5
HELP: Final = "space pause · ←→ 5 s · ↑↓ volume · n next · p previous · q quit"
_READ_BYTES: Final = 1024
_BACKGROUND_SECONDS: Final = 1.0
"""The wait between two looks at a terminal whose input is another process's."""


class Key(Enum):
    PAUSE = auto()
    BACK = auto()
    FORWARD = auto()
    LOUDER = auto()
    QUIETER = auto()
    NEXT = auto()
    PREVIOUS = auto()
    QUIT = auto()


_KEYS: Final[Mapping[int, Key]] = MappingProxyType(
    {
        ord(" "): Key.PAUSE,
        ord("n"): Key.NEXT,
        ord("N"): Key.NEXT,
        ord("p"): Key.PREVIOUS,
        ord("P"): Key.PREVIOUS,
        ord("q"): Key.QUIT,
        ord("Q"): Key.QUIT,
    }
)
_ARROWS: Final[Mapping[int, Key]] = MappingProxyType(
    {ord("A"): Key.LOUDER, ord("B"): Key.QUIETER, ord("C"): Key.FORWARD, ord("D"): Key.BACK}
)
_ESCAPE: Final = 0x1B
_INTRODUCERS: Final = frozenset(b"[O")
_PARAMETERS: Final = range(0x20, 0x40)
_FINALS: Final = range(0x40, 0x7F)


class _Place(Enum):
    """The parser's place in a sequence."""

    OUTSIDE = auto()
    ESCAPED = auto()
    """Escape was read."""
    INSIDE = auto()
    """`Escape [` (ECMA-48's CSI) or `Escape O` (SS3, of a keypad in application mode) was read."""


class KeyParser:
    """Reads keys from a terminal's bytes.

    A sequence is `Escape [` or `Escape O`, any parameters (0x20 to 0x3F) and a final byte (0x40 to 0x7E), as
    in ECMA-48, section 5.4. Those that are not an arrow are skipped, and modifiers of an arrow are ignored. A
    byte that cannot continue a sequence ends it and counts by itself.
    """

    def __init__(self) -> None:
        self._place = _Place.OUTSIDE

    def feed(self, data: bytes) -> Iterator[Key]:
        """Return the keys that these bytes complete."""
        for byte in data:
            key = self._next(byte)
            if key is not None:
                yield key

    def _next(self, byte: int) -> Key | None:
        place, self._place = self._place, _Place.OUTSIDE
        if byte == _ESCAPE:
            self._place = _Place.ESCAPED
            return None
        if place is _Place.ESCAPED and byte in _INTRODUCERS:
            self._place = _Place.INSIDE
            return None
        if place is _Place.INSIDE and byte in _PARAMETERS:
            self._place = _Place.INSIDE
            return None
        if place is _Place.INSIDE and byte in _FINALS:
            return _ARROWS.get(byte)
        return _KEYS.get(byte)


class PlayerKeys:
    """The effect of each key on `player`. Seeks that wait for another one become one."""

    def __init__(self, player: Player, terminal: Terminal) -> None:
        self._player = player
        self._terminal = terminal
        self._wanted_seconds: float | None = None
        """The position to seek next."""
        self._sought_seconds: float | None = None
        """The target of the seek under way; the player reports it only once the seek has begun."""
        self._seek_wanted = trio.Event()
        self.is_untouched = True
        """The audio plays through: no key moved or ended it."""

    async def press(self, key: Key) -> None:
        player = self._player
        if key in (Key.NEXT, Key.PREVIOUS, Key.QUIT):
            self.is_untouched = False
            self._wanted_seconds = self._sought_seconds = None
        match key:
            case Key.PAUSE:
                if "user" in player.snapshot().holds:
                    player.resume()
                else:
                    player.pause()
            case Key.BACK | Key.FORWARD:
                self._want(SEEK_SECONDS if key is Key.FORWARD else -SEEK_SECONDS)
            case Key.LOUDER | Key.QUIETER:
                step = VOLUME_STEP if key is Key.LOUDER else -VOLUME_STEP
                player.set_volume(min(100, max(0, player.snapshot().volume + step)))
            case Key.NEXT:
                await player.next()
            case Key.PREVIOUS:
                await player.previous()
            case Key.QUIT:
                await player.stop()
            case _:
                assert_never(key)

    def _want(self, by_seconds: float) -> None:
        """Count from where the seeks before lead, within the item: each key goes as far as it can."""
        now = self._player.snapshot()
        leads = (self._wanted_seconds, self._sought_seconds, now.position_seconds)
        begin = next(seconds for seconds in leads if seconds is not None)
        end = math.inf if now.duration_seconds is None else now.duration_seconds
        self._wanted_seconds = min(end, max(0.0, begin + by_seconds))
        self._seek_wanted.set()

    async def seek(self) -> None:
        """Carry out the seeks, one at a time, until cancelled."""
        message = ""
        while True:
            await self._seek_wanted.wait()
            self._seek_wanted = trio.Event()
            seconds, self._wanted_seconds = self._wanted_seconds, None
            if seconds is None:
                continue
            self._sought_seconds = seconds
            try:
                await self._player.seek(seconds)
            except PlayheadError as error:
                if str(error) != message:  # held down, a key repeats thirty times per second
                    message = str(error)
                    self._terminal.say(message, style="yellow")
            else:
                self.is_untouched = False
            finally:
                self._sought_seconds = None


# --- the terminal ------------------------------------------------------------------------------------


class KeyTerminal:
    """The terminal behind `fd`, for one reader of keys. `take` and `give_back` do nothing in its
    background."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._continued = trio.Event()
        self._restore = mode_restorer(fd)

    @property
    def is_ours(self) -> bool:
        """This process is in the foreground."""
        try:
            return os.tcgetpgrp(self.fd) == os.getpgrp()
        except OSError:  # it was closed
            return False

    def take(self) -> None:
        """Report each key at once, and echo none."""
        if self.is_ours:
            with suppress(termios.error):
                mode = termios.tcgetattr(self.fd)
                mode[3] &= ~(termios.ECHO | termios.ICANON)
                mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
                termios.tcsetattr(self.fd, termios.TCSANOW, mode)

    def give_back(self) -> None:
        """Put the mode back."""
        self._restore()

    def discard(self) -> None:
        """Drop the keys that were not read: they were not meant for the shell."""
        if self.is_ours:
            with suppress(termios.error):
                termios.tcflush(self.fd, termios.TCIFLUSH)

    async def read_keys(self, keys: PlayerKeys) -> None:
        """Press what is typed, until the terminal is closed."""
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
                await keys.press(key)

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


@asynccontextmanager
async def player_keys(player: Player, terminal: Terminal) -> AsyncIterator[PlayerKeys]:
    """Let keys control `player` while the body runs, if stdin and stderr are a terminal and this process is
    in its foreground.

    However the body ends, the terminal is then as it was before, and keys that were not read are discarded.
    """
    keys = PlayerKeys(player, terminal)
    with _key_terminal(terminal) as keyboard:
        if keyboard is None:
            yield keys
            return
        terminal.say(HELP, style="dim")
        with unwrap_exception_group(), trio.open_signal_receiver(*_job_signals()) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keyboard.follow_jobs, signals)
                nursery.start_soon(keyboard.read_keys, keys)
                nursery.start_soon(keys.seek)
                yield keys
                nursery.cancel_scope.cancel()


@contextmanager
def _key_terminal(terminal: Terminal) -> Iterator[KeyTerminal | None]:
    fd = _opened_again() if terminal.is_live else None
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


def _opened_again() -> int | None:
    """Open the terminal of stdin without blocking; None if stdin is something else."""
    try:
        return os.open(os.ttyname(sys.stdin.fileno()), os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError, AttributeError):  # not a terminal, closed, or None
        return None


def _job_signals() -> list[signal.Signals]:
    ignored = signal.getsignal(signal.SIGTSTP) is signal.SIG_IGN
    return [signal.SIGCONT] if ignored else [signal.SIGCONT, signal.SIGTSTP]
