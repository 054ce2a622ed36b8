"""Play music from an MCP server on a Wyoming audio output service, such as a Home Assistant satellite.

pip install 'playhead[cli]'
python wyoming_speaker.py HOST PORT [SERVER]
"""

import sys

import trio

import playhead
from playhead.adapters.wyoming import WyomingSink
from playhead.playback import Player


async def main(host: str, port: str, server: str = "playhead serve audio --mixer memory") -> None:
    async with (
        playhead.connect(server) as session,
        Player(await WyomingSink.discover(host, int(port))) as player,
    ):
        result = await session.call_tool("musicPlayer", {"query": "first light"})
        await player.play(result.media)
        await player.wait_finished()


trio.run(main, *sys.argv[1:])
