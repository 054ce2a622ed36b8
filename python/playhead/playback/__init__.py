"""Playback: identify a stream, decode it to PCM, and play the PCM.

Data flow, one thread and one pipe at a time:

    media.open() -> Reader -> DecoderSource -> a decoder   (the decoder's thread)
                                                          |  PCM pipe, 1.25 s
                                                          v
                                                       PcmBuffer -> a sink  (a device's callback, or a thread)

The player (trio) starts, watches and stops them; nothing on this path waits for it.
"""

from __future__ import annotations

from playhead.errors import UsageError

try:
    import miniaudio as _miniaudio  # noqa: F401
except ImportError as _error:  # removed, or a system for which it has no wheel and could not be built
    raise UsageError(
        f"playback needs miniaudio, which cannot be imported ({_error}); install it anew: "
        "pip install --force-reinstall miniaudio"
    ) from _error
from playhead.playback.files import FileMedia
from playhead.playback.player import Player
from playhead.playback.sinks import (
    AudioFrame,
    ClearFrames,
    DeviceSink,
    FrameCodec,
    FrameFileSink,
    FramesSink,
    MixingSink,
    NullSink,
    PcmSink,
    Sink,
    WaveSink,
)
from playhead.playback.state import (
    ItemEnd,
    ItemError,
    ItemResumed,
    ItemSkipped,
    ItemStart,
    ItemTitle,
    ItemWaiting,
    PlayerEvent,
    PlayerState,
    Repeat,
    StateChange,
    Status,
)

__all__ = [
    "AudioFrame",
    "ClearFrames",
    "DeviceSink",
    "FileMedia",
    "FrameCodec",
    "FrameFileSink",
    "FramesSink",
    "ItemEnd",
    "ItemError",
    "ItemResumed",
    "ItemSkipped",
    "ItemStart",
    "ItemTitle",
    "ItemWaiting",
    "MixingSink",
    "NullSink",
    "PcmSink",
    "Player",
    "PlayerEvent",
    "PlayerState",
    "Repeat",
    "Sink",
    "StateChange",
    "Status",
    "WaveSink",
]
