"""Play music on xiaozhi-esp32 devices, which connect to this WebSocket server.

    pip install trio-websocket 'playhead[cli,formats]'
    python xiaozhi_server.py [HOST [PORT]]

Waking a device ("listen") plays a piece, and its wake word ("abort") stops it. Devices of versions 1 to 3
of the protocol can connect; another one is refused with the reason.
"""

import sys
from functools import partial

import trio
from trio_websocket import ConnectionClosed, WebSocketRequest, serve_websocket

import playhead
from playhead.adapters.xiaozhi import accept_device
from playhead.playback import Player


async def serve(session: playhead.Session, request: WebSocketRequest) -> None:
    socket = await request.accept()
    try:
        async with accept_device(socket) as device, Player(device) as player:
            async for message in device.messages():
                match message:
                    case {"type": "listen", "state": "start" | "detect"}:
                        result = await session.call_tool("musicPlayer", {"query": "first light"})
                        await player.play(result.media)
                    case {"type": "abort"}:
                        await player.stop()
    except playhead.errors.ProtocolError as error:
        print(f"a device was refused: {error}")
        await socket.aclose(1002, str(error)[:120])
    except (ConnectionClosed, playhead.errors.RemoteError) as error:
        print(f"a device left: {error}")


async def main(host: str = "127.0.0.1", port: str = "0") -> None:
    async with (
        playhead.connect("playhead serve audio --mixer memory") as session,
        trio.open_nursery() as nursery,
    ):
        start = partial(serve_websocket, partial(serve, session), host, int(port), ssl_context=None)
        server = await nursery.start(start)
        print(f"ws://{host}:{server.port}", flush=True)


trio.run(main, *sys.argv[1:])
