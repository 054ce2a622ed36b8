"""The command line and a server that wants a login: the page is named, and opened, and it goes on."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import trio

from tests.servers.oauth import protected_server

BROWSER = "import sys, httpx2; httpx2.get(sys.argv[1], follow_redirects=True)"


async def test_the_command_line_leads_to_the_login_and_goes_on_after_it(tmp_path: Path) -> None:
    (tmp_path / "browser.py").write_text(BROWSER, encoding="utf-8")
    environment = os.environ | {
        "BROWSER": f"{sys.executable} {tmp_path / 'browser.py'} %s &",
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }
    async with protected_server() as server:
        entry = {"url": server.url, "auth": {"type": "oauth"}}
        config = tmp_path / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"it": entry}}), encoding="utf-8")
        command = [sys.executable, "-m", "playhead", "tools", "it", "--config", str(config), "--json"]
        runs = []
        with trio.fail_after(60):
            for _ in range(2):
                runs.append(
                    await trio.run_process(
                        command, capture_stdout=True, capture_stderr=True, check=False, env=environment
                    )
                )
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr.decode()
    assert b"to allow the access, open http://127.0.0.1" in runs[0].stderr
    assert runs[1].stderr == b""
    assert json.loads(runs[0].stdout)["error"] is None
