"""pyright in strict mode, over the programs of docs/asyncio.md and over calls that are wrong."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.documents.tools import needs_tools, run

pytestmark = [needs_tools, pytest.mark.slow("pyright reads the whole package")]

PAGE = Path(__file__).parents[2] / "docs" / "asyncio.md"
WRONG = """
import playhead
from playhead.playback import Player
from playhead.portals import AsyncioPortal


async def wrong(portal: AsyncioPortal, session: playhead.Session, player: Player) -> None:
    await portal.call(session.call_tool, 3)
    await portal.call(player.seek, seconds="ten")
    name: str = await portal.call(player.wait_finished)
    print(name)
    playhead.asyncio_portl()
"""


async def errors(folder: Path) -> list[int]:
    """The line (from 1) of each error."""
    configuration = {"typeCheckingMode": "strict", "pythonVersion": "3.11"}
    (folder / "pyrightconfig.json").write_text(json.dumps(configuration))
    printed = await run(folder, "pyright", "--pythonpath", sys.executable, "--outputjson", check=False)
    report = json.loads(printed)
    assert report["summary"]["filesAnalyzed"] > 0
    return [each["range"]["start"]["line"] + 1 for each in report["generalDiagnostics"]]


async def test_the_programs_for_asyncio_and_threads_pass(tmp_path: Path) -> None:
    programs = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    assert len(programs) >= 3
    for number, code in enumerate(programs):
        (tmp_path / f"program_{number}.py").write_text(code)
    assert await errors(tmp_path) == []


async def test_a_call_with_wrong_arguments_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    found = await errors(tmp_path)
    assert sorted(set(found)) == [8, 9, 10, 12]
