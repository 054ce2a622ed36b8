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
    """Carries out the keys on `player`. While a seek is under way, further seeks are joined into one."""

    def __init__(self, player: Player, terminal: Terminal) -> None:
        self._player = player
        self._terminal = terminal
        self._wanted_seconds: float | None = None
        """The position to seek next; infinite for the newest part of a live item."""
        self._sought_seconds: float | None = None
        """The target of the seek under way; the player reports it only once the seek has begun."""
        self._seek_wanted = trio.Event()
        self.is_untouched = True
        """True while no key has moved or ended the audio."""

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
            case Key.LIVE:
                self._wanted_seconds = math.inf
                self._seek_wanted.set()
            case Key.NEXT:
                await player.next()
            case Key.PREVIOUS:
                await player.previous()
            case Key.QUIT:
                await player.stop()
            case _:
                assert_never(key)

    def _want(self, by_seconds: float) -> None:
        """Add to the position to seek, within the item. Counts from the target of an earlier seek that is not
        done, if any, so that each key has its full effect."""
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
                await (self._player.go_live() if seconds == math.inf else self._player.seek(seconds))
            except PlayheadError as error:
                if str(error) != message:  # held down, a key repeats thirty times per second
                    message = str(error)
                    self._terminal.say(message, style="yellow")
            else:
                self.is_untouched = False
            finally:
                self._sought_seconds = None


# --- the terminal ------------------------------------------------------------------------------------


@asynccontextmanager
async def player_keys(player: Player, terminal: Terminal) -> AsyncIterator[PlayerKeys]:
    """Let keys control `player` while the body runs, if stdin and stderr are a terminal and this process is
    in its foreground.

    However the body ends, the terminal is then as it was before, and keys that were not read are discarded.
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
