"""The proxy's page in a real browser: Chromium, driven by Playwright."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser import chromium
from tests.servers.markup import MARKUP

pytestmark = [
    pytest.mark.slow("starts a browser"),
    pytest.mark.xdist_group("proxy_page"),  # one browser for all of them
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium("--autoplay-policy=no-user-gesture-required") as browser:
        yield browser


@dataclass(slots=True)
class Proxy:
    """A proxy over stdio, driven by raw messages of this host."""

    process: subprocess.Popen[str]
    page_url: str
    _last: int = 0

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._last:
                return dict(answer["result"])
        raise AssertionError("the proxy has ended")

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.request("tools/call", name=tool, arguments=arguments)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    audio = f"{sys.executable} -m playhead serve audio --mixer memory"
    markup = f"{sys.executable} -m tests.servers.markup"
    command = [sys.executable, "-m", "playhead", "serve", "proxy", audio, markup]
    command += ["--sink", "null", "--media-port", "0"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    with subprocess.Popen(command, text=True, env=env, **pipes) as process:
        assert process.stderr is not None
        url = next(line.split()[-1] for line in process.stderr if "the page is at" in line)
        threading.Thread(target=process.stderr.read, daemon=True).start()
        host = Proxy(process, url)
        info = {"name": "host", "version": "1"}
        host.request("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
        yield host
        process.terminate()


def tool(proxy: Proxy, end: str) -> str:
    names: list[str] = [each["name"] for each in proxy.request("tools/list")["tools"]]
    return next(name for name in names if name.endswith(end))


@pytest.fixture
def page(browser: Browser, proxy: Proxy) -> Iterator[Page]:
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        page = context.new_page()
        page.goto(proxy.page_url)
        yield page


def test_the_page_shows_plays_and_controls(page: Page, proxy: Proxy, tmp_path: Path) -> None:
    assert page.url.endswith("/")
    assert "token" not in page.url
    proxy.call(tool(proxy, "musicPlayer"), query="")
    expect(page.locator("#title")).to_have_text(re.compile(r"\((playing|buffering)\)"))
    expect(page.locator("#queue li[aria-current]")).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#title")).to_have_text(re.compile(r"\(paused\)"))
    page.reload()
    expect(page.locator("#title")).to_have_text(re.compile(r"\(paused\)"))
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        pictures = Path(os.environ.get("PLAYHEAD_PICTURES", tmp_path))
        page.screenshot(path=str(pictures / f"page-{width}.png"), full_page=True)
        overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0, f"the page is {overflow} px too wide at {width} px"


def test_the_piece_is_heard_in_the_browser(page: Page, proxy: Proxy) -> None:
    result = proxy.call(tool(proxy, "musicPlayer"), query="")
    (address,) = result["_meta"]["playhead/audio"]
    heard = """async (path) => {
        const bytes = await (await fetch(path)).arrayBuffer();
        const size = bytes.byteLength;
        const audio = await new OfflineAudioContext(2, 1, 44100).decodeAudioData(bytes);
        return {size, seconds: audio.duration, frames: audio.length};
    }"""
    found = page.evaluate(heard, "/media/" + address.rpartition("/")[2])
    assert found["frames"] > 44100 * 5
    page.get_by_role("button", name=re.compile("^Listen here")).first.click()
    played = """() => new Promise((done) => {
        const audio = document.getElementById("audio");
        const look = () => { if (audio.currentTime > 0.2) done(audio.duration); };
        audio.addEventListener("timeupdate", look);
        look();
    })"""
    duration = page.evaluate(played)
    assert duration == pytest.approx(found["seconds"], abs=0.2)


def test_the_keyboard_reaches_every_control(page: Page, proxy: Proxy) -> None:
    proxy.call(tool(proxy, "musicPlayer"), query="")
    expect(page.locator("#results button")).to_have_count(1)
    reached = set()
    for _step in range(12):
        page.keyboard.press("Tab")
        focused = "document.activeElement.id || document.activeElement.textContent"
        reached.add(page.evaluate(focused))
    assert {"Previous", "toggle", "Next", "Stop", "volume", "audio", "Listen here"} <= reached
    page.get_by_role("button", name="Stop").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#queue li")).to_have_count(0)


def test_a_screen_reader_finds_headings_names_and_states(page: Page) -> None:
    tree = page.locator("body").aria_snapshot()
    for line in (
        'heading "playhead" [level=1]',
        'region "Now playing"',
        'progressbar "Position"',
        'group "Controls"',
        'button "Pause"' if 'button "Pause"' in tree else 'button "Resume"',
        'slider "Volume"',
        'region "Queue"',
        'region "Last results"',
    ):
        assert line in tree, tree


def test_markup_of_a_server_is_text_and_nothing_runs(page: Page, proxy: Proxy) -> None:
    proxy.call(tool(proxy, "markup"))
    expect(page.locator("#results p").first).to_have_text(MARKUP)
    assert page.locator("#results img, #results script").count() == 0
    assert page.title() == "playhead"


def test_the_cookie_the_token_and_the_policy_guard_the_page(
    page: Page, browser: Browser, proxy: Proxy
) -> None:
    (cookie,) = page.context.cookies()
    assert (cookie["sameSite"], cookie["httpOnly"]) == ("Strict", True)
    answer = page.request.get(page.url)
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")
    status = "async (headers) => (await fetch('/control', {method: 'POST', headers, body: '{}'})).status"
    assert page.evaluate(status, {}) == 403
    with browser.new_context() as stranger:
        assert stranger.request.get(page.url).status == 401
        assert stranger.request.get(f"{page.url}events").status == 401
        assert stranger.request.post(f"{page.url}control").status == 401


def test_a_form_of_another_origin_is_refused(page: Page) -> None:
    refused: list[int] = []
    page.on("response", lambda response: refused.append(response.status))
    other = page.context.new_page()
    other.on("response", lambda response: refused.append(response.status))
    place, form = "http://other.example/", "<form method=post></form>"
    other.route(place, lambda route: route.fulfill(body=form, content_type="text/html"))
    other.goto(place)
    target = f"{page.url}control"
    submit = "(target) => { document.forms[0].action = target; document.forms[0].submit(); }"
    other.evaluate(submit, target)
    other.wait_for_url(target)
    assert refused[-1] in (401, 403)
