"""Through a real sound library: ALSA, configured to play into a file instead of a card.

The file's device takes sound as fast as it comes, so it runs dry where a card would not. The silence it then
gets is told from sound by sound that has no zero byte.
"""

from __future__ import annotations

import ctypes.util
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from playhead.playback import DeviceSink, Player
from playhead.playback.formats import PcmFormat
from playhead.testing.media import ScriptedMedia, ScriptedReader
from playhead.testing.sinks import SINK_LAWS, SinkLaw, law_name, tone
from tests.servers.wave import write_wave

pytestmark = pytest.mark.skipif(
    ctypes.util.find_library("asound") is None, reason="no ALSA: install libasound2 to play through it"
)
UseCard = Callable[[str], None]


@pytest.fixture
def use_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UseCard:
    """Make this ALSA device the default one, and the only way to sound."""

    def use(definition: str) -> None:
        config = tmp_path / "asound.conf"
        config.write_text(
            f"pcm.!default {definition}\npcm.null {{ type null }}\nctl.!default {{ type null }}\n"
        )
        monkeypatch.setenv("ALSA_CONFIG_PATH", str(config))
        monkeypatch.setenv("PULSE_SERVER", "unix:/nonexistent")  # it would come before ALSA

    return use


SPINS = pytest.mark.slow("spins on both processors: the device takes audio at once")
QUICK_LAWS = ("plays every frame", "plays each of a sequence", "holds the playhead")
LAWS = [
    pytest.param(law, id=law_name(law), marks=[] if law_name(law).startswith(QUICK_LAWS) else [SPINS])
    for law in SINK_LAWS
]


@pytest.mark.parametrize("law", LAWS)
async def test_the_device_sink_keeps_the_law(law: SinkLaw, use_card: UseCard) -> None:
    use_card("{ type null }")
    await law(DeviceSink)


@pytest.mark.parametrize(
    "format",
    [PcmFormat(rate_hz=44100, channels=2), pytest.param(PcmFormat(rate_hz=16000, channels=1), marks=SPINS)],
    ids=str,
)
async def test_the_very_samples_reach_the_sound_card(
    format: PcmFormat, use_card: UseCard, tmp_path: Path
) -> None:
    card = tmp_path / "card.raw"
    use_card(f'{{ type file slave.pcm "null" file "{card}" format "raw" }}')
    pcm = tone(format, frames=format.rate_hz)
    music = io.BytesIO()
    write_wave(music, pcm, rate_hz=format.rate_hz, channels=format.channels)
    async with Player(DeviceSink()) as player:
        await player.play(ScriptedMedia(reader=ScriptedReader(music.getvalue())))
        with trio.fail_after(30):
            await player.wait_finished()
        assert player.snapshot().frames == format.rate_hz
    assert card.read_bytes().replace(b"\0", b"") == pcm
