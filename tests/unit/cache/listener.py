"""One process that reads a song through a cache: `python -m tests.unit.cache.listener URL CACHE ETAG SIZE`.

It opens its session, prints a line, and then reads the song that each line of its standard input names. Of
each it prints one JSON object.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import replace

import trio

from playhead.cache import open_cache
from playhead.client import connect
from playhead.stream.options import StreamOptions


async def main(url: str, where: str, etag: str, size: str) -> None:
    async with connect(url, cache=open_cache(where)) as session:
        await session.read_resource("music://warm")  # the connection and the cache's threads
        print("ready", flush=True)
        while uri := (await trio.to_thread.run_sync(sys.stdin.readline)).strip():
            began = time.monotonic()
            media = replace(session.media(uri), validator=etag, size_bytes=int(size))
            async with media.open(StreamOptions()) as stream:
                data = await stream.read_all()
            found = {"began": began, "sha256": hashlib.sha256(data).hexdigest()}
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    _, url, where, etag, size = sys.argv
    trio.run(main, url, where, etag, size)
