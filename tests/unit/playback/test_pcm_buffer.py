"""The PCM buffer as a device hears it: holds, ramps and seeks, recorded sample by sample."""

from __future__ import annotations

import hashlib
import random
from array import array
from itertools import pairwise

import pytest
import trio

from playhead.playback.formats import PcmFormat, SampleFormat
from playhead.playback.pcm_buffer import FADE_SECONDS, SEEK_FADE_SECONDS, PcmBuffer
from playhead.playback.sinks.null import TakenAudio
from tests import tones

RATE = 8000
MONO = PcmFormat(rate_hz=RATE, channels=1)
FADE = int(FADE_SECONDS * RATE)
SEEK_FADE = int(SEEK_FADE_SECONDS * RATE)
PERIOD = 300


def sine(frames: int, *, hz: float = 200.0) -> array[int]:
    return tones.sine(frames, RATE, hz=hz, peak=20_000)


def largest_step(samples: array[int]) -> int:
    return max(abs(after - before) for before, after in pairwise(samples))


class Recorder:
    """A device whose periods a test makes. It keeps the buffer full of `source`, as a decoder would."""

    def __init__(self, source: array[int], *, rate_hz: int = RATE) -> None:
        format = PcmFormat(rate_hz=rate_hz, channels=1)
        self.buffer = PcmBuffer(format, token=trio.lowlevel.current_trio_token())
        self.heard = array("h")
        """Everything, with silence."""
        self.audio = array("h")
        """The audio alone."""
        self._source = source
        self._written = 0
        self._feed()
        self.buffer.release()

    def periods(self, count: int, *, frames: int = PERIOD) -> array[int]:
        heard = array("h")
        for _ in range(count):
            out = array("h", bytes(2 * frames))
            audio_bytes = self.buffer.fill(memoryview(out))
            heard.extend(out)
            self.audio.extend(out[: audio_bytes // 2])
            self._feed()
        self.heard.extend(heard)
        return heard

    def seek(self, frame: int) -> None:
        assert self.buffer.seek(frame)
        self._written = frame
        self._feed()
        self.buffer.release()

    def _feed(self) -> None:
        room = int((0.3 - self.buffer.buffered_seconds) * RATE)
        piece = self._source[self._written : self._written + room]
        if piece and not self.buffer.pipe.closed:
            self.buffer.write(memoryview(piece).cast("B"))
            self._written += len(piece)


def assert_no_click(heard: array[int], source: array[int], *, fade_frames: int) -> None:
    """No step is larger than the source's own and that of a fade at the source's peak."""
    assert largest_step(heard) <= largest_step(source) + max(source) // fade_frames + 1


@pytest.mark.parametrize("frames", [7, PERIOD, 1024])
async def test_a_recording_with_holds_equals_the_source_with_the_pauses_cut_out_but_for_the_fades(
    frames: int,
) -> None:
    source = sine(20_000)
    device = Recorder(source)
    touched: set[int] = set()
    while device.buffer.frames < 15_000:
        device.periods(2_500 // frames, frames=frames)
        at = device.buffer.frames
        touched.update(range(at, at + 2 * FADE))
        device.buffer.set_paused(True)
        device.periods(3 + FADE // frames, frames=frames)
        assert device.buffer.frames == at + FADE, "held at the very sample"
        device.buffer.set_paused(False)
    device.periods(2, frames=frames)
    differing = {at for at, pair in enumerate(zip(device.audio, source, strict=False)) if pair[0] != pair[1]}
    assert len(device.audio) == device.buffer.frames == device.buffer.position_frames
    assert differing <= touched
    assert_no_click(device.heard, source, fade_frames=FADE)
    assert len(device.heard) > len(device.audio)


async def test_the_click_detector_hears_a_pause_without_a_fade() -> None:
    source = sine(5_000)
    cut = source[:1010] + array("h", bytes(600)) + source[1010:]
    with pytest.raises(AssertionError):
        assert_no_click(cut, source, fade_frames=FADE)


async def test_a_duck_is_down_within_its_attack_and_up_again_without_a_click() -> None:
    source = sine(20_000)
    device = Recorder(source)
    device.periods(5)
    device.buffer.set_duck(0.05, ramp_seconds=0.05)
    begun = len(device.heard)
    device.periods(5)
    ducked = device.heard[begun + RATE // 20 :]
    assert max(ducked) <= 0.05 * max(source) + 1
    device.buffer.set_duck(1.0, ramp_seconds=0.3)
    device.periods(10)
    end = len(device.heard)
    device.periods(1)
    assert device.heard[end:] == source[end : end + PERIOD]
    assert_no_click(device.heard, source, fade_frames=RATE // 20)


async def test_a_duck_before_the_first_frame_needs_no_ramp() -> None:
    device = Recorder(sine(2_000))
    device.buffer.set_duck(0.0, ramp_seconds=1.0)
    assert not any(device.periods(1))


async def test_a_fade_out_closes_the_buffer_in_the_sinks_own_call_and_wakes_the_player() -> None:
    source = sine(20_000)
    device = Recorder(source)
    device.periods(5)
    device.buffer.fade_out(0.03)
    assert not device.buffer.closed
    device.periods(2)
    assert device.buffer.closed
    assert device.buffer.frames == 5 * PERIOD + int(0.03 * RATE)
    with trio.fail_after(5):
        while not device.buffer.pipe.closed:
            await device.buffer.wait_change()
    assert_no_click(device.heard, source, fade_frames=int(0.03 * RATE))


async def test_a_thousand_seeks_while_playing_give_the_samples_of_their_places_and_no_click() -> None:
    source = sine(50_000, hz=210.0)
    device = Recorder(source)
    places = random.Random(15)
    device.periods(2)
    for _ in range(1000):
        place = places.randrange(40_000)
        device.seek(place)
        assert device.buffer.position_frames == place
        heard = device.periods(places.randrange(1, 4))
        new = heard[2 * SEEK_FADE :]  # after both fades
        assert new == source[place + SEEK_FADE : place + SEEK_FADE + len(new)]
        assert device.buffer.position_frames == place + len(heard) - SEEK_FADE
    assert_no_click(device.heard, source, fade_frames=SEEK_FADE)
    assert device.buffer.underruns == 0


async def test_a_seek_before_the_first_frame_fades_nothing_out() -> None:
    source = sine(9_000)
    device = Recorder(source)
    device.seek(4_000)
    assert device.periods(1)[SEEK_FADE:] == source[4_000 + SEEK_FADE : 4_000 + PERIOD]


async def test_the_buffer_after_a_seek_holds_what_follows_it_and_is_open_again() -> None:
    device = Recorder(sine(9_000))
    device.periods(1)
    failure = ValueError("damaged")
    device.buffer.finish(failure)
    assert device.buffer.seek(100)
    assert (device.buffer.buffered_seconds, device.buffer.held, device.buffer.failure) == (0.0, True, None)
    assert device.buffer.seeks == 1
    device.buffer.write(bytes(1600))
    assert device.buffer.buffered_seconds == 0.1
    device.buffer.finish()
    device.periods(10)
    assert device.buffer.ended
    assert not device.buffer.seek(0)


async def test_the_hash_of_what_was_taken_leaves_out_what_a_seek_made_void() -> None:
    source = sine(9_000)
    device = Recorder(source)
    taken = TakenAudio(device.buffer)
    device.periods(1)
    device.seek(5_000)
    device.periods(1)
    expected = source[: PERIOD + SEEK_FADE] + source[5_000 : 5_000 + PERIOD - SEEK_FADE]
    report = taken.report()
    assert (report.frames, report.sha256) == (2 * PERIOD, hashlib.sha256(expected).hexdigest())
    taken.conclude()


async def test_float_samples_are_ramped_alike() -> None:
    format = PcmFormat(rate_hz=RATE, channels=1, sample=SampleFormat.F32)
    buffer = PcmBuffer(format, token=trio.lowlevel.current_trio_token())
    buffer.write(array("f", [0.5] * 400))
    buffer.release()
    out = array("f", bytes(400))
    assert buffer.fill(memoryview(out)) == 400
    assert out == array("f", [0.5] * 100)
    buffer.set_duck(0.5, ramp_seconds=50 / RATE)
    buffer.fill(memoryview(out))
    assert list(out[49:]) == [0.25] * 51
    assert list(out) == sorted(out, reverse=True)


async def test_what_was_heard_waits_for_the_delay_of_the_sink_and_of_what_follows_it() -> None:
    device = Recorder(sine(9_000))
    assert device.buffer.heard_seconds == 0.0
    device.buffer.set_delay(3600.0)
    device.periods(3)
    assert device.buffer.heard_seconds == 0.0
    far = PcmBuffer(MONO, token=trio.lowlevel.current_trio_token(), output_latency_seconds=3600.0)
    far.write(bytes(2000))
    far.release()
    far.fill(bytearray(1000))
    far.set_delay(0.0)
    assert far.heard_seconds == 0.0
    thread = PcmBuffer(MONO, token=trio.lowlevel.current_trio_token())
    thread.write(bytes(2000))
    thread.finish()
    thread.take(bytearray(1600))
    assert thread.heard_seconds == 0.1, "a file holds nothing back"
