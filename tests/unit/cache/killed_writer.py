"""Kill processes that write into a directory cache, and look at what they leave behind.

Each kills itself in the middle of a write: after a number of writes that is drawn, and with a part of the
next one on disk.

`python -m tests.unit.cache.killed_writer DIRECTORY ROUNDS SEED` prints one JSON object.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import trio

from playhead.cache.directory import DirectoryCache
from playhead.testing.caches import block_of

KEYS = tuple(f"song {number}" for number in range(6))
BLOCKS = 12
LAST_BYTES = 12_345
MOST_WRITES = 60


def expected(key: str, block: int) -> bytes:
    return block_of(key, block, LAST_BYTES) if block == BLOCKS - 1 else block_of(key, block)


def die_in_a_write(chance: random.Random) -> None:
    """Make one of the next writes of this process its last, and write a part of it."""
    left = chance.randint(1, MOST_WRITES)
    pwrite = os.pwrite

    def last(fd: int, data: Any, offset: int) -> int:
        nonlocal left
        left -= 1
        if left:
            return pwrite(fd, data, offset)
        pwrite(fd, memoryview(data)[: chance.randint(0, len(data))], offset)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("this process was killed")

    os.pwrite = last


def write_for_ever(directory: Path, seed: int) -> NoReturn:
    chance = random.Random(seed)
    die_in_a_write(chance)

    async def write() -> None:
        cache = DirectoryCache(directory, max_bytes=4 << 20)  # smaller than what is written: it evicts too
        while True:
            key, block = chance.choice(KEYS), chance.randrange(BLOCKS)
            await cache.put(key, block, expected(key, block))

    trio.run(write)
    os._exit(1)


async def look(directory: Path) -> tuple[int, int]:
    """Return how many blocks are there, and how many of them are wrong."""
    cache = DirectoryCache(directory, max_bytes=4 << 20)
    held = wrong = 0
    for key in KEYS:
        size = await cache.size(key)
        wrong += size not in (None, (BLOCKS - 1) * (64 << 10) + LAST_BYTES)
        for block in range(BLOCKS):
            data = await cache.get(key, block)
            held += data is not None
            wrong += data not in (None, expected(key, block))
    cache.close()
    return held, wrong


def main(directory: Path, rounds: int, seed: int) -> None:
    total_held = total_wrong = 0
    for number in range(rounds):
        writers = []
        for writer in range(2):
            pid = os.fork()
            if pid == 0:
                write_for_ever(directory, seed + 10 * number + writer)
            writers.append(pid)
        for pid in writers:
            _, status = os.waitpid(pid, 0)
            assert os.WTERMSIG(status) == signal.SIGKILL, "it did not die in a write"
        held, wrong = trio.run(look, directory)
        total_held, total_wrong = total_held + held, total_wrong + wrong
    print(json.dumps({"rounds": rounds, "held": total_held, "wrong": total_wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
