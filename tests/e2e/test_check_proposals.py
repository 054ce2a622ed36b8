"""`playhead check --draft-expectations FILE --model PROVIDER:NAME`, with a model on loopback."""

from __future__ import annotations

import json
import shlex
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.e2e.chat_kit import says
from tests.e2e.command import Outcome, playhead
from tests.servers.scripted_http import Answering, scripted_http

WEATHER = shlex.join([sys.executable, "-m", "tests.servers.weather"])
PROPOSED = {
    "forecast": [{"city": "Oslo"}, {"city": "Atlantis"}],
    "rename": [{"city": "Lima", "name": "Quito"}],
}


async def check(url: str, *words: str | Path) -> Outcome:
    model = ("--model", "openai:tiny", "--base-url", f"{url}/v1")
    return await trio.to_thread.run_sync(partial(playhead, "check", WEATHER, "full", *model, *words))


async def test_the_arguments_that_a_model_proposes_are_tried_once_and_drafted(tmp_path: Path) -> None:
    draft = tmp_path / "weather.toml"
    async with scripted_http(says("```json\n", json.dumps(PROPOSED), "\n```")) as (url, asked):
        done = await check(url, "--draft-expectations", draft)
    assert done.code == 0, done.stdout
    assert b"2 of 3 tools answered at least once" in done.stdout
    assert b"the model proposed arguments for 2 of 2 tools that take any" in done.stdout
    text = draft.read_text()
    calls = {call["tool"]: call for call in tomllib.loads(text)["calls"]}
    assert sorted(calls) == ["forecast", "now"], "rename is not read-only"
    assert calls["forecast"] == {
        "tool": "forecast", "arguments": {"city": "Oslo"}, "content_types": ["text"],
    }  # fmt: skip
    assert (
        "# Not called: --mine read-only does not call it with values that may exist; --mine all does\n"
        "# [[calls]]\n"
        '# tool = "rename"\n# arguments = {city = "Lima",name = "Quito"}\n'
    ) in text
    (request,) = asked
    system, message = request.body["messages"]
    assert "Reply with one JSON object" in system["content"]
    sent = [json.loads(line) for line in message["content"].splitlines()]
    assert [tool["name"] for tool in sent] == ["forecast", "rename"]
    assert sent[1]["inputSchema"]["required"] == ["city", "name"]
    assert "hunter2" not in json.dumps(request.body)


async def test_a_model_that_fails_is_one_line_and_the_draft_is_written(tmp_path: Path) -> None:
    async def refuse(answering: Answering) -> None:
        await answering.whole(b'{"error": {"message": "no such model"}}', status=404)

    draft = tmp_path / "weather.toml"
    async with scripted_http(refuse) as (url, _):
        done = await check(url, "--draft-expectations", draft)
    assert done.code == 0, done.stdout
    words = " ".join(done.stdout.decode().split())
    assert "the model failed and was not asked again: " in words
    assert "no such model" in words
    assert {call["tool"] for call in tomllib.loads(draft.read_text())["calls"]} == {"now"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["full", "--model", "openai:tiny"], "add --draft-expectations FILE"),
        (["full", "--base-url", "http://127.0.0.1:1"], "add --model PROVIDER:NAME"),
        (["full", "--draft-expectations", "d.json", "--model", "tiny"], "expected PROVIDER:NAME"),
        (["full", "--draft-expectations", "d.json", "--model", "openai:"], "expected PROVIDER:NAME"),
        (["full", "--draft-expectations", "d.json", "--model", "gemini:x"], "set GEMINI_API_KEY or GOOGLE_"),
        (["--draft-expectations", "d.json", "--model", "openai:x"], "--draft-expectations needs a full"),
    ],
)
def test_an_unusable_model_is_refused_before_the_server_is_started(
    words: list[str], message: str, tmp_path: Path
) -> None:
    marker = tmp_path / "started"
    done = playhead("check", shlex.join(["touch", str(marker)]), *words, cwd=tmp_path)
    assert (done.code, marker.exists()) == (2, False)
    assert message in done.stderr
