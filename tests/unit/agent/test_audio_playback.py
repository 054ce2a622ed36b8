"""Sound in results: to the player at once, its begin and end told."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from playhead.agent.agent import Agent, run_turn
from playhead.agent.conversation import Message, ToolCall
from playhead.agent.events import (
    AudioEnd,
    AudioResumed,
    AudioStart,
    AudioWaiting,
    Event,
    from_json,
    to_json,
)
from playhead.agent.middleware import TurnHandle
from playhead.agent.scripted_model import Pause, ScriptedModel, call, reply
from playhead.agent.tool_runner import CallOutcome
from playhead.errors import ConnectionLostError, DecodeError, TransportError, UsageError
from playhead.playback import Player
from playhead.playback.sinks import NullSink
from playhead.playback.state import (
    ItemEnd,
    ItemError,
    ItemResumed,
    ItemWaiting,
    PlayerState,
    Status,
)
from playhead.stream.source import Playable
from playhead.testing.media import ScriptedMedia, ScriptedReader
from tests.loop_kit import (
    NotingPlayer,
    Tools,
    assert_requests_whole,
    done,
    echo,
    once,
    results_of,
    shape,
    user,
)
from tests.servers.wave import wave_header


def song(title: str) -> ScriptedMedia:
    return ScriptedMedia(reader=ScriptedReader(b""), title=title, mime_type="audio/wav")


def singing(*media: Playable) -> Tools:
    async def sing(call: ToolCall) -> CallOutcome:
        return done(call, "[audio: playing]", media=media)

    return Tools({"sing": sing, "t": echo})


async def test_the_first_sound_of_a_turn_replaces_what_plays_and_later_ones_queue_up() -> None:
    player, events = NotingPlayer(), list[Event]()
    model = ScriptedModel([reply(call("sing")), reply(call("sing")), reply("ok")])
    await run_turn(model, singing(song("A"), song("B")), [user("go")], player=player, on_event=events.append)
    assert player.got == [("play", ["A", "B"]), ("enqueue", ["A", "B"])]
    starts = [event for event in events if isinstance(event, AudioStart)]
    assert [(event.round, event.title, event.mime_type) for event in starts] == [
        (1, "A", "audio/wav"),
        (1, "B", "audio/wav"),
        (2, "A", "audio/wav"),
        (2, "B", "audio/wav"),
    ]
    names = shape(events)
    assert names.index("audio_start(call_1)") > names.index("mcp_tool_call_response(call_1)")


async def test_sounds_of_two_results_at_once_do_not_overtake_each_other() -> None:
    player = NotingPlayer()

    async def slowly(event: Event) -> None:
        await trio.lowlevel.checkpoint()

    model = ScriptedModel([reply(call("sing"), call("sing"), call("sing")), reply("ok")])
    await run_turn(model, singing(song("A")), [user("go")], player=player, on_event=slowly)
    assert [how for how, _ in player.got] == ["play", "enqueue", "enqueue"]


async def test_the_end_of_a_turns_sound_is_told_while_the_turn_runs_and_no_other() -> None:
    player, ended = NotingPlayer(), trio.Event()
    ends: list[AudioEnd] = []

    def on_event(event: Event) -> None:
        if isinstance(event, AudioStart):
            player.tell.send_nowait(ItemEnd(index=0, title="what played before", frames=1, stopped=True))
            short = "ended at 5.2 of 12.0 s"
            player.tell.send_nowait(ItemEnd(index=0, title="A", frames=1, stopped=False, finding=short))
            player.tell.send_nowait(
                ItemError(index=1, title="B", frames=1, error=DecodeError("B: not a sound"))
            )
        if isinstance(event, AudioEnd):
            ends.append(event)
            if len(ends) == 2:
                ended.set()

    model = ScriptedModel([reply(call("sing")), reply(Pause(until=ended), "ok")])
    with trio.fail_after(10):
        tools = singing(song("A"), song("B"))
        await run_turn(model, tools, [user("go")], player=player, on_event=on_event)
    assert [(event.title, event.error, event.finding) for event in ends] == [
        ("A", None, "ended at 5.2 of 12.0 s"),
        ("B", "B: not a sound", None),
    ]


async def test_a_turn_reports_that_its_audio_waits_and_goes_on_and_no_others() -> None:
    player, over = NotingPlayer(), trio.Event()
    events: list[Event] = []
    waiting = ItemWaiting(
        index=0, title="A", seconds=3.0, last_error=ConnectionLostError("cut"), patience_seconds=60.0
    )

    def on_event(event: Event) -> None:
        if isinstance(event, AudioStart):
            player.tell.send_nowait(replace(waiting, title="what played before"))
            player.tell.send_nowait(waiting)
            player.tell.send_nowait(replace(waiting, last_error=None))
            player.tell.send_nowait(ItemResumed(index=0, title="A", seconds=4.0))
            player.tell.send_nowait(ItemEnd(index=0, title="A", frames=1, stopped=False))
            player.tell.send_nowait(ItemResumed(index=0, title="A", seconds=5.0))
        if isinstance(event, AudioWaiting | AudioResumed):
            events.append(event)
        if isinstance(event, AudioEnd):
            over.set()

    model = ScriptedModel([reply(call("sing")), reply(Pause(until=over), "ok")])
    with trio.fail_after(10):
        await run_turn(model, singing(song("A")), [user("go")], player=player, on_event=on_event)
    told = AudioWaiting(round=1, title="A", seconds=3.0, last_error="cut", patience_seconds=60.0)
    assert events == [told, replace(told, last_error=None), AudioResumed(round=1, title="A", seconds=4.0)]
    assert [from_json(to_json(event)) for event in events] == events


async def test_a_player_that_takes_nothing_is_told_of_and_fails_no_turn() -> None:
    player, events = NotingPlayer(UsageError("10,000 items are queued already")), list[Event]()
    model = ScriptedModel([reply(call("sing"), call("t")), reply("ok")])
    result = await run_turn(model, singing(song("A")), [user("go")], player=player, on_event=events.append)
    assert [event.error for event in events if isinstance(event, AudioEnd)] == [
        "10,000 items are queued already"
    ]
    assert [each.status for each in results_of(result.messages)] == ["done", "done"]


async def test_a_real_player_goes_on_after_the_turn() -> None:
    data = wave_header(44100 * 4) + bytes(44100 * 4)
    reader = ScriptedReader(data, hold_at=len(data) - 1000)
    media = ScriptedMedia(reader=reader, title="A", mime_type="audio/wav")
    async with Player(NullSink()) as player:
        result = await run_turn(
            ScriptedModel([reply(call("sing")), reply("It plays.")]),
            singing(media),
            [user("go")],
            player=player,
        )
        assert result.text == "It plays."
        assert player.snapshot().queue_length == 1
        reader.release()
        with trio.fail_after(20):
            await player.wait_finished()
    assert media.closings == 1


# --- a turn that is interrupted --------------------------------------------------------------------------

HEARD = "[The turn was interrupted; music: 12.4 s heard]"


async def interrupted(agent: Agent, pause: Pause, *, by: str) -> None:
    """Run a turn up to `pause`, then interrupt it."""
    with trio.CancelScope() as scope:
        async with once(pause.reached, agent.abort if by == "abort" else scope.cancel):
            await agent.say("go")


@pytest.mark.parametrize("by", ["abort", "cancellation"])
@pytest.mark.parametrize("status", [Status.PLAYING, Status.STOPPED])
async def test_the_history_of_an_interrupted_turn_says_how_much_was_heard(by: str, status: Status) -> None:
    player, pause = NotingPlayer(), Pause()
    player.state = PlayerState(status=status, position_seconds=50.0, heard_seconds=12.4)
    model = ScriptedModel([reply(call("sing")), reply("It is by", pause), reply("Yes?")])
    agent = Agent(model, singing(song("A")), player=player)
    await interrupted(agent, pause, by=by)
    assert agent.messages[-1] == user(HEARD)
    assert (await agent.say("hello?")).text == "Yes?"
    assert model.requests[2].messages[-2:] == (user(HEARD), user("hello?"))
    assert_requests_whole(model)


async def test_an_aborted_turn_returns_the_note_with_its_messages() -> None:
    player, pause, turn = NotingPlayer(), Pause(), TurnHandle()
    model = ScriptedModel([reply(call("sing"), pause)])

    def abort() -> None:
        player.state = PlayerState(status=Status.PLAYING, position_seconds=50.0, heard_seconds=12.44)
        turn.abort()

    async with once(pause.reached, abort):
        result = await run_turn(model, singing(song("A")), [user("go")], player=player, turn=turn)
    assert result.messages == turn.messages
    assert result.messages[-1] == user(HEARD)


@pytest.mark.parametrize(
    ("status", "note"), [(Status.PAUSED, [user(HEARD)]), (Status.IDLE, []), (Status.STOPPED, [])]
)
async def test_music_of_an_earlier_turn_counts_only_while_it_plays(
    status: Status, note: list[Message]
) -> None:
    player, pause = NotingPlayer(), Pause()
    player.state = PlayerState(status=status, position_seconds=50.0, heard_seconds=12.4)
    agent = Agent(ScriptedModel([reply("Once", pause)]), player=player)
    await interrupted(agent, pause, by="abort")
    assert list(agent.messages[2:]) == note


async def test_a_turn_that_ends_or_fails_has_no_note() -> None:
    player = NotingPlayer()
    player.state = PlayerState(status=Status.PLAYING, position_seconds=50.0, heard_seconds=12.4)
    agent = Agent(
        ScriptedModel([reply(call("sing")), reply("ok"), reply(call("sing")), reply(TransportError("cut"))]),
        singing(song("A")),
        player=player,
    )
    await agent.say("go")
    with pytest.raises(TransportError):
        await agent.say("go")
    assert user(HEARD) not in agent.messages
