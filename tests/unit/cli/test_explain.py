"""`playhead explain`: each layer and the one that decided, what holds, and no secrets; a resource's form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from playhead.cli.app import run
from playhead.stream.strategies import STRATEGY_NAMES
from tests.servers.shared import SharedServers

SERVERS = {
    "home": {"command": "no-such-program", "args": ["--key=hush"], "env": {"KEY": "hush"}},
    "radio": {
        "url": "https://me:hush@radio.example.org/mcp?key=hush",
        "headers": {"X-Key": "hush"},
        "auth": {"type": "bearer", "token": "hush"},
        "playhead": {"send_result_to_ai": True, "allowed_tools": ["tune"], "trust_structured": False},
    },
    "a": {"command": "x"},
    "a__b": {"command": "x"},
    "evm-mcp-server": {"command": "x"},
}
TOOLS = """
modules = ["playhead.config.examples"]

[tools.home__musicPlayer]
description = "Plays \\u001b[2J music."
response_handler = "never_imported:summarise"
metadata = {room = "kitchen"}
stops = []

[tools."home__get_*"]
send_result_to_ai = true

[tools."*__search"]
turn = "continue"
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": SERVERS}))
    (tmp_path / "playhead-tools.toml").write_text(TOOLS)
    (tmp_path / "config" / "playhead").mkdir(parents=True)
    own = {"mcpServers": {"two words": {"command": "x"}}}
    (tmp_path / "config" / "playhead" / "mcp.json").write_text(json.dumps(own))
    return tmp_path


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["explain", *arguments, "--trust", "--json"]) == 0
    out = capsys.readouterr().out
    assert "hush" not in out
    value = json.loads(out)
    assert isinstance(value, dict)
    return value


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["explain", *arguments, "--trust"]) == 2
    return capsys.readouterr().err


@pytest.mark.requirement("CF-16")
@pytest.mark.parametrize(
    ("tool_id", "layer", "delivery"),
    [
        ("home__musicPlayer", "exact", "user"),
        ("home__get_volume", "pattern", "model"),
        ("radio__tune", "server", "model"),
        ("evm-mcp-server__get_balance", "dynamic", "model"),
        ("evm-mcp-server__search", "pattern", "user"),
        ("home__lamp", "none", "plan"),
        ("youtube-transcript__get_transcript", "exact", "model"),
    ],
)
def test_each_layer_is_told_when_it_decides(
    capsys: pytest.CaptureFixture[str], tool_id: str, layer: str, delivery: str
) -> None:
    report = explained(capsys, tool_id)
    assert (report["tool_id"], report["layer"], report["delivery"]) == (tool_id, layer, delivery)
    assert [step["layer"] for step in report["layers"]] == [
        "call",
        "exact",
        "pattern",
        "server",
        "dynamic",
        "none",
    ]
    assert [step["layer"] for step in report["layers"] if step["decided"]] == [layer]
    assert report["error"] is None


@pytest.mark.requirement("CF-16")
def test_for_a_person_it_is_a_page_of_80_columns_with_no_control_in_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["explain", "home__musicPlayer", "--trust"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "home__musicPlayer (tool musicPlayer of server home)",
        "the user gets the text; the model learns of the delivery and ends its turn",
        "the model's calls run unasked, unless the server marks the tool as destructive",
        "",
        "layers, in order (> decides):",
        "  call     no override",
        "> exact    home__musicPlayer in playhead-tools.toml",
        "  pattern  no pattern fits",
        "  server   the entry of home has no send_result_to_ai",
        "  dynamic  home is not listed",
        "  none     no handler, nothing saved, the classifier decides who gets the text",
        "",
        "effective settings, and the layer that sets them:",
        "  description        Plays \\x1b[2J music. (exact)",
        "  system_prompt      none (default)",
        "  save_output        true (exact)",
        "  send_result_to_ai  false (exact)",
        "  response_handler   never_imported:summarise (exact)",
        '  metadata           {"room": "kitchen"} (exact)',
        "  trust_structured   true (default)",
        "  turn               decided by the blocks (default)",
        "  stops              nothing (exact)",
    ]
    assert max(len(line) for line in lines) <= 80


def test_where_nothing_is_configured_nobody_is_said_to_keep_the_text_from_the_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert explained(capsys, "home__lamp")["values"]["send_result_to_ai"] == {"value": None, "layer": None}
    assert run(["explain", "home__lamp", "--trust"]) == 0
    assert "send_result_to_ai  decided by the classifier (default)\n" in capsys.readouterr().out


def test_what_the_servers_entry_says_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    report = explained(capsys, "radio__record")
    assert report["values"]["trust_structured"] == {"value": False, "layer": "server"}
    assert report["values"]["send_result_to_ai"] == {"value": True, "layer": "server"}
    assert report["values"]["save_output"] == {"value": False, "layer": None}
    assert report["allowed"] is False
    assert run(["explain", "radio__record", "--trust"]) == 0
    assert "Calls are refused: the tool is not in allowed_tools of radio." in capsys.readouterr().out


@pytest.mark.requirement("CF-02")
def test_an_id_that_two_tools_share_is_told_with_the_ways_to_say_which(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = refused(capsys, "a__b__c")
    assert (
        "'a__b__c' is ambiguous (2 tools); use `playhead explain a b__c` or `playhead explain a__b c`" in said
    )
    assert explained(capsys, "a", "b__c")["tool"] == "b__c"
    assert explained(capsys, "a__b", "c")["server"] == "a__b"
    assert explained(capsys, "two words__x")["server"] == "two words"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["hmoe__musicPlayer"], "got 'hmoe__musicPlayer'; did you mean 'home'?"),
        (["home"], "'home' is a server; name one of its tools: home__TOOL"),
        (["home__"], "expected SERVER__TOOL with a known server, got 'home__'"),
        (["zzz__x"], "known servers: a, a__b, evm-mcp-server, home, radio, two words, youtube-transcript"),
        (["raido", "tune"], "unknown server 'raido'; did you mean 'radio'?"),
        (["home", ""], "the tool name is empty"),
        (["home__x", "--tool-config", "no.toml"], "no.toml: no such file"),
        (["home__x", "--config", "no.json"], "no.json: no such file"),
    ],
)
def test_what_is_not_known_is_told_with_what_is_near(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert said in refused(capsys, *arguments)


def test_without_any_file_it_says_where_one_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mcp.json").unlink()
    (here / "config" / "playhead" / "mcp.json").unlink()
    (here / "playhead-tools.toml").unlink()
    assert "no servers file was found; give one with --config FILE" in refused(capsys, "home__x")
    report = explained(capsys, "https://me:hush@host.example.org/mcp?k=hush", "x")
    assert (report["server"], report["layer"]) == ("https://host.example.org/mcp", "none")


def test_a_mistake_in_the_file_is_told_with_its_key(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "playhead-tools.toml").write_text("[tools.home__x]\nsend_result_to_ia = true\n")
    said = refused(capsys, "home__x")
    assert "playhead-tools.toml: tools.home__x.send_result_to_ia: is not a setting; did you mean" in said


def test_a_given_tool_configuration_takes_the_place_of_the_one_found(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "other.json").write_text('{"tools": {"home__musicPlayer": {"send_result_to_ai": true}}}')
    report = explained(capsys, "home__musicPlayer", "--tool-config", "other.json")
    assert report["delivery"] == "model"
    assert report["layers"][1]["said"] == "home__musicPlayer in other.json"


@pytest.mark.parametrize(
    ("rules", "action", "if_destructive", "line"),
    [
        (
            "",
            "allow",
            "ask",
            "the model's calls run unasked, unless the server marks the tool as destructive",
        ),
        (
            'rules = [{ server = "home", action = "allow" }]',
            "allow",
            "allow",
            "the model's calls run unasked",
        ),
        ('default = "ask"', "ask", "ask", "each of the model's calls needs approval"),
        ('rules = [{ tool = "stop", action = "deny" }]', "deny", "deny", "the model's calls are refused"),
    ],
)
def test_the_approval_of_calls_is_explained(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    rules: str,
    action: str,
    if_destructive: str,
    line: str,
) -> None:
    (here / "rules.toml").write_text(f"[approvals]\n{rules}\n")
    words = ["home__stop", "--tool-config", str(here / "rules.toml")]
    assert explained(capsys, *words)["approval"] == {"action": action, "if_destructive": if_destructive}
    assert run(["explain", *words, "--trust"]) == 0
    assert line in capsys.readouterr().out.splitlines()


# --- a resource -------------------------------------------------------------------------------------------


def explained_resource(
    capsys: pytest.CaptureFixture[str], shared: SharedServers, *arguments: str
) -> tuple[int, str, str]:
    code = run(["explain", shared.audio, "--resource", "resource://read_from_http", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_form_of_a_resource_and_why(capsys: pytest.CaptureFixture[str], shared: SharedServers) -> None:
    link = called(capsys, shared)
    code, out, _ = explained_resource(capsys, shared, "--description", link["description"], "--json")
    assert code == 0
    told = json.loads(out)
    assert told["strategy"] == "uri-template"
    assert told["strategy_reason"].startswith("the server lists the template 'resource://read_from_http{?url")
    assert sorted(form["strategy"] for form in told["forms"]) == sorted(STRATEGY_NAMES)
    turns = [(form["offered"], form["tried"]) for form in told["forms"] if form["strategy"] != "whole"]
    assert turns == sorted(turns, reverse=True), "in the order in which they are tried"
    offered = {form["strategy"]: form["reason"] for form in told["forms"] if form["offered"]}
    assert offered["arguments"] == f"the description is a URL ({link['description']})"

    code, out, _ = explained_resource(
        capsys, shared, "--description", link["description"], "--strategy", "arguments"
    )
    assert code == 0
    assert "is read with arguments: set by --strategy" in out
    assert "> arguments " in out
    assert "  params        a small read: the server does not declare resourceReadChunking" in out


def called(capsys: pytest.CaptureFixture[str], shared: SharedServers) -> dict[str, Any]:
    assert (
        run(["call", shared.audio, "musicPlayer", "query=First Light", "--no-play", "--trust", "--json"]) == 0
    )
    link = json.loads(capsys.readouterr().out)["result"]["content"][0]
    assert isinstance(link, dict)
    return link


def test_a_resource_that_cannot_be_read_shows_its_forms_and_what_was_tried(
    capsys: pytest.CaptureFixture[str], shared: SharedServers
) -> None:
    code, out, err = explained_resource(capsys, shared)
    assert code == 1
    assert "  query " in out
    assert "> " not in out.partition("\n")[2]
    assert "tried query (-32602: url is missing" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("home", "tune", "--resource", "x:"), "either TOOL or --resource"),
        (("home__tune", "--strategy", "whole"), "go with --resource"),
        (("home__tune", "--description", "x"), "go with --resource"),
    ],
)
def test_options_that_do_not_go_together(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert run(["explain", *arguments, "--trust"]) == 2
    assert said in capsys.readouterr().err
