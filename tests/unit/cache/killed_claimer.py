"""Kill processes that hold a claim in a directory cache, or are about to, and see how long another waits.

Each claims a few blocks and kills itself: with the lock of the claims, with a part of them written, or later.

`python -m tests.unit.cache.killed_claimer DIRECTORY ROUNDS SEED [CLAIM_SECONDS]` prints one JSON object.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import trio

from playhead.cache import CLAIM_SECONDS
from playhead.cache import directory as module
from playhead.cache.directory import DirectoryCache

BLOCKS = 4


def die_while_claiming(chance: random.Random) -> None:
    """Make one of the next system calls for claims this process's last."""
    left = chance.randint(1, 12)
    flock, pwrite, ftruncate = fcntl.flock, os.pwrite, os.ftruncate

    def count(after: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            after()
            os.kill(os.getpid(), signal.SIGKILL)

    def lock(fd: int, operation: int) -> None:
        flock(fd, operation)
        count(lambda: None)

    def write(fd: int, data: Any, offset: int) -> int:
        count(lambda: pwrite(fd, memoryview(data)[: chance.randint(0, len(data))], offset))
        return pwrite(fd, data, offset)

    def truncate(fd: int, size: int) -> None:
        count(lambda: None)
        ftruncate(fd, size)

    fcntl.flock, os.pwrite, os.ftruncate = lock, write, truncate  # type: ignore[assignment]


def claim_until_killed(directory: Path, song: str, chance: random.Random) -> NoReturn:
    die_while_claiming(chance)

    async def claim() -> None:
        cache = DirectoryCache(directory)
        while True:
            for block in range(BLOCKS):
                if await cache.claim(song, block, 1, f"killed {song}") and chance.random() < 0.3:
                    await cache.release(song, [block], f"killed {song}")

    trio.run(claim)
    os._exit(1)


async def wait_for_all(directory: Path, song: str) -> float:
    """Claim each block as soon as that is possible; return the seconds until the last one."""
    cache, began = DirectoryCache(directory), time.monotonic()
    async with trio.open_nursery() as nursery:

        async def claim(block: int) -> None:
            while not await cache.claim(song, block, 1, "the other"):
                await cache.wait(song, block, seconds=60.0)

        for block in range(BLOCKS):
            nursery.start_soon(claim, block)
    return time.monotonic() - began


def main(directory: Path, rounds: int, seed: int, claim_seconds: float) -> None:
    vars(module)["CLAIM_SECONDS"] = claim_seconds
    waits = []
    for number in range(rounds):
        song = f"song {number}"
        pid = os.fork()
        if pid == 0:
            claim_until_killed(directory, song, random.Random(seed + number))
        _, status = os.waitpid(pid, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL, "it did not die"
        waits.append(trio.run(wait_for_all, directory, song))
    found = {"kills": rounds, "claim_seconds": claim_seconds, "waited": sum(wait > 0.02 for wait in waits)}
    print(json.dumps(found | {"longest_wait_seconds": round(max(waits), 3)}))


if __name__ == "__main__":
    given = [*sys.argv[1:], str(CLAIM_SECONDS)]
    main(Path(given[0]), int(given[1]), int(given[2]), float(given[3]))
