"""docs/servers-file.md is the whole servers file: its examples load, and it names every key there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from playhead.config import server_entries
from playhead.config.servers import load_servers

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "servers-file.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```json\n(.*?)^```", PAGE + (DOCS / "sharing.md").read_text("utf-8"), re.M | re.S)
NAMED = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M)) | {"type", "token"}
ENVIRONMENT = {"MUSIC_KEY": "x", "RADIO_TOKEN": "x", "ARCHIVE_SECRET": "x"}

MODELS = (
    server_entries._Entry,
    server_entries._Tls,
    server_entries._Playhead,
    server_entries._Type,
    server_entries._Bearer,
    server_entries._ClientCredentials,
    server_entries._OAuth,
)
"""The keys that the reader accepts, table by table."""


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_loads(example: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(example, encoding="utf-8")
    assert load_servers(path, environment=ENVIRONMENT)


def test_every_key_that_is_read_is_in_the_page_and_no_other() -> None:
    read = {name for model in MODELS for name in model.model_fields}
    assert read - {"compat"} == NAMED
