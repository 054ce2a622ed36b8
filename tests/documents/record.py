"""Writes tests/data/conversation.jsonl anew: what the template server and its clients say to each other, and
what a server says that says everything. Run `python -m tests.documents.record` after a change of either.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio

from playhead.client.transports.sdk_websocket import websocket_transport
from tests.documents.conversation import whole_conversation
from tests.documents.talkative import talkative_server
from tests.documents.template_talk import template_conversation, template_server

RECORDING = Path(__file__).parents[1] / "data" / "conversation.jsonl"


async def record() -> list[str]:
    async with template_server() as url:
        connect = partial(websocket_transport, f"ws{url.removeprefix('http')}/mcp")
        return [*await template_conversation(connect), *await whole_conversation(talkative_server())]


def main() -> None:
    RECORDING.write_text("\n".join(trio.run(record)) + "\n", "utf-8")


if __name__ == "__main__":
    main()
