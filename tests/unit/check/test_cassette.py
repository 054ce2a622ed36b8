"""Cassettes: a check is recorded without secrets, and repeated without its server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from playhead.check.cassette import UNRECORDED, CassetteRecorder, CassetteServer, cleaned, load_cassette
from playhead.check.run import check_server
from playhead.errors import ConfigError
from tests.unit.check.check_kit import Json, failures, text
from tests.unit.check.talkative import READ_ONLY, planted, progress, tool
from tests.unit.check.test_planted_servers import OPTIONS, quickly

__all__ = ["quickly"]
pytestmark = pytest.mark.usefixtures("quickly")

CANARY = "canary-7f3b91e2"


async def test_a_recorded_check_is_repeated_without_its_server(tmp_path: Path) -> None:
    recorder = CassetteRecorder()
    report = await check_server(planted(), OPTIONS, recorder=recorder)
    path = tmp_path / "shelf.cassette"
    path.write_text(recorder.to_json())
    again = await check_server(load_cassette(path), OPTIONS)
    assert failures(again.tests) == []
    assert again.passed
    assert report.coverage == "4 of 4 tools answered at least once"
    assert again.count("success") >= 0.8 * report.count("success")


async def test_a_defect_is_found_again_in_the_recording() -> None:
    recorder = CassetteRecorder()
    server = planted(
        tool("list_items", lambda arguments: text("KeyError: 'x'", isError=True) | {"content": 7})
    )
    before = await check_server(server, OPTIONS, recorder=recorder)
    after = await check_server(CassetteServer("shelf", recorder.exchanges), OPTIONS)
    names = {check.kind.name for check in failures(after.tests)}
    assert "tools.result" in names
    assert names <= {check.kind.name for check in failures(before.tests)}


async def test_a_request_that_was_not_recorded_is_undecided() -> None:
    recorder = CassetteRecorder()
    await check_server(planted(), OPTIONS, recorder=recorder)
    fewer = [each for each in recorder.exchanges if each["method"] != "prompts/get"]
    report = await check_server(CassetteServer("shelf", fewer), OPTIONS)
    assert failures(report.tests) == []
    asked = [test for test in report.tests if test.method == "prompts/get"]
    assert asked
    assert {test.status for test in asked} == {"error"}
    assert all("the cassette does not have this request" in (test.error or "") for test in asked)


def test_progress_tokens_and_stamps_do_not_matter_for_matching() -> None:
    recorded = {"method": "tools/call", "params": {"name": "a", "arguments": {}}, "result": {"content": []}}
    server = CassetteServer("shelf", [recorded])
    params = {"name": "a", "arguments": {}, "_meta": {"progressToken": 7}}
    assert server.answer("tools/call", params) == {"result": {"content": []}}
    assert server.answer("tools/call", {"name": "b"})["error"]["code"] == UNRECORDED


def test_equal_listings_get_their_answers_in_order_and_calls_with_several_are_undecided() -> None:
    exchanges = [{"method": "ping", "params": {}, "result": {"n": n}} for n in range(2)]
    server = CassetteServer("shelf", exchanges)
    assert [server.answer("ping", {})["result"]["n"] for _ in range(3)] == [0, 1, 1]
    server = CassetteServer("shelf", [{**each, "method": "tools/call"} for each in exchanges])
    assert server.answer("tools/call", {})["error"]["code"] == UNRECORDED


@pytest.mark.parametrize(
    "place",
    [
        {"api_key": CANARY},
        {"headers": {"Authorization": f"Bearer {CANARY}"}},
        {"text": f"called with Bearer {CANARY}1234"},
        {"url": f"https://user:{CANARY}@a.example/"},
        {"url": f"https://a.example/?token={CANARY}&q=1"},
        {"text": f"sk-{CANARY}"},
        {"text": f"ghp_{CANARY}"},
        {"text": f"eyJhbGciOiJIUzI1NiJ9.{CANARY}.{CANARY}"},
        {"nested": [{"client_secret": CANARY}]},
        {"text": f"from the environment: {CANARY}"},
    ],
    ids=["key", "header", "bearer", "userinfo", "query", "sk", "ghp", "jwt", "nested", "known"],
)
async def test_a_canary_of_secrets_is_in_no_cassette(place: Json) -> None:
    recorder = (
        CassetteRecorder(secrets=[CANARY] if place["text"].startswith("from") else ())
        if "text" in place
        else CassetteRecorder()
    )
    answer = {**text(json.dumps(place)), "structuredContent": place}
    server = planted(tool("list_items", lambda arguments: answer, **READ_ONLY))
    await check_server(server, OPTIONS, recorder=recorder)
    assert any(each["method"] == "tools/call" for each in recorder.exchanges)
    assert CANARY not in recorder.to_json()


def test_what_is_no_secret_stays() -> None:
    kept: Json = {
        "id": "2f1e4b7a-9c3d-4e8f-8a6b-0d5c7e9f1a23",
        "blob": "UklGRiQAAABXQVZFZm10IBAAAAABAAEA",
        "n": 7,
    }
    assert cleaned(kept, ()) == kept


@pytest.mark.parametrize(
    "content", ["[]", '{"playhead_cassette": 2, "exchanges": []}', '{"playhead_cassette": 1}']
)
def test_another_file_is_not_a_cassette(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.cassette"
    path.write_text(content)
    with pytest.raises(ConfigError, match="expected a cassette"):
        load_cassette(path)


def test_reports_of_progress_are_not_recorded() -> None:
    recorder = CassetteRecorder()
    see = recorder.witness()
    see("sent", b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
    see("received", json.dumps({"jsonrpc": "2.0", **progress({}, 1)[0]}).encode())
    see("received", b'{"jsonrpc": "2.0", "id": 1, "result": {}}')
    assert recorder.exchanges == [{"method": "ping", "params": {}, "result": {}}]
