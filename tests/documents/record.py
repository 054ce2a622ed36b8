"""Writes tests/data/conversation.jsonl anew: what the template server and its clients say to each other, and
what a server says that says everything. Run `python -m tests.documents.record` after a change of either.
"""

from __future__ import annotations

from pathlib import Path

import trio

from playhead.servers.template.serve import open_template_server
from tests.documents.conversation import whole_conversation
from tests.documents.talkative import talkative_server
from tests.documents.template_talk import template_conversation

RECORDING = Path(__file__).parents[1] / "data" / "conversation.jsonl"


async def record() -> list[str]:
    async with open_template_server() as server:
        return [*await template_conversation(server), *await whole_conversation(talkative_server())]


def main() -> None:
    RECORDING.write_text("\n".join(trio.run(record)) + "\n", "utf-8")


if __name__ == "__main__":
    main()
