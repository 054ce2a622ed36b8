"""`playhead serve template` as a process: the example client, a report of the checker, and its end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from tests.e2e.command import HANG_SECONDS, PLAYHEAD, REPOSITORY, playhead, serving


def test_the_example_client_says_what_it_was_answered_and_sigterm_ends_the_server_in_good_order() -> None:
    with serving("template") as (url, process):
        example = [sys.executable, "-W", "error", str(REPOSITORY / "examples" / "template_client.py"), url]
        done = subprocess.run(example, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        said = done.stdout.splitlines()
        assert said[0] == "playhead-template speaks 2024-11-05"
        assert said[1] == "tools: calculator, web_search, document_analyzer, knowledge_graph"
        assert said[2] == "2 + 3 * 4 = 14"
        assert said[3] == "1. Sampling theorem"
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_SECONDS) == 0


def test_our_own_command_calls_it_over_websocket_and_stdio() -> None:
    with serving("template") as (url, _):
        done = playhead("call", url, "calculator", "operation=divide", "a=1", "b=8")
        assert (done.code, done.stdout.decode().splitlines()[0]) == (0, "0.125")
    command = " ".join([*PLAYHEAD, "serve", "template", "--transport", "stdio"])
    done = playhead("call", command, "calculator", "expression=1 / 0")
    assert "division by zero" in done.stdout.decode() + done.stderr


def test_lines_that_are_no_messages_are_answered_over_stdio() -> None:
    lines = ["{no json", "", "[]", '{"jsonrpc": "2.0", "id": 5}']
    sent = "".join(f"{line}\n" for line in lines).encode()
    command = [*PLAYHEAD, "serve", "template", "--transport", "stdio"]
    done = subprocess.run(command, input=sent, capture_output=True, timeout=HANG_SECONDS, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [
        (None, -32700),
        (None, -32600),
        (5, -32600),
    ]
