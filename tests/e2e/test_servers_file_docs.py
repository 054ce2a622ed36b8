"""docs/servers-file.md is the whole servers file: its examples load, and it names every key there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from playhead.config import fields
from playhead.config.servers import load_servers

PAGE = (Path(__file__).parents[2] / "docs" / "servers-file.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```json\n(.*?)^```", PAGE, re.M | re.S)
NAMED = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M)) | {"type", "token"}
ENVIRONMENT = {"MUSIC_KEY": "x", "RADIO_TOKEN": "x", "ARCHIVE_SECRET": "x"}

ENTRIES = [
    {"command": "x"},
    {"url": "https://x", "auth": {"type": "bearer", "token": "x"}},
    {"url": "https://x", "auth": {"type": "oauth"}},
    {"url": "https://x", "auth": {"type": "client_credentials", "client_id": "x", "client_secret": "x"}},
]
"""Between them they take every branch of the reader."""


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_loads(example: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(example, encoding="utf-8")
    assert load_servers(path, environment=ENVIRONMENT)


def test_every_key_that_is_read_is_in_the_page_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: set[str] = set()
    for reader in ("text", "texts", "items", "values", "number", "whole", "flag", "choice", "table"):
        real = getattr(fields.Fields, reader)

        def noted(self: object, name: str, *rest: object, real: object = real, **more: object) -> object:
            read.add(name)
            return real(self, name, *rest, **more)  # type: ignore[operator]

        monkeypatch.setattr(fields.Fields, reader, noted)
    path = tmp_path / "mcp.json"
    for entry in ENTRIES:
        path.write_text(json.dumps({"mcpServers": {"it": entry}}), encoding="utf-8")
        load_servers(path)
    assert read - {"mcpServers", "it"} == NAMED
