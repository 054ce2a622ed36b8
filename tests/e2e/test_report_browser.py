"""The HTML report in a real browser, as a reader uses it: Chromium, driven by Playwright."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect

from playhead.check.report import write_report
from playhead.check.results import Report
from tests.e2e.browser import chromium
from tests.unit.check.report_kit import HOSTILE_TEXTS, hostile, long, small, triaged, unavailable

pytestmark = [
    pytest.mark.slow("starts a browser"),
    pytest.mark.xdist_group("report_browser"),  # one browser for all of them
]

Scheme = Literal["light", "dark"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@dataclass(slots=True)
class Reader:
    """Opens reports, and holds what no report may do: ask the network, complain, or run what it was told."""

    browser: Browser
    folder: Path
    complaints: list[str] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)

    def open(
        self,
        report: Report,
        *,
        scheme: Scheme = "light",
        scripts: bool = True,
        fragment: str = "",
    ) -> Page:
        path = self.folder / "report.html"
        write_report(report, path)
        context = self.browser.new_context(
            viewport={"width": 1200, "height": 900}, color_scheme=scheme, java_script_enabled=scripts
        )
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        address = path.as_uri()

        def requested(request: Request) -> None:
            if not request.url.startswith(address):
                self.complaints.append(request.url)

        page.on("console", lambda line: self.complaints.append(line.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        page.on("request", requested)
        page.goto(address + fragment)
        return page


@pytest.fixture
def reader(browser: Browser, tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(browser, tmp_path)
    yield reader
    for context in reader.contexts:
        context.close()
    assert reader.complaints == []


def shown(page: Page) -> int:
    return page.locator(".row:visible").count()


def test_every_test_is_a_row_and_the_failed_come_first(reader: Reader) -> None:
    page = reader.open(small())
    expect(page).to_have_title("weather: failed · playhead check")
    expect(page.get_by_role("heading", level=1)).to_have_text("weather 1.4.2")
    assert shown(page) == 5
    first = page.locator("summary").first
    expect(first).to_contain_text("failed")
    expect(first).to_contain_text("valid arguments: the least")
    expect(first).to_contain_text("tools.structured-content")
    expect(first).to_contain_text("tool forecast")
    expect(first).to_contain_text("must")
    expect(first).to_contain_text("312.5 ms")
    expect(page.get_by_role("status")).to_have_text("5 tests")


def test_each_tool_has_a_row_that_leads_to_its_worst_test(reader: Reader) -> None:
    page = reader.open(small())
    tools = page.locator(".tool")
    expect(tools).to_have_count(3)
    expect(tools.first).to_contain_text("2 failed of 2 tests")
    tools.first.get_by_role("link", name="forecast").click()
    expect(page.locator("#row-1 details")).to_have_attribute("open", "")


def test_images_are_drawn_and_audio_can_be_played_from_the_page_alone(reader: Reader) -> None:
    page = reader.open(triaged())
    image = page.locator(".tool img")
    image.scroll_into_view_if_needed()
    page.wait_for_function("() => document.images[0].complete && document.images[0].naturalWidth === 1")
    seconds = page.evaluate(
        """() => new Promise((resolve) => {
            const audio = document.querySelector(".tool audio");
            audio.onloadedmetadata = () => resolve(audio.duration);
            audio.onerror = () => resolve(audio.error.message);
            audio.preload = "metadata";
            audio.load();
        })"""
    )
    assert seconds == 1.0
    expect(page.locator(".tool", has_text="speak")).to_contain_text("too large to be included")


def test_filters_by_verdict_subject_and_search_work_together(reader: Reader) -> None:
    page = reader.open(small())
    status = page.get_by_role("status")
    page.get_by_role("button", name="Failed 2").click()
    expect(page.get_by_role("button", name="Failed 2")).to_have_attribute("aria-pressed", "true")
    expect(status).to_have_text("2 of 5 tests")
    page.get_by_role("button", name="Failed 2").click()
    expect(status).to_have_text("5 tests")
    page.get_by_label("Subject").select_option("tool forecast")
    expect(status).to_have_text("2 of 5 tests")
    page.keyboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.type("SUNNY 21")
    expect(status).to_have_text("1 of 5 tests")
    assert shown(page) == 1
    page.get_by_role("button", name="Undecided").click()
    expect(status).to_have_text("0 of 5 tests")
    page.get_by_role("button", name="Show all").click()
    expect(status).to_have_text("5 tests")
    assert shown(page) == 5


def test_a_row_opens_by_keyboard_and_shows_what_was_expected_and_came(reader: Reader) -> None:
    page = reader.open(small())
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    row = page.locator(".row").first
    expect(row.locator(".judgement")).to_have_count(3)
    expect(row.locator(".judgement.failed .found")).to_contain_text("got the string 'mild'")
    expect(row.locator(".judgement.failed .found")).to_be_visible()
    expect(row.get_by_role("link")).to_have_attribute(
        "href", "https://modelcontextprotocol.io/specification/2025-11-25/server/tools"
    )
    sent, got = (
        json.loads(row.get_by_label(label, exact=True).inner_text()) for label in ("Sent", "Received")
    )
    assert sent["params"] == {"name": "forecast", "arguments": {"city": "Oslo", "days": 1}}
    assert got["structuredContent"] == {"celsius": "mild"}


@pytest.mark.parametrize("clipboard", ["allowed", "refused", "missing"])
def test_the_copy_button_copies_what_is_shown(reader: Reader, clipboard: str) -> None:
    page = reader.open(small())
    if clipboard == "allowed":
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    elif clipboard == "refused":
        page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')) }")
    else:
        page.evaluate("() => { Object.defineProperty(navigator, 'clipboard', {value: undefined}) }")
    if clipboard != "allowed":  # what the other way puts there is read from the event
        page.evaluate("addEventListener('copy', () => { window.copied = getSelection().toString() })")
        page.evaluate(
            "addEventListener('copy', (e) => { window.copied = document.activeElement.value ?? '' }, true)"
        )
    row = page.locator(".row").nth(1)
    row.locator("summary").click()
    button = row.get_by_role("button", name="Copy: Repeat")
    button.click()
    expect(button).to_have_text("Copied")
    expect(button).to_be_focused()
    read = "navigator.clipboard.readText()" if clipboard == "allowed" else "window.copied"
    assert page.evaluate(read) == (
        "playhead call http://127.0.0.1:8000/mcp forecast --args "
        """'{"city": "Oslo", "days": "it'"'"'s two"}'"""
    )


def test_nothing_that_a_hostile_server_says_does_anything(reader: Reader) -> None:
    page = reader.open(hostile())
    page.get_by_role("button", name="Open all").click()
    page.get_by_label("Search").fill("<script>")
    page.get_by_label("Search").fill("")
    for text in HOSTILE_TEXTS[:3]:
        expect(page.locator("summary", has_text=text).first).to_be_visible()
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("document.querySelectorAll('main script, img, iframe, base').length") == 0
    assert page.evaluate("document.querySelectorAll('script').length") == 1


def test_a_script_that_came_in_all_the_same_would_not_run(reader: Reader) -> None:
    page = reader.open(small())
    page.evaluate(
        """() => {
            const script = document.createElement('script');
            script.textContent = 'window.pwned = 1';
            document.body.append(script);
            const image = document.createElement('img');
            image.setAttribute('onerror', 'window.pwned = 2');
            image.src = 'data:,';
            document.body.append(image);
            const far = document.createElement('img');
            far.src = 'http://127.0.0.1:9/x.png';
            document.body.append(far);
        }"""
    )
    page.wait_for_function("() => document.images[1].complete")
    assert page.evaluate("window.pwned") is None
    refused = [line for line in reader.complaints if "Content Security Policy" in line]
    assert len(refused) == 3
    reader.complaints.clear()


@pytest.mark.parametrize("make", [small, hostile, unavailable, triaged])
def test_nothing_scrolls_sideways(reader: Reader, make: Callable[[], Report]) -> None:
    page = reader.open(make())
    if page.locator("#expand").count():
        page.locator("#expand").click()
    for width in (320, 360, 700, 1600):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") == width


CONTRASTS = """() => {
    const channels = (color) => color.match(/[\\d.]+/g).map(Number);
    const light = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
        .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const style = getComputedStyle(at);
            const found = channels(style.backgroundColor);
            if (found.length === 3 || found[3] === 1) return found;
        }
        return [255, 255, 255];
    };
    const found = {};
    for (const element of document.querySelectorAll('body *')) {
        const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
        if (!own || !element.checkVisibility() || element.closest('svg, script')) continue;
        const [a, b] = [light(channels(getComputedStyle(element).color)), light(ground(element))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const name = element.tagName + '.' + element.className;
        found[name] = Math.min(found[name] ?? 99, ratio);
    }
    return found;
}"""


@pytest.mark.parametrize("make", [small, triaged])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_the_contrast_that_wcag_asks_for(
    reader: Reader, scheme: Scheme, make: Callable[[], Report]
) -> None:
    page = reader.open(make(), scheme=scheme)
    page.get_by_role("button", name="Open all").click()
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 20
    assert {name: ratio for name, ratio in contrasts.items() if ratio < 4.5} == {}
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) < 200) == (scheme == "dark")


def test_without_javascript_every_row_is_there_and_opens(reader: Reader) -> None:
    page = reader.open(small(), scripts=False)
    assert shown(page) == 5
    assert page.get_by_role("button").count() == 0
    page.locator("summary").first.click()
    expect(page.get_by_label("Repeat", exact=True).first).to_be_visible()


def test_two_thousand_rows_are_filtered_and_opened(reader: Reader) -> None:
    page = reader.open(long())
    status = page.get_by_role("status")
    expect(status).to_have_text("2,000 tests")
    page.locator("#search").fill("random 1999")
    expect(status).to_have_text("1 of 2,000 tests")
    page.locator("#search").fill("")
    page.locator(".chip.failed").click()
    expect(status).to_have_text("20 of 2,000 tests")
    page.locator("#expand").click()
    expect(page.locator("details[open]")).to_have_count(20)
    page.locator("#expand").click()
    expect(page.locator("details[open]")).to_have_count(0)


def test_an_address_of_a_row_opens_it(reader: Reader) -> None:
    page = reader.open(small(), fragment="#row-2")
    expect(page.locator("#row-2 details")).to_have_attribute("open", "")
    expect(page.locator("#row-2 summary")).to_be_focused()


def test_print_shows_what_failed_whole_and_no_controls(reader: Reader) -> None:
    page = reader.open(small(), scheme="dark")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".row.failed pre:visible")).to_have_count(6)
    expect(page.get_by_label("Search")).to_be_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator("details[open]")).to_have_count(0)
    assert page.pdf(format="A4").startswith(b"%PDF")
