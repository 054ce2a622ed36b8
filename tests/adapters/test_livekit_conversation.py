"""The LiveKit example in a room: a guest asks for music, interrupts it, and hears the answer."""

from __future__ import annotations

import asyncio
import time
from runpy import run_path
from typing import Any

import pytest

from tests.adapters.test_example_programs import EXAMPLES, SERVER
from tests.adapters.test_livekit_room import LOUD, Listener, join, server  # noqa: F401 - a fixture

pytest.importorskip("livekit.agents", reason="needs `make extra NAME=adapters`")

import numpy as np
from livekit import rtc

from playhead.adapters.livekit import LiveKitSink
from playhead.playback.sinks.frames import FrameEvent

MICROPHONE_HZ = 24_000
HEARD_SECONDS = 0.3
HANDED_SECONDS = 0.1


class TrackListener(Listener):
    """Hears the music, or everything else of the agent: the two are tracks of their own."""

    def __init__(self, room: rtc.Room, *, music: bool) -> None:
        self._hears_music = music
        super().__init__(room)

    def _subscribe(self, track: rtc.Track, *about: Any) -> None:
        if (about[0].name == "background_audio") is self._hears_music:
            super()._subscribe(track)


class Guest:
    """The user's microphone: silence, or a tone while `speak` runs."""

    def __init__(self) -> None:
        self.source = rtc.AudioSource(MICROPHONE_HZ, 1)
        self._level = 0

    async def publish(self, room: rtc.Room) -> None:
        track = rtc.LocalAudioTrack.create_audio_track("microphone", self.source)
        options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
        await room.local_participant.publish_track(track, options)

    async def run(self) -> None:
        samples = MICROPHONE_HZ // 50
        at = 0
        while True:
            wave = self._level * np.sin(2 * np.pi * 300 * (at + np.arange(samples)) / MICROPHONE_HZ)
            at += samples
            await self.source.capture_frame(
                rtc.AudioFrame(wave.astype(np.int16).tobytes(), MICROPHONE_HZ, 1, samples)
            )

    async def speak(self, seconds: float) -> None:
        self._level = 12_000
        await asyncio.sleep(seconds)
        self._level = 0


def contents(agent: Any) -> list[tuple[str, str]]:
    """Return the kinds and strings in the agent's context."""
    found = []
    for item in agent.chat_ctx.items:
        if item.type == "message" and item.role != "system":
            found.append((item.role, item.text_content or ""))
        elif item.type in {"function_call", "function_call_output"}:
            found.append((item.type, getattr(item, "output", "")))
    return found


def test_a_guest_asks_for_music_interrupts_it_and_hears_the_answer(server: str) -> None:  # noqa: F811
    example = run_path(str(EXAMPLES / "livekit_music.py"))
    names = example["converse"].__globals__
    names["SERVERS"] = {"music": SERVER}
    handed: list[float] = []
    interrupted: list[float] = []

    class Sink(LiveKitSink):
        async def _deliver_event(self, event: FrameEvent) -> None:
            await super()._deliver_event(event)
            handed.append(time.monotonic())

    names["LiveKitSink"] = Sink

    async def main() -> tuple[float, list[tuple[str, str]]]:
        agent_room, guest_room, guest = rtc.Room(), rtc.Room(), Guest()
        music, voice = TrackListener(guest_room, music=True), TrackListener(guest_room, music=False)
        await join(agent_room, server, "agent")
        await join(guest_room, server, "guest")
        await guest.publish(guest_room)
        microphone = asyncio.create_task(guest.run())
        started: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        conversation = asyncio.create_task(example["converse"](agent_room, started))
        await asyncio.wait([started, conversation], return_when=asyncio.FIRST_COMPLETED)
        if conversation.done():
            conversation.result()
        agent = await started

        def note(event: Any) -> None:
            if event.new_state == "speaking":
                interrupted.append(time.monotonic())

        agent.session.on("user_state_changed", note)
        answered = asyncio.Event()

        def notice(event: Any) -> None:
            if event.item.type == "message" and event.item.role == "assistant":
                answered.set()

        agent.session.on("conversation_item_added", notice)
        await music.wait_until(loud=False, blocks=10)
        await guest.speak(0.6)
        await music.wait_until(loud=True, blocks=20)
        speaking = asyncio.create_task(guest.speak(0.6))
        await music.wait_until(loud=False, blocks=100)
        await speaking
        last = max(at for at, samples in music.blocks if np.abs(samples).max() > LOUD)
        await voice.wait_until(loud=True, blocks=5)
        await answered.wait()
        found = contents(agent)
        for task in (conversation, microphone):
            task.cancel()
        await asyncio.gather(conversation, microphone, return_exceptions=True)
        await guest_room.disconnect()
        await agent_room.disconnect()
        return last, found

    last, found = asyncio.run(main())
    barge_in = interrupted[1]
    print("context:", found)
    handed_seconds, heard_seconds = max(handed) - barge_in, last - barge_in
    print(f"after the barge-in: last frame {handed_seconds:.3f} s, heard {heard_seconds:.3f} s")
    kinds = [kind for kind, _ in found]
    assert kinds == ["user", "function_call", "function_call_output", "user", "user", "assistant"]
    (_, song), _, (_, result), (_, told), (_, question), (_, answer) = found
    assert (song, question) == ("Play first light", "What was that?")
    assert "First Light" in result
    assert told.startswith("[The user interrupted; the music was stopped after")
    assert answer.endswith(told)
    assert handed_seconds < HANDED_SECONDS
    assert heard_seconds < HEARD_SECONDS
