"""`--cache`, and `playhead fleet` with players of several processes, against the example server."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import miniaudio
import pytest

import playhead as playhead_package
from tests.e2e.command import AUDIO_SERVER, PLAYHEAD, environment, playhead, serving
from tests.servers.valkey_server import ValkeyServer, valkey_server
from tests.servers.wave import write_wave

CALL = ("musicPlayer", "query=")
PATIENT = ("--timeout", "60")


@contextmanager
def audio_server(*options: str | Path) -> Iterator[str]:
    """An audio server over HTTP, in a process of its own."""
    with serving("audio", "--transport", "http", "--mixer", "memory", *map(str, options)) as (url, _):
        yield url


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with audio_server() as url:
        yield url


def demo_sha256() -> str:
    """The digest of the demo piece, decoded here."""
    (path,) = Path(playhead_package.__file__ or "").parent.rglob("*.mp3")
    kind = miniaudio.get_file_info(str(path))
    local = miniaudio.decode_file(str(path), nchannels=kind.nchannels, sample_rate=kind.sample_rate)
    return hashlib.sha256(local.samples).hexdigest()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_second_read_takes_all_from_the_cache(url: str, mode: str, tmp_path: Path) -> None:
    servers = tmp_path / "servers.json"
    servers.write_text(f'{{"mcpServers": {{"music": {{"url": "{url}", "playhead": {{"mode": "{mode}"}}}}}}}}')
    reports = []
    for name in ("first", "second"):
        options = ("-o", tmp_path / name, "--cache", tmp_path / "cache", "--config", servers, "--json")
        done = playhead("read", "music", *CALL, *options, *PATIENT)
        assert done.code == 0, done.stderr
        reports.append(done.json)
    first, second = reports
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert (first["cache_hits"], first["cache_bytes"]) == (0, 0)
    assert first["reads"] > 1
    assert second["cache_bytes"] == second["bytes"] == first["bytes"] > 100_000
    assert second["reads"] == 0, "the second read cost the server something"


def play_with(cache: Path, server: str) -> dict[str, Any]:
    """The report of a whole play."""
    done = playhead("play", server, *CALL, "--sink", "null", "--cache", cache, "--json", *PATIENT)
    assert done.code == 0, done.stderr
    return done.json


def test_a_server_that_is_started_for_each_play_is_read_once(tmp_path: Path) -> None:
    first, *others = (play_with(tmp_path / "cache", AUDIO_SERVER) for _ in range(3))
    assert (first["cache_hits"], first["cache_bytes"]) == (0, 0)
    for report in others:
        assert report["cache_hits"] == report["pages"]
        assert report["cache_bytes"] == report["bytes"] > 100_000
        assert report["reads"] == 0
    assert len(list((tmp_path / "cache").glob("*.data"))) == 1


def test_a_server_that_comes_back_on_another_port_is_read_once(tmp_path: Path) -> None:
    with audio_server() as before, audio_server() as after:
        assert before != after
        first, second = (play_with(tmp_path / "cache", url) for url in (before, after))
    assert (first["cache_bytes"], second["cache_bytes"]) == (0, second["bytes"])
    assert len(list((tmp_path / "cache").glob("*.data"))) == 1


def test_a_cache_of_the_servers_file_is_used(url: str, tmp_path: Path) -> None:
    servers = tmp_path / "servers.json"
    own = f'{{"cache": "{tmp_path}/cache"}}'
    servers.write_text(f'{{"mcpServers": {{"music": {{"url": "{url}", "playhead": {own}}}}}}}')
    options = ("-o", tmp_path / "piece", "--config", servers, *PATIENT)
    assert playhead("read", "music", *CALL, *options).code == 0
    assert list((tmp_path / "cache").glob("*.data"))


def test_a_directory_that_others_can_read_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    done = playhead("play", url, *CALL, "--sink", "null", "--cache", tmp_path / "open")
    assert done.code == 2
    assert "chmod 700" in done.stderr


def test_a_cache_that_is_missing_is_reported_once_and_costs_nothing(url: str, tmp_path: Path) -> None:
    where = f"unix://{tmp_path}/missing"
    done = playhead("read", url, *CALL, "-o", tmp_path / "piece", "--cache", where, *PATIENT)
    assert done.code == 0, done.stderr
    assert done.stderr.count("reading from the server") == 1
    assert (tmp_path / "piece").stat().st_size > 100_000


def test_a_fleet_reports_what_it_heard_and_cost(url: str, tmp_path: Path) -> None:
    size = ("--processes", "2", "--players", "2")
    cache = ("--cache", tmp_path / "cache")
    first = playhead("fleet", url, " ".join(CALL), *size, *cache, "--json", *PATIENT)
    assert first.code == 0, first.stderr
    found = first.json
    assert (found["processes"], found["players"], found["plays"]) == (2, 4, 4)
    assert (found["failed"], found["different"]) == (0, 0)
    assert found["audio_sha256"] == {"0": demo_sha256()}, "what was heard is not what the file has"
    assert 0 < found["first_audio_p50_ms"] <= found["first_audio_p95_ms"]
    assert found["cache_bytes"] + found["server_bytes"] >= found["bytes"] > 400_000
    assert found["reads"] > 0
    assert found["cpu_ms_per_stream"] > 0
    again = playhead("fleet", url, " ".join(CALL), "--players", "2", *cache, "--json", *PATIENT).json
    assert (again["reads"], again["server_bytes"]) == (0, 0)
    assert again["cache_bytes"] == again["bytes"]


def test_a_fleet_whose_server_refuses_fails(url: str) -> None:
    done = playhead("fleet", url, "musicPlayer query=nothing-like-it", "--players", "1", *PATIENT)
    assert done.code == 1
    assert "1 of 1" in done.stdout.decode()


# --- a store in trouble -------------------------------------------------------------------------------------

RATE_HZ = 96_000
SONG_SECONDS = 14
"""At 384 kB/s: a ring holds eight seconds ahead, and the song has 82 blocks."""
STORED_BLOCKS = 60
"""After so many the players are in the middle of the song, and the rest of it has not been read."""


def make_trouble(store: ValkeyServer, trouble: str) -> None:
    """Wait until `STORED_BLOCKS` were stored."""
    client = store.client()
    with client.pubsub() as channel:
        channel.subscribe("playhead:1:news")
        messages = (message for message in channel.listen() if message["type"] == "message")
        for _ in range(STORED_BLOCKS):
            next(messages)
    if trouble == "stopped":
        store.stop()
        return
    store.kill()
    if trouble == "restarted empty":
        store.start()


@pytest.mark.slow("plays for 14 seconds in real time")
@pytest.mark.parametrize("trouble", ["killed", "stopped", "restarted empty"])
def test_a_store_in_trouble_costs_a_fleet_no_byte(tmp_path: Path, trouble: str) -> None:
    pcm = random.Random(9).randbytes(4 * RATE_HZ * SONG_SECONDS)
    (tmp_path / "library").mkdir()
    write_wave(tmp_path / "library" / "song.wav", pcm, rate_hz=RATE_HZ, channels=2)
    with (
        audio_server("--library", tmp_path / "library") as url,
        tempfile.TemporaryDirectory() as directory,
        valkey_server(Path(directory)) as store,
    ):
        options = ("--processes", "2", "--players", "3", "--real-time", "--json", "--cache", store.url)
        command = [*PLAYHEAD, "fleet", url, "musicPlayer query=song", *options, *PATIENT]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as fleet:
            make_trouble(store, trouble)
            stdout, _ = fleet.communicate(timeout=100)
    found = json.loads(stdout)
    assert (found["plays"], found["failed"], found["different"]) == (6, 0, 0)
    assert found["audio_sha256"] == {"0": hashlib.sha256(pcm).hexdigest()}
    # A store that is back at once lacks only what was stored before: it costs a few blocks, or none.
    if trouble != "restarted empty":
        assert found["server_bytes"] > 1.1 * len(pcm), "the store was not needed any more"
    assert found["cache_bytes"] > len(pcm), "the store was never used"
