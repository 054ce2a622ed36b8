"""A LiveKit agent that plays music from an MCP server into its room.

pip install livekit-agents 'playhead[cli]'
python livekit_music.py dev
"""

# not run: a LiveKit server and its keys

from livekit.agents import AgentServer, BackgroundAudioPlayer, JobContext, cli

import playhead
from playhead.adapters.livekit import LiveKitSink
from playhead.playback import Player

SERVER = "playhead serve audio --mixer memory"
server = AgentServer()


@server.rtc_session()
async def entrypoint(ctx: JobContext) -> None:
    await ctx.connect()
    background = BackgroundAudioPlayer()
    await background.start(room=ctx.room)
    await play(background)
    await background.aclose()


async def play(background: BackgroundAudioPlayer) -> None:
    async with playhead.asyncio_portal() as portal:
        session = await portal.enter(playhead.connect(SERVER))
        player = await portal.enter(Player(LiveKitSink(background, portal)))
        result = await portal.call(session.call_tool, "musicPlayer", {"query": "first light"})
        await portal.call(player.play, result.media)
        await portal.call(player.wait_finished)


if __name__ == "__main__":
    cli.run_app(server)
