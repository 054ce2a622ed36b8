"""The framework under a server, and what a check leaves behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mcp_types as types
import pytest
import trio
import trio.testing
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError

from playhead.check.footprint import changes, footprint
from playhead.check.framework import attribute, framework_of
from playhead.check.options import CheckOptions
from playhead.check.probes.server import probe_server
from playhead.check.results import Json, TestDraft, TestResult
from playhead.check.run import check_server
from playhead.config.servers import ServerConfig
from tests.servers.launch import REPOSITORY
from tests.unit.check.check_kit import defects, probed

# Copied from what the servers send: mcp 1.30 and 2.3, FastMCP 4.1.2, the TypeScript SDK 1.32.2, mcp-go 1.2.1.
FASTMCP: Json = {"name": "add", "_meta": {"fastmcp": {"tags": []}}, "inputSchema": {"type": "object"}}
OLD_TITLE: Json = {"name": "add", "inputSchema": {"type": "object", "title": "addArguments"}}
INVALID: Json = {"code": -32602, "message": "Invalid request parameters", "data": ""}
UNKNOWN: Json = {"code": -32601, "message": "Method not found", "data": "playhead/no-such-method"}
TYPESCRIPT: Json = {
    "content": [{"type": "text", "text": "MCP error -32602: Tool playhead_no_such_tool not found"}],
    "isError": True,
}
MCP_GO: Json = {
    "code": -32602,
    "message": "tool 'playhead_no_such_tool' not found: tool not found",
    "data": None,
}


def answered(**answers: Json) -> list[TestResult]:
    titles = {
        "definition": "definition",
        "method": "an unknown method",
        "nameless": "a call without a name",
        "tool": "an unknown tool",
    }
    return [
        TestResult(subject="server", title=titles[key], output=output, status="success")
        for key, output in answers.items()
    ]


@pytest.mark.parametrize(
    ("tests", "framework"),
    [
        (answered(definition=FASTMCP, method=UNKNOWN, nameless=INVALID), "FastMCP"),
        (answered(definition=OLD_TITLE, method=INVALID, nameless=INVALID), "the Python SDK 1.x"),
        (answered(definition=OLD_TITLE, method=UNKNOWN, nameless=INVALID), "the Python SDK 2.x"),
        (answered(definition=OLD_TITLE), "the Python SDK"),
        (
            answered(method={"code": -32601, "message": "Method not found"}, tool=TYPESCRIPT),
            "the TypeScript SDK",
        ),
        (answered(tool=MCP_GO), "mcp-go"),
        (answered(method={"code": -32601, "message": "no such method"}, tool={"content": []}), None),
        ([], None),
    ],
)
def test_the_answers_of_a_server_reveal_its_framework(tests: list[TestResult], framework: str | None) -> None:
    assert framework_of(tests) == framework


@pytest.mark.parametrize(("seconds", "found"), [(40, set[str]()), (60, {"server.big-request"})])
async def test_a_large_request_may_take_several_times_as_long_as_others(
    seconds: float, found: set[str], autojump_clock: trio.testing.MockClock
) -> None:
    async def call(_context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        if len((params.arguments or {}).get("text", "")) > 1_000_000:
            await trio.sleep(seconds)
        raise MCPError(-32602, "no such tool")

    server = Server("slow", on_call_tool=call)
    assert defects(await probed(server, probe_server, timeout_seconds=10)) == found


def failing(name: str) -> TestResult:
    draft = TestDraft(subject="tool t", title="a call")
    draft.failed(name, "expected this, got that")
    return draft.done()


def test_each_finding_names_who_can_fix_it_once_the_framework_is_known() -> None:
    found = [
        failing("server.unknown-method"),
        failing("prompts.error-code"),
        failing("tools.content"),
        failing("tools.cancel-survives"),
    ]
    assert list(attribute(found)) == found  # nothing is known
    method, prompt, content, cancelled, *_answers = attribute(
        [*found, *answered(method=INVALID, nameless=INVALID)]
    )
    said = (
        " [to fix in the Python SDK 1.x, on which the server is built: a sound server on it has this defect,"
        " as of 1.30.0"
    )
    assert str(method.error).endswith(f"{said}; 2.x answers as specified]")
    assert str(prompt.error).endswith(f"{said}]")
    assert prompt.checks[0].message == prompt.error
    assert content.error == "expected this, got that"  # no sound server on the framework has it
    assert cancelled.error == "expected this, got that"


def server_in(folder: Path, *, cwd: str | None = None) -> ServerConfig:
    return ServerConfig(name="s", command=("server", str(folder)), cwd=cwd)


def test_new_changed_and_deleted_entries_are_counted_below_a_directory_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a")
    (tmp_path / "old").write_text("a")
    (tmp_path / "inner").mkdir()
    server = server_in(tmp_path)
    before = footprint(server)
    assert changes(before, footprint(server)) == []
    for number in range(4):
        (tmp_path / "inner" / f"new{number}").write_text("")
    (tmp_path / "kept").write_text("longer")
    (tmp_path / "old").unlink()
    (sentence,) = changes(before, footprint(server))
    assert sentence == (
        "the check left the server changed: 4 new entries (inner/new0, inner/new1, inner/new2, and 1 more),"
        f" 1 changed entry (kept), 1 deleted entry (old) under {tmp_path.resolve()}"
    )


@pytest.mark.parametrize("how", ["option", "file", "env", "cwd"])
def test_a_directory_is_found_however_a_server_is_given_it(how: str, tmp_path: Path) -> None:
    server = {
        "option": ServerConfig(name="s", command=("server", f"--data={tmp_path}")),
        "file": ServerConfig(name="s", command=("server", "--db", str(tmp_path / "notes.db"))),
        "env": ServerConfig(name="s", command=("server",), env={"STORE": str(tmp_path / "notes.jsonl")}),
        "cwd": ServerConfig(name="s", command=("server",), cwd=str(tmp_path)),
    }[how]
    before = footprint(server)
    (tmp_path / "notes.db").write_text("")
    assert "1 new entry (notes.db)" in changes(before, footprint(server))[0]


def test_only_directories_passed_to_a_server_are_watched(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "server.py").write_text("")
    (tmp_path / "work" / "inner").mkdir(parents=True)
    server = ServerConfig(name="s", command=("python", str(code / "server.py")), cwd=str(tmp_path / "work"))
    before = footprint(server)
    (code / "cache").write_text("")
    (tmp_path / "work" / "inner" / "deep").write_text("")  # the working directory is not all the server's
    assert changes(before, footprint(server)) == []
    assert footprint(ServerConfig(name="s", url="http://127.0.0.1/mcp")).entries == {}


def test_a_directory_of_too_many_entries_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("playhead.check.footprint._MOST_ENTRIES", 3)
    for number in range(5):
        (tmp_path / str(number)).write_text("")
    before = footprint(server_in(tmp_path, cwd=str(tmp_path)))
    assert before.entries == {}


NOTES = """
import sys
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from pathlib import Path
server = MCPServer("notes")
@server.tool()
def note(name: str) -> str:
    Path(sys.argv[1], f"{abs(hash(name))}.txt").write_text(name)
    return "noted"
server.run()
"""


async def test_a_report_lists_files_that_the_check_left_behind(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "work").mkdir()
    code = tmp_path / "code" / "notes.py"
    code.write_text(NOTES)
    config = ServerConfig(
        name="notes", command=(sys.executable, str(code), str(tmp_path / "work")), cwd=str(REPOSITORY)
    )
    report = await check_server(config, CheckOptions(depth="full", examples=1))
    count = len(list((tmp_path / "work").iterdir()))
    assert count > 1
    (remark,) = [remark for remark in report.remarks if str(tmp_path) in remark]
    assert f"{count} new entries" in remark


async def test_new_resources_are_reported_for_servers_anywhere() -> None:
    server: MCPServer = MCPServer("growing", log_level="CRITICAL")

    @server.resource("note://first")
    def first() -> str:
        return "a"

    @server.tool()
    def grow() -> str:
        @server.resource("note://second")
        def second() -> str:
            return "b"

        return "grown"

    report = await check_server(server, CheckOptions(depth="full", examples=1))
    assert "the check left the server changed: 1 new resource (note://second)" in report.remarks
    quick = await check_server(server, CheckOptions(depth="quick"))
    assert json.dumps(quick.remarks) == "[]"
