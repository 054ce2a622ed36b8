"""The parts of a wheel stay small, and it holds what it should. Built wheels are looked at if dist/ has any.

KB in the wheel for x86_64, compressed by zopfli (zlib's are 3 % larger): Python 1,067, extension 420, music
208, the template server's schemas 20, stub 11, metadata 35, all else and names in the archive 73.
Together 1.83 MB.
"""

from __future__ import annotations

import tomllib
import zipfile
import zlib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "python" / "playhead"
WHEELS = sorted((REPOSITORY / "dist").glob("playhead-*.whl"))

MOST_PYTHON_BYTES = 1_115_000
MOST_EXTENSION_BYTES = 430_000
MOST_MUSIC_BYTES = 225_000
MOST_BYTES = 1_850_000


def compressed(path: Path) -> int:
    return len(zlib.compress(path.read_bytes()))


def test_the_python_files_and_the_music_are_small() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 100
    assert sum(map(compressed, files)) < MOST_PYTHON_BYTES
    (music,) = PACKAGE.glob("servers/audio/music/*.mp3")
    assert compressed(music) < MOST_MUSIC_BYTES


@pytest.mark.skipif(not WHEELS, reason="dist/ has no wheel: make wheel, or make wheels")
def test_a_built_wheel_is_small_and_complete() -> None:
    for wheel in WHEELS:
        with zipfile.ZipFile(wheel) as archive:
            sizes = {info.filename: info.compress_size for info in archive.infolist()}
        assert "-cp311-abi3-" in wheel.name
        assert wheel.stat().st_size < MOST_BYTES, wheel.name
        (extension,) = (name for name in sizes if name.endswith(".so"))
        assert sizes[extension] < MOST_EXTENSION_BYTES, wheel.name
        music = [name for name in sizes if "/music/" in name]
        assert {Path(name).suffix for name in music} <= {".mp3", ".json", ".md"}, wheel.name
        assert any(name.endswith(".cyclonedx.json") for name in sizes), wheel.name
        assert "playhead/py.typed" in sizes
        assert any(name.endswith(".dist-info/licenses/THIRD-PARTY.md") for name in sizes), wheel.name


def test_crates_under_another_license_are_named_with_their_source() -> None:
    notice = (REPOSITORY / "THIRD-PARTY.md").read_text()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    packages = tomllib.loads((REPOSITORY / "Cargo.lock").read_text())["package"]
    exceptions = tomllib.loads((REPOSITORY / "deny.toml").read_text())["licenses"]["exceptions"]
    versions = {package["name"]: package["version"] for package in packages}
    assert exceptions
    for exception in exceptions:
        crate = exception["crate"]
        assert exception["allow"] == ["MPL-2.0"]
        assert f"https://crates.io/crates/{crate}/{versions[crate]}" in notice
    assert project["license"].endswith("AND MPL-2.0")
    assert "THIRD-PARTY.md" in project["license-files"]


def test_no_profile_aborts_on_a_panic_which_decoding_catches() -> None:
    profiles = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["profile"]
    assert {profile.get("panic", "unwind") for profile in profiles.values()} == {"unwind"}
