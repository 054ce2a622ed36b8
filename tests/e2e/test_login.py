"""The command line and a server that wants a login: the page is named, and opened, and it goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import trio

from tests.e2e.command import HANG_SECONDS, start
from tests.servers.oauth import protected_server

BROWSER = "import sys, httpx2; httpx2.get(sys.argv[1], follow_redirects=True)"


async def test_the_command_line_leads_to_the_login_and_goes_on_after_it(tmp_path: Path) -> None:
    (tmp_path / "browser.py").write_text(BROWSER, encoding="utf-8")
    async with protected_server() as server:
        entry = {"url": server.url, "auth": {"type": "oauth"}}
        config = tmp_path / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"it": entry}}), encoding="utf-8")
        said = []
        for _ in range(2):
            process = start(
                ["tools", "it", "--config", config, "--json"],
                BROWSER=f"{sys.executable} {tmp_path / 'browser.py'} %s &",
                XDG_DATA_HOME=str(tmp_path / "data"),
            )
            said.append(await trio.to_thread.run_sync(process.communicate, HANG_SECONDS))
            assert process.returncode == 0, said
    assert b"to allow the access, open http://127.0.0.1" in said[0][1]
    assert json.loads(said[0][0])["error"] is None
    assert said[1][1] == b""
