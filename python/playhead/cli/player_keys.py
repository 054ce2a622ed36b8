"""Keys that control a player from the terminal.

KeyTerminal ─ bytes ─▶ KeyParser ─ Key ─▶ PlayerKeys ─▶ Player
"""

from __future__ import annotations

import math
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, assert_never

import trio

from playhead.cli.key_parser import Key
from playhead.cli.key_terminal import opened_key_terminal
from playhead.cli.terminal import Terminal
from playhead.concurrency import unwrap_exception_group
from playhead.errors import PlayheadError

if TYPE_CHECKING:
    from playhead.playback import Player

SEEK_SECONDS: Final = 5.0
VOLUME_STEP: Final = 5
HELP: Final = "space pause · ←→ 5 s · ↑↓ volume · n next · p previous · l live · q quit"


class PlayerKeys:
    """Carries out the keys on `player`. It joins the seeks that are requested during another seek into
    one."""

    def __init__(self, player: Player, terminal: Terminal) -> None:
        self._player = player
        self._terminal = terminal
        self._next_seconds: float | None = None
        """The position to seek next; infinite for the newest part of a live item."""
        self._current_seconds: float | None = None
        """The target of the current seek. The player does not report it until the seek has begun."""
        self._seek_requested = trio.Event()
        self.is_untouched = True
        """True while no key has moved or ended the audio."""

    async def press(self, key: Key) -> None:
        player = self._player
        if key in (Key.NEXT, Key.PREVIOUS, Key.QUIT):
            self.is_untouched = False
            self._next_seconds = self._current_seconds = None
        match key:
            case Key.PAUSE:
                if "user" in player.snapshot().holds:
                    player.resume()
                else:
                    player.pause()
            case Key.BACK | Key.FORWARD:
                self._request_seek(SEEK_SECONDS if key is Key.FORWARD else -SEEK_SECONDS)
            case Key.LOUDER | Key.QUIETER:
                step = VOLUME_STEP if key is Key.LOUDER else -VOLUME_STEP
                player.set_volume(min(100, max(0, player.snapshot().volume + step)))
            case Key.LIVE:
                self._next_seconds = math.inf
                self._seek_requested.set()
            case Key.NEXT:
                await player.next()
            case Key.PREVIOUS:
                await player.previous()
            case Key.QUIT:
                await player.stop()
            case _:
                assert_never(key)

    def _request_seek(self, by_seconds: float) -> None:
        """Request a seek by `by_seconds`, within the item. It counts from the target of an unfinished seek,
        if any, so that each key has its full effect."""
        now = self._player.snapshot()
        positions = (self._next_seconds, self._current_seconds, now.position_seconds)
        begin = next(seconds for seconds in positions if seconds is not None)
        end = math.inf if now.duration_seconds is None else now.duration_seconds
        self._next_seconds = min(end, max(0.0, begin + by_seconds))
        self._seek_requested.set()

    async def seek(self) -> None:
        """Carry out the seeks, one at a time, until cancelled."""
        message = ""
        while True:
            await self._seek_requested.wait()
            self._seek_requested = trio.Event()
            seconds, self._next_seconds = self._next_seconds, None
            if seconds is None:
                continue
            self._current_seconds = seconds
            try:
                await (self._player.go_live() if seconds == math.inf else self._player.seek(seconds))
            except PlayheadError as error:
                if str(error) != message:  # a key that is held down repeats thirty times per second
                    message = str(error)
                    self._terminal.say(message, style="yellow")
            else:
                self.is_untouched = False
            finally:
                self._current_seconds = None


# --- the terminal ------------------------------------------------------------------------------------


@asynccontextmanager
async def player_keys(player: Player, terminal: Terminal) -> AsyncIterator[PlayerKeys]:
    """Let keys control `player` in the `with` block, if stdin and stderr are a terminal and this process is
    in its foreground.

    At the end of the block it restores the terminal, and discards keys that were not read.
    """
    keys = PlayerKeys(player, terminal)
    with opened_key_terminal(terminal) as keyboard:
        if keyboard is None:
            yield keys
            return
        terminal.say(HELP, style="dim")
        with unwrap_exception_group(), trio.open_signal_receiver(*_job_signals()) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keyboard.follow_jobs, signals)
                nursery.start_soon(keyboard.read_keys, keys.press)
                nursery.start_soon(keys.seek)
                yield keys
                nursery.cancel_scope.cancel()


def _job_signals() -> list[signal.Signals]:
    ignored = signal.getsignal(signal.SIGTSTP) is signal.SIG_IGN
    return [signal.SIGCONT] if ignored else [signal.SIGCONT, signal.SIGTSTP]
