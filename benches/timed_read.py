"""Read the first link of a server whole; print the seconds from the first read on, and the SHA-256, as JSON.

    python benches/timed_read.py ROUNDS URL

The script uses only the API that every commit of playhead has: `benches.against` runs it with two of them.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time

import trio

from playhead.client import connect


async def main(rounds: int, url: str) -> None:
    async with connect(url) as session:
        (link,) = (await session.call_tool("link")).links
        for _ in range(rounds):
            digest = hashlib.sha256()
            started = time.perf_counter()
            async with session.open(link) as stream:
                async for chunk in stream:
                    digest.update(chunk)
            seconds = time.perf_counter() - started
            print(json.dumps({"seconds": seconds, "sha256": digest.hexdigest()}), flush=True)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), sys.argv[2])
