"""Tool configuration files: TOML and JSON say the same, and every mistake is told with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from playhead.config.document import MAX_FILE_BYTES
from playhead.config.tools import (
    Delivery,
    HandlerReference,
    Layer,
    ToolConfigs,
    ToolConfigSources,
    create_dynamic_config,
    create_id_config,
    create_tool_config,
    default_sources,
    default_tool_file,
    load_tool_configs,
)
from playhead.config.trust import Trust, UntrustedError
from playhead.errors import ConfigError

TOML = """
[tools."home__musicPlayer"]
description = "Plays music. ${NOT_EXPANDED} ~"
system_prompt = "Play, do not talk."
save_output = false
send_result_to_ai = true
response_handler = "my_tools.music:Handlers.summarise"
metadata = {tags = ["music"], depth = {n = 1}}
trust_structured = false
turn = "stop"
stops = ["audio", "text"]

[tools."a__b__c"]
server = "a__b"
tool = "c"

[tools."home__*"]
send_result_to_ai = true

[dynamic]
servers = ["evm-mcp-server", "other"]
save_output = false
"""
AS_JSON = {
    "tools": {
        "home__musicPlayer": {
            "description": "Plays music. ${NOT_EXPANDED} ~",
            "system_prompt": "Play, do not talk.",
            "save_output": False,
            "send_result_to_ai": True,
            "response_handler": "my_tools.music:Handlers.summarise",
            "metadata": {"tags": ["music"], "depth": {"n": 1}},
            "trust_structured": False,
            "turn": "stop",
            "stops": ["audio", "text"],
        },
        "a__b__c": {"server": "a__b", "tool": "c"},
        "home__*": {"send_result_to_ai": True},
    },
    "dynamic": {"servers": ["evm-mcp-server", "other"], "save_output": False},
}


def written(path: Path, content: str | bytes | dict[str, Any]) -> Path:
    data = json.dumps(content) if isinstance(content, dict) else content
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def refused(path: Path, content: str | bytes | dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_tool_configs(written(path, content))
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.mark.requirement("CF-11")
@pytest.mark.parametrize(("name", "content"), [("t.toml", TOML), ("t.json", AS_JSON), ("T.JSON", AS_JSON)])
def test_toml_and_json_say_the_same(tmp_path: Path, name: str, content: Any) -> None:
    path = written(tmp_path / name, content)
    handler = HandlerReference(
        module="my_tools.music",
        function="Handlers.summarise",
        where=f"{path}: tools.home__musicPlayer.response_handler",
        folder=tmp_path,
    )
    found = load_tool_configs(path)
    assert list(found) == [
        create_id_config(
            "home__musicPlayer",
            description="Plays music. ${NOT_EXPANDED} ~",
            system_prompt="Play, do not talk.",
            save_output=False,
            send_result_to_ai=True,
            response_handler=handler,
            metadata={"tags": ["music"], "depth": {"n": 1}},
            trust_structured=False,
            turn="stop",
            stops={"audio", "text"},
        ),
        create_tool_config("a__b", "c"),
        create_id_config("home__*", send_result_to_ai=True),
        create_dynamic_config("evm-mcp-server", save_output=False),
        create_dynamic_config("other", save_output=False),
    ]
    assert {config.source for config in found} == {str(path)}


def test_an_empty_file_configures_nothing_and_a_mark_in_front_is_no_text(tmp_path: Path) -> None:
    assert len(load_tool_configs(written(tmp_path / "t.toml", ""))) == 0
    assert len(load_tool_configs(written(tmp_path / "t.json", b"\xef\xbb\xbf{}"))) == 0


@pytest.mark.requirement("CF-12")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"tool": {}}, "tool: is not a setting; did you mean 'tools'?"),
        ({"tools": []}, "tools: expected an object, got an array"),
        ({"tools": {"home__x": 1}}, "tools.home__x: expected an object, got a number"),
        (
            {"tools": {"home__x": {"send_result_to_ia": True}}},
            "tools.home__x.send_result_to_ia: is not a setting; did you mean 'send_result_to_ai'?",
        ),
        (
            {"tools": {"home__x": {"save_output": "no"}}},
            "tools.home__x.save_output: expected true or false, got a string",
        ),
        (
            {"tools": {"home__x": {"description": ["a"]}}},
            "tools.home__x.description: expected a string, got an array",
        ),
        (
            {"tools": {"home__x": {"turn": "end"}}},
            "tools.home__x.turn: expected one of continue, stop, got 'end'",
        ),
        (
            {"tools": {"home__x": {"stops": ["text", "imgae"]}}},
            "tools.home__x.stops[1]: expected one of audio, link, blob, structured, text, image, reference,"
            " embedded_text, unknown, got 'imgae'; did you mean 'image'?",
        ),
        (
            {"tools": {"home__x": {"stops": ["smell"]}}},
            "tools.home__x.stops[0]: expected one of audio, link, blob, structured, text",
        ),
        ({"tools": {"home__x": {"stops": "audio"}}}, "tools.home__x.stops: expected an array, got a string"),
        (
            {"tools": {"home__x": {"metadata": "a"}}},
            "tools.home__x.metadata: expected an object, got a string",
        ),
        (
            {"tools": {"home__x": {"response_handler": "summarise"}}},
            "tools.home__x.response_handler: expected 'package.module:function' or 'file.py:function', got"
            " 'summarise'",
        ),
        (
            {"tools": {"home__x": {"response_handler": "my tools:f"}}},
            "tools.home__x.response_handler: expected a module's name (package.module) or a path that ends in"
            " .py, got 'my tools'",
        ),
        ({"tools": {"home__x": {"server": "home"}}}, "tools.home__x: expected both `server` and `tool`"),
        (
            {"tools": {"home__x": {"server": "home", "tool": "y"}}},
            "tools.home__x: expected the key 'home__y' for the server 'home' and the tool 'y'",
        ),
        ({"tools": {"__x": {"server": "", "tool": "x"}}}, "tools.__x: `server` and `tool` cannot be empty"),
        (
            {"tools": {"home": {}}},
            "tools.home: expected a key like 'SERVER__TOOL', or a pattern like 'home__*'",
        ),
        ({"tools": {"": {}}}, "tools.: expected a key like 'SERVER__TOOL', or a pattern like 'SERVER__*'"),
        ({"dynamic": {"servers": "a"}}, "dynamic.servers: expected an array, got a string"),
        ({"dynamic": {"servers": [1]}}, "dynamic.servers[0]: expected a string, got a number"),
        (
            {"dynamic": {"servers": ["a", "a"]}},
            "dynamic.servers[1]: expected another server's name, got 'a' again",
        ),
        (
            {"dynamic": {"servers": [""]}},
            "dynamic.servers[0]: expected another server's name, got an empty string",
        ),
        ({"dynamic": {"save_output": True}}, "dynamic: the key 'servers' is missing; list the servers"),
        ({"dynamic": {"server": ["a"]}}, "dynamic.server: is not a setting; did you mean 'servers'?"),
        ({"modules": "a"}, "modules: expected an array, got a string"),
        ({"modules": ["a b"]}, "modules[0]: expected a module's name (package.module)"),
        ({"modules": ["..x"]}, "modules[0]: expected a module's name (package.module)"),
        (
            {"modules": ["no_such_module_here"]},
            "modules[0]: can't import no_such_module_here (ModuleNotFoundError: No module named",
        ),
        ({"modules": ["missing.py"]}, "modules[0]: "),
    ],
)
def test_a_mistake_is_told_with_its_file_and_key(tmp_path: Path, content: dict[str, Any], said: str) -> None:
    assert refused(tmp_path / "t.json", content).startswith(said)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.json", "{", "not valid JSON (Expecting property name"),
        ("t.json", "[]", "expected an object, got an array"),
        ("t.json", '{"tools": {"a__b": {}, "a__b": {}}}', "tools: the key 'a__b' is given twice; keep one"),
        (
            "t.json",
            '{"tools": {"a__b": {"metadata": {"x": NaN}}}}',
            "tools.a__b.metadata.x: expected a finite",
        ),
        ("t.json", "[" * 100_000, "nested too deeply"),
        ("t.toml", "[tools", "not valid TOML ("),
        ("t.toml", "[tools.a__b]\n[tools.a__b]\n", "not valid TOML (Cannot declare ('tools', 'a__b') twice"),
        ("t.toml", "x = " + "[" * 100_000, "nested too deeply"),
        ("t.toml", b"# fine\nx = '\xff'\n", "not UTF-8 (line 2, byte 12)"),
        ("t.toml", b"#" * (MAX_FILE_BYTES + 1), "expected a configuration file of at most 4 MiB, got more"),
        (
            "t.toml",
            "[tools.a__b.metadata]\nday = 2026-01-01\n",
            "tools.a__b.metadata.day: expected a JSON value, got a date",
        ),
        (
            "t.toml",
            "[tools.a__b.metadata]\nx = [nan]\n",
            "tools.a__b.metadata.x[0]: expected a finite number",
        ),
    ],
)
def test_a_file_that_is_none_is_told_what_it_is(
    tmp_path: Path, name: str, content: str | bytes, said: str
) -> None:
    assert refused(tmp_path / name, content).startswith(said)


def test_a_file_that_is_not_there_or_is_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no.toml: no such file; create it"):
        load_tool_configs(tmp_path / "no.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_tool_configs(tmp_path)


# --- what it names ----------------------------------------------------------------------------------


def test_a_handler_is_not_imported_by_reading_the_file(tmp_path: Path) -> None:
    (tmp_path / "boom.py").write_text("raise SystemExit(9)")
    path = written(tmp_path / "t.json", {"tools": {"a__b": {"response_handler": "boom.py:f"}}})
    config = load_tool_configs(path).resolve("a", "b").config
    assert config is not None
    assert str(config.response_handler) == "boom.py:f"


@pytest.mark.requirement("CF-10")
def test_the_file_wins_over_the_modules_that_it_lists(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from playhead.config.tools import create_tool_config\n"
        "TOOL_CONFIGS = [create_tool_config('a', 'b', description='module'), create_tool_config('a', 'c')]\n"
    )
    content = {"modules": ["mine.py"], "tools": {"a__b": {"server": "a", "tool": "b", "description": "file"}}}
    found = load_tool_configs(written(tmp_path / "t.json", content))
    config = found.resolve("a", "b").config
    assert config is not None
    assert config.description == "file"
    assert found.resolve("a", "c").looked_at[1].said == "a__c in mine.py"


def test_an_id_in_the_file_wins_over_the_pair_in_a_module_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from playhead.config.tools import create_tool_config\n"
        "TOOL_CONFIGS = create_tool_config('a', 'b', description='module')\n"
    )
    content = {"modules": ["mine.py"], "tools": {"a__b": {"description": "file"}}}
    config = load_tool_configs(written(tmp_path / "t.json", content)).resolve("a", "b").config
    assert config is not None
    assert config.description == "file"


# --- where it is ------------------------------------------------------------------------------------


def test_the_users_file_wins_over_an_accepted_one_of_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "config" / "playhead").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert default_tool_file(environment) is None
    theirs = written(tmp_path / "config" / "playhead" / "tools.json", "{}")
    assert default_tool_file(environment) == theirs
    written(tmp_path / "here" / "playhead-tools.toml", "[tools.a__b]\n[tools.a__c]\n")
    with pytest.raises(UntrustedError, match="not trusted"):
        default_sources(environment=environment)
    trust = Trust(environment=environment, everything=True)
    found = default_sources(environment=environment, trust=trust).load()
    assert found.resolve("a", "b").looked_at[1].said == "a__b in playhead-tools.toml"
    written(theirs, '{"tools": {"a__b": {}}}')
    found = default_sources(environment=environment, trust=trust).load()
    assert found.resolve("a", "b").looked_at[1].said == f"a__b in {theirs}"
    assert found.resolve("a", "c").layer is Layer.EXACT
    assert default_sources(theirs, environment=environment).project is None


def test_two_files_in_one_place_are_told_rather_than_one_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "playhead-tools.toml", "")
    written(tmp_path / "playhead-tools.json", "{}")
    with pytest.raises(ConfigError, match=r"playhead-tools.toml: playhead-tools.json exists too; keep one"):
        default_sources(environment={"XDG_CONFIG_HOME": "/nonexistent"})


@pytest.mark.requirement("CF-13")
def test_what_was_written_since_is_read_on_demand_and_a_mistake_leaves_what_was_loaded(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "t.toml", "[tools.a__b]\nsend_result_to_ai = true\n")
    sources = ToolConfigSources(file=path, entry_points=False)
    before = sources.load()
    written(path, "[tools.a__b]\nsend_result_to_ai = false\n")
    after = sources.load()
    assert before.resolve("a", "b").delivery is Delivery.MODEL
    assert after.resolve("a", "b").delivery is Delivery.USER
    written(path, "[tools")
    with pytest.raises(ConfigError):
        sources.load()
    assert after.resolve("a", "b").layer is Layer.EXACT


def test_nothing_at_all_is_no_configuration() -> None:
    assert len(ToolConfigSources(entry_points=False).load()) == 0
    assert repr(ToolConfigs([create_tool_config("a", "b")])) == "ToolConfigs(a__b)"
