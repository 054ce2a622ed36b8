"""A fleet on a cluster that loses a node and moves a slot while everybody plays.

    python -m benches.cluster_fleet [--players 64] [--songs 10] [--seconds 40]

Runs real `redis-server` or `valkey-server` processes on loopback: first three masters with a replica each,
where a slot is moved and a master is killed, then three masters alone, of which one is killed. Prints one
line of JSON per case, with underruns, songs that differ from their files, and the bytes that the server sent.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from valkey.crc import key_slot

from benches.example_server import audio_server
from tests.e2e.command import PLAYHEAD, environment
from tests.servers.valkey_cluster import Cluster, valkey_cluster, wait_for
from tests.servers.wave import write_wave

RATE_HZ = 44_100
PROCESSES = 4
PARTIAL = ("--cluster-require-full-coverage", "no")


def songs(directory: Path, count: int, seconds: int) -> list[str]:
    """Write the songs; return the digests of their audio."""
    directory.mkdir()
    digests = []
    for number in range(count):
        pcm = random.Random(number).randbytes(4 * RATE_HZ * seconds)
        write_wave(directory / f"song{number}.wav", pcm, rate_hz=RATE_HZ, channels=2)
        digests.append(hashlib.sha256(pcm).hexdigest())
    return digests


def stored(cluster: Cluster) -> Counter[int]:
    """Return the number of keys in each slot in use."""
    names = [name for node in cluster.masters for name in node.client.scan_iter("playhead:1:*", count=1000)]
    return Counter(int(key_slot(name)) for name in names)


def make_trouble(cluster: Cluster, least_keys: int) -> dict[str, Any]:
    """Once `least_keys` are stored, move the slot with the most keys, if there are replicas, and kill the
    master with the most slots in use."""
    wait_for(lambda: stored(cluster).total() >= least_keys)
    report: dict[str, Any] = {}
    slots = stored(cluster)
    if cluster.replicas:
        slot = slots.most_common(1)[0][0]
        source = cluster.master_of(slot)
        target = next(node for node in cluster.masters if node is not source)
        cluster.move(slot, target)
        report["moved_keys"] = slots[slot]
    owners = Counter(cluster.masters.index(cluster.master_of(slot)) for slot in slots)
    index, lost_slots = owners.most_common(1)[0]
    lost = cluster.masters[index]
    lost.kill()
    report["slots_of_the_lost_master"] = lost_slots
    if cluster.replicas:
        replica, began = cluster.replicas[index], time.monotonic()
        wait_for(lambda: replica.client.info("replication")["role"] == "master")
        report["failover_seconds"] = round(time.monotonic() - began, 2)
    return report


def run(url: str, digests: list[str], song_bytes: int, *, replicas: bool, players: int) -> dict[str, Any]:
    options = () if replicas else PARTIAL
    with valkey_cluster(replicas=replicas, options=options) as cluster:
        command = [*PLAYHEAD, "fleet", url, *(f"musicPlayer query=song{n}" for n in range(len(digests)))]
        command += ["--processes", str(PROCESSES), "--players", str(players // PROCESSES), "--real-time"]
        command += ["--json", "--timeout", "60", "--cache", cluster.url]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment()) as fleet:
            trouble = make_trouble(cluster, least_keys=3 * song_bytes // (64 << 10))
            stdout, stderr = fleet.communicate(timeout=600)
    found = json.loads(stdout)
    expected = {str(number): digest for number, digest in enumerate(digests)}
    names = ("plays", "failed", "underruns", "different", "reads", "first_audio_p50_ms", "first_audio_p95_ms")
    return {
        "replicas": replicas,
        "players": players,
        **trouble,
        **{name: found[name] for name in names},
        "wrong_songs": sum(found["audio_sha256"].get(name) != digest for name, digest in expected.items()),
        "server_bytes": found["server_bytes"],
        "server_bytes_to_songs": round(found["server_bytes"] / (len(digests) * song_bytes), 2),
        "messages": sorted(set(stderr.splitlines())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--players", type=int, default=64)
    parser.add_argument("--songs", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory, "library")
        digests = songs(library, options.songs, options.seconds)
        song_bytes = (library / "song0.wav").stat().st_size
        with audio_server("--library", str(library)) as (url, _):
            for replicas in (True, False):
                print(json.dumps(run(url, digests, song_bytes, replicas=replicas, players=options.players)))


if __name__ == "__main__":
    main()
