"""The choice of a mixer, and the errors if none works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from playhead.errors import NoDeviceError, PlaybackError
from playhead.servers.audio.mixer import COMMANDS, MemoryMixer, SystemMixer


def commands(folder: Path, *names: str, script: str) -> SystemMixer:
    """A mixer that finds only the named commands, each a shell script in `folder`."""
    for name in names:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    return SystemMixer(find=lambda name: str(folder / name) if name in names else None)


@pytest.mark.parametrize("name", COMMANDS)
async def test_each_mixer_gets_the_volume_as_its_own_arguments(tmp_path: Path, name: str) -> None:
    mixer = commands(tmp_path, name, script=f'printf "%s\\n" "$@" > {tmp_path}/said')
    assert await mixer.set_volume(42) == f"through {name}"
    said = (tmp_path / "said").read_text().splitlines()
    assert said == COMMANDS[name](42)
    assert any("42" in word for word in said)


async def test_the_first_mixer_found_is_used(tmp_path: Path) -> None:
    mixer = commands(tmp_path, "amixer", "pactl", script="exit 0")
    assert await mixer.set_volume(10) == "through pactl"


async def test_without_a_mixer_the_error_names_what_was_looked_for_and_the_remedy() -> None:
    with pytest.raises(NoDeviceError, match=r"wpctl.*--mixer memory"):
        await SystemMixer(find=lambda name: None).set_volume(10)


async def test_a_mixer_that_fails_is_an_error_with_its_words(tmp_path: Path) -> None:
    mixer = commands(tmp_path, "pactl", script="echo no sound server >&2; exit 3")
    with pytest.raises(PlaybackError, match="exit code 3: no sound server"):
        await mixer.set_volume(10)


async def test_when_one_mixer_fails_the_next_is_tried(tmp_path: Path) -> None:
    mixer = commands(
        tmp_path, "wpctl", "pactl", "amixer", script="case $0 in *amixer) exit 0;; *) exit 1;; esac"
    )
    assert await mixer.set_volume(10) == "through amixer"


async def test_when_all_fail_the_error_has_the_words_of_each(tmp_path: Path) -> None:
    mixer = commands(tmp_path, "pactl", "amixer", script="echo not here >&2; exit 3")
    with pytest.raises(PlaybackError, match=r"pactl failed with exit code 3: not here; .*amixer failed"):
        await mixer.set_volume(10)


async def test_a_file_that_is_no_program_is_a_mixer_that_fails(tmp_path: Path) -> None:
    mixer = commands(tmp_path, "pactl", "amixer", script="exit 0")
    (tmp_path / "pactl").write_bytes(b"\x7fELF nonsense")
    assert await mixer.set_volume(10) == "through amixer"


@pytest.mark.parametrize(
    ("environment", "is_there", "seen"),
    [
        ({"PATH": "/bin:/usr/bin"}, True, "{folder}/{uid}"),
        ({"PATH": "/bin:/usr/bin", "XDG_RUNTIME_DIR": ""}, True, "{folder}/{uid}"),
        ({"PATH": "/bin:/usr/bin", "XDG_RUNTIME_DIR": "/mine"}, True, "/mine"),
        ({"PATH": "/bin:/usr/bin"}, False, "unset"),
    ],
)
async def test_the_mixer_finds_the_sound_server_under_a_minimal_environment(
    tmp_path: Path, environment: dict[str, str], is_there: bool, seen: str
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    if is_there:
        (folder / str(os.getuid())).mkdir()
    script = tmp_path / "pactl"
    script.write_text(f'#!/bin/sh\necho "${{XDG_RUNTIME_DIR-unset}}" > {tmp_path}/said\n')
    script.chmod(0o755)
    mixer = SystemMixer(
        environment=environment,
        find=lambda name: str(script) if name == "pactl" else None,
        runtime_directories=folder,
    )
    await mixer.set_volume(10)
    assert (tmp_path / "said").read_text().strip() == seen.format(folder=folder, uid=os.getuid())


async def test_the_memory_mixer_keeps_the_number() -> None:
    mixer = MemoryMixer()
    await mixer.set_volume(33)
    assert mixer.percent == 33
