"""Sinks, the outputs of the player. Every sink passes the suite in `playhead.testing.sinks`, and has a row in
`playhead.cli.sinks` if `--sink` names it."""

from __future__ import annotations

from playhead.playback.sinks.device import DeviceSink
from playhead.playback.sinks.frames import AudioFrame, ClearFrames, FrameCodec, FrameFileSink, FramesSink
from playhead.playback.sinks.mixing import MixingSink
from playhead.playback.sinks.null import NullSink
from playhead.playback.sinks.sink import Sink
from playhead.playback.sinks.wave import PcmSink, WaveSink

__all__ = [
    "AudioFrame",
    "ClearFrames",
    "DeviceSink",
    "FrameCodec",
    "FrameFileSink",
    "FramesSink",
    "MixingSink",
    "NullSink",
    "PcmSink",
    "Sink",
    "WaveSink",
]
