"""The cache in a directory: private, bounded, shared by processes, and right after any crash."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from playhead.cache import BLOCK_BYTES, CLAIM_SECONDS, ClaimingCache, open_cache
from playhead.cache import directory as module
from playhead.cache.directory import DirectoryCache
from playhead.errors import UsageError
from playhead.testing.caches import block_of

REPOSITORY = Path(__file__).parents[3]


def killed(directory: Path, *, rounds: int) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.unit.cache.killed_writer", str(directory), str(rounds), "1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=110)
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_writers_that_are_killed_leave_no_wrong_byte(tmp_path: Path) -> None:
    found = killed(tmp_path / "cache", rounds=15)
    assert found["wrong"] == 0
    assert found["held"] > 100, "they were killed before they wrote anything"


@pytest.mark.slow("kills 400 processes")
def test_400_writers_killed_at_200_random_moments_leave_no_wrong_byte(tmp_path: Path) -> None:
    found = killed(tmp_path / "cache", rounds=200)
    assert found["wrong"] == 0
    assert found["held"] > 5000


def killed_with_claims(directory: Path, *, kills: int) -> dict[str, float]:
    """Return the waits of another process for claims of a second, of processes that were killed."""
    command = [sys.executable, "-m", "tests.unit.cache.killed_claimer", str(directory), str(kills), "1", "1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=280)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_a_process_that_is_killed_while_it_claims_delays_another_until_its_claims_expire(
    tmp_path: Path,
) -> None:
    found = killed_with_claims(tmp_path / "cache", kills=3)
    assert found["waited"] > 0, "no claim was held: this proved nothing"
    assert found["longest_wait_seconds"] <= 1.0 + module.LOCK_SECONDS


@pytest.mark.slow("waits for the claims of 30 processes")
def test_30_processes_that_are_killed_while_they_claim(tmp_path: Path) -> None:
    """`python -m tests.unit.cache.killed_claimer DIR 200 1 1` kills 200."""
    found = killed_with_claims(tmp_path / "cache", kills=30)
    assert found["waited"] > 10
    assert found["longest_wait_seconds"] <= 1.0 + module.LOCK_SECONDS


async def test_a_process_that_was_stopped_with_the_lock_delays_nobody_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.01)
    cache = DirectoryCache(tmp_path / "cache")
    assert await cache.claim("k", 0, 2, "a") == 2
    with (tmp_path / "cache" / "claims").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert await cache.claim("k", 0, 3, "b") == 3, "everyone reads for themselves"
    assert await cache.claim("k", 0, 3, "b") == 0


async def test_claims_that_are_damaged_or_of_a_clock_that_was_set_back_are_void(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DirectoryCache(tmp_path / "cache")
    await cache.claim("k", 0, 2, "a")
    os.truncate(tmp_path / "cache" / "claims", 100)
    assert await cache.claim("k", 1, 1, "b") == 1
    assert await cache.claim("k", 0, 1, "b") == 0
    monkeypatch.setattr(module, "CLAIM_SECONDS", CLAIM_SECONDS - 1)
    assert await cache.claim("k", 0, 2, "b") == 2


SECTOR_BYTES = 512


class Disk:
    """The log of writes and syncs, and the files that a power failure leaves of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[tuple[int, int, bytes] | int] = []
        """Writes (inode, offset, bytes), and the inodes of syncs, in their order."""
        pwrite, fdatasync = os.pwrite, os.fdatasync

        def write(fd: int, data: bytes, offset: int) -> int:
            n_bytes = pwrite(fd, data, offset)
            self.log.append((os.fstat(fd).st_ino, offset, bytes(data[:n_bytes])))
            return n_bytes

        def sync(fd: int) -> None:
            fdatasync(fd)
            self.log.append(os.fstat(fd).st_ino)

        monkeypatch.setattr(os, "pwrite", write)
        monkeypatch.setattr(os, "fdatasync", sync)

    def fail(self, directory: Path, left: Path, chance: random.Random) -> None:
        """Make `left` what is on disk after a failure at a moment that is drawn: all that was synced, and
        any sectors of the rest."""
        log = self.log[: chance.randint(0, len(self.log))]
        left.mkdir(mode=0o700)
        for path in directory.glob("*.*"):
            inode = path.stat().st_ino
            synced = max((at for at, entry in enumerate(log) if entry == inode), default=-1)
            content = bytearray()
            for at, entry in enumerate(log):
                if isinstance(entry, int) or entry[0] != inode:
                    continue
                _, offset, data = entry
                for begin in range(0, len(data), SECTOR_BYTES):
                    if at < synced or chance.random() < 0.5:
                        piece = data[begin : begin + SECTOR_BYTES]
                        content.extend(bytes(max(0, offset + begin + len(piece) - len(content))))
                        content[offset + begin : offset + begin + len(piece)] = piece
            (left / path.name).write_bytes(content)


def recorded_blocks(directory: Path) -> int:
    """Return how many records the indexes have, whatever became of their blocks."""
    contents = [path.read_bytes() for path in directory.glob("*.index")]
    return sum(content[at : at + 4] == b"blk1" for content in contents for at in range(32, len(content), 32))


async def test_a_power_failure_leaves_no_record_without_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(5)
    blocks = [(f"song {song}", block) for song in range(3) for block in range(5)]
    with monkeypatch.context() as patched:
        disk, cache = Disk(patched), DirectoryCache(tmp_path / "cache")
        chance.shuffle(blocks)
        for key, block in blocks:
            await cache.put(key, block, block_of(key, block, 777 if block == 4 else BLOCK_BYTES))
    held = 0
    for number in range(200):
        left = tmp_path / f"left {number}"
        disk.fail(tmp_path / "cache", left, chance)
        after = DirectoryCache(left)
        found = {it: data for it in blocks if (data := await after.get(*it)) is not None}
        for (key, block), data in found.items():
            assert data == block_of(key, block, 777 if block == 4 else BLOCK_BYTES)
        assert len(found) == recorded_blocks(left), "a block was recorded before its bytes were on disk"
        held += len(found)
        after.close()
        shutil.rmtree(left)
    assert held > 300, "hardly anything was on disk"


@pytest.mark.parametrize("place", [0, 1000, BLOCK_BYTES - 1])
async def test_a_damaged_byte_is_no_block(tmp_path: Path, place: int) -> None:
    cache = DirectoryCache(tmp_path / "cache")
    await cache.put("k", 1, block_of("k", 1))
    (data,) = (tmp_path / "cache").glob("*.data")
    with data.open("r+b") as file:
        file.seek(BLOCK_BYTES + place)
        was = file.read(1)
        file.seek(BLOCK_BYTES + place)
        file.write(bytes([was[0] ^ 1]))
    assert await cache.get("k", 1) is None
    await cache.put("k", 1, block_of("k", 1))
    assert await cache.get("k", 1) == block_of("k", 1)


@pytest.mark.parametrize("suffix", ["data", "index"])
async def test_a_truncated_file_is_no_block(tmp_path: Path, suffix: str) -> None:
    cache = DirectoryCache(tmp_path / "cache")
    await cache.put("k", 0, block_of("k", 0))
    await cache.put("k", 1, block_of("k", 1, 10))
    (path,) = (tmp_path / "cache").glob(f"*.{suffix}")
    os.truncate(path, 40)
    assert [await cache.get("k", block) for block in (0, 1)] == [None, None]
    assert await cache.size("k") is None


@pytest.mark.parametrize("suffix", ["data", "index"])
async def test_a_block_in_the_file_of_another_key_or_place_is_none(tmp_path: Path, suffix: str) -> None:
    cache = DirectoryCache(tmp_path / "cache")
    await cache.put("k", 0, block_of("k", 0))
    names = {path.name for path in (tmp_path / "cache").iterdir()}
    await cache.put("other", 0, block_of("other", 0))
    for path in (tmp_path / "cache").glob("*.*"):
        if path.name not in names:
            (theirs,) = (tmp_path / "cache" / name for name in names if name.endswith(path.suffix))
            if path.suffix in {f".{suffix}", ".data"}:
                path.write_bytes(theirs.read_bytes())
    assert await cache.get("other", 0) is None


async def test_processes_share_what_they_store(tmp_path: Path) -> None:
    ours, theirs = DirectoryCache(tmp_path / "cache"), DirectoryCache(tmp_path / "cache")
    assert await theirs.get("k", 0) is None
    await ours.put("k", 0, block_of("k", 0))
    assert await theirs.get("k", 0) == block_of("k", 0)


async def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        cache = DirectoryCache(tmp_path / "cache")
        await cache.put("the name of a song", 0, b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    files = list((tmp_path / "cache").iterdir())
    assert len(files) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert not any("song" in path.name for path in files)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_directory_that_is_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    with pytest.raises(UsageError, match="chmod 700"):
        DirectoryCache(tmp_path / "cache")


@pytest.mark.parametrize("trouble", ["no locks", "read-only"])
async def test_where_nothing_can_be_stored_it_says_so_once_and_reads(
    trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await DirectoryCache(tmp_path / "cache").put("key", 0, block_of("key", 0))
    before = {path.name: path.stat() for path in (tmp_path / "cache").iterdir()}
    really_open = os.open

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    def read_only(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, "Read-only file system", path)
        return really_open(path, flags, mode)

    if trouble == "no locks":
        monkeypatch.setattr(fcntl, "flock", no_locks)
    else:
        monkeypatch.setattr(os, "open", read_only)
        monkeypatch.setattr(os, "utime", no_locks)
    lines: list[str] = []
    cache = open_cache(str(tmp_path / "cache"), on_trouble=lines.append)
    assert await cache.get("key", 0) == block_of("key", 0)
    await cache.put("key", 1, block_of("key", 1))
    await cache.put("other", 0, block_of("other", 0))
    assert isinstance(cache, ClaimingCache)
    for owner in ("a", "b"):
        assert await cache.claim("key", 1, 3, owner) == 3, "everyone reads for themselves"
    await cache.release("key", [1], "a")
    assert await cache.get("key", 1) is None
    (line,) = lines
    assert "is only read" in line
    assert {"no locks": "No locks", "read-only": "Read-only file system"}[trouble] in line
    after = {path.name: path.stat() for path in (tmp_path / "cache").iterdir()}
    assert {name: (was.st_size, was.st_mtime_ns) for name, was in before.items()} == {
        name: (now.st_size, now.st_mtime_ns) for name, now in after.items()
    }


def test_a_directory_that_another_process_evicts_from_is_written_to(tmp_path: Path) -> None:
    DirectoryCache(tmp_path)
    lines: list[str] = []
    with (tmp_path / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        DirectoryCache(tmp_path, on_trouble=lines.append)
    assert lines == []


def test_a_file_and_a_link_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be used as a directory"):
        DirectoryCache(tmp_path / "file")
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(UsageError, match="expected a directory of yours"):
        DirectoryCache(tmp_path / "link")


async def test_the_least_recently_used_resources_go_first(tmp_path: Path) -> None:
    cache = DirectoryCache(tmp_path / "cache", max_bytes=10 * BLOCK_BYTES)
    for number in range(4):
        for block in range(2):
            await cache.put(f"song {number}", block, block_of(f"song {number}", block))
    for path in (tmp_path / "cache").glob("*.index"):
        os.utime(path, (1, 1))
    fresh = DirectoryCache(tmp_path / "cache", max_bytes=10 * BLOCK_BYTES)
    assert await fresh.get("song 1", 0) is not None, "used now"
    for block in range(4):
        await fresh.put("new", block, block_of("new", block))
    held = [await fresh.get(f"song {number}", 0) is not None for number in range(4)]
    assert held[1], "the one that was used is still there"
    assert held.count(True) < 4
    assert [await fresh.get("new", block) == block_of("new", block) for block in range(4)] == [True] * 4


async def test_the_limit_bounds_the_disk(tmp_path: Path) -> None:
    cache = DirectoryCache(tmp_path / "cache", max_bytes=10 * BLOCK_BYTES)
    for number in range(60):
        await cache.put(f"song {number}", 0, block_of(f"song {number}", 0))
    used = sum(512 * path.stat().st_blocks for path in (tmp_path / "cache").iterdir())
    assert used <= 11 * BLOCK_BYTES + 60 * 4096
    assert await cache.get("song 59", 0) == block_of("song 59", 0)


async def test_what_another_process_has_evicted_is_stored_again(tmp_path: Path) -> None:
    ours = DirectoryCache(tmp_path / "cache")
    await ours.put("k", 0, block_of("k", 0))
    for path in (tmp_path / "cache").glob("*.*"):
        path.unlink()
    await ours.put("k", 1, block_of("k", 1))
    theirs = DirectoryCache(tmp_path / "cache")
    assert await theirs.get("k", 1) == block_of("k", 1)


async def test_a_full_disk_stores_nothing_and_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DirectoryCache(tmp_path / "cache")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    await cache.put("k", 0, block_of("k", 0))
    assert await cache.get("k", 0) is None
