"""docs/tool-config.md and docs/approvals.md have every key of the tool configuration; their files load."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from playhead.config.tools import load_approval_policy, load_tool_configs, tool_tables
from tests.e2e.command import playhead, playhead_process

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "".join((DOCS / page).read_text("utf-8") for page in ("tool-config.md", "approvals.md"))
EXAMPLES = [
    (kind, text)
    for kind, text in re.findall(r"^```(toml|json)\n(.*?)^```", PAGE, re.M | re.S)
    if "[project" not in text
]
NAMED = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M))


def written(folder: Path, kind: str, text: str) -> Path:
    path = folder / f"playhead-tools.{kind}"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("kind", "text"), EXAMPLES)
def test_an_example_loads(kind: str, text: str, tmp_path: Path) -> None:
    path = written(tmp_path, kind, text)
    if "approvals" in text:
        assert [rule.action for rule in load_approval_policy(path).rules] == ["deny", "ask"]
    else:
        assert len(load_tool_configs(path)) >= 3


MODELS = (
    tool_tables.ToolFile,
    tool_tables.ToolTable,
    tool_tables.DynamicTable,
    tool_tables.ApprovalsTable,
    tool_tables.RuleTable,
)


def test_every_key_that_is_read_is_in_the_page_and_no_other() -> None:
    assert {name for model in MODELS for name in model.model_fields} == NAMED


@pytest.mark.requirement("CF-16")
def test_what_the_page_shows_of_explain_is_what_is_printed(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"home": {"command": "x"}}}))
    written(tmp_path, *EXAMPLES[0])
    shown = re.search(r"^\$ playhead (explain .*)\n((?:.*\n)*?)```", PAGE, re.M)
    assert shown is not None
    done = playhead_process(*shown[1].split(), "--trust", cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert [line.rstrip() for line in done.stdout.decode().splitlines()] == shown[2].splitlines()


def test_an_unknown_server_is_a_usage_error_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"home": {"command": "x"}}}))
    done = playhead("explain", "hmoe__x", "--trust", "--json", cwd=tmp_path)
    assert done.code == 2
    assert done.json["error"]["type"] == "UsageError"
    assert "did you mean 'home'?" in done.stderr
