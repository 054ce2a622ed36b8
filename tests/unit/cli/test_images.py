"""Images of a result: under which names files are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from playhead.cli.showing import save_image


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("draw_map", "draw_map-1.png"),
        ("../x/\x1b[31m", "x-31m-1.png"),
        ("猫", "image-1.png"),
        ("..", "image-1.png"),
    ],
)
def test_a_file_is_named_for_the_tool_and_never_leaves_its_folder(
    tool: str, name: str, tmp_path: Path
) -> None:
    first = save_image(b"1", tmp_path, tool=tool, number=1, suffix="png")
    second = save_image(b"2", tmp_path, tool=tool, number=1, suffix="png")
    assert (first, second) == (tmp_path / name, tmp_path / name.replace("-1.png", "-1-2.png"))
    assert (first.read_bytes(), second.read_bytes()) == (b"1", b"2")


def test_a_link_that_waits_under_the_name_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    (tmp_path / "map-1.png").symlink_to(target)
    assert save_image(b"1", tmp_path, tool="map", number=1, suffix="png").name == "map-1-2.png"
    assert not target.exists()
