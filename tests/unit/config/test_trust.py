"""Consent to a directory's files: what is hashed, stored, shown and asked again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from playhead.config.servers import find_servers, project_servers, resolve_target
from playhead.config.tools import ApprovalPolicy, ApprovalRule, default_approval_policy
from playhead.config.trust import Trust, UntrustedError, project_files
from playhead.errors import ConfigError

NAMES = ("mcp.json",)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "clone"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("KEY", "hush")
    monkeypatch.setenv("OTHER", "secret")
    return directory


def servers(here: Path, entry: object, *, name: str = "it") -> None:
    (here / "mcp.json").write_text(json.dumps({"mcpServers": {name: entry}}))


def accept(*names: str) -> None:
    for file in project_files(names or NAMES):
        Trust().remember(file, accepted=True)


def is_accepted() -> bool:
    file = Trust().project_file(NAMES)
    assert file is not None
    try:
        return Trust().accepts(file)
    except UntrustedError:
        return False


def test_a_file_is_used_once_it_is_accepted_and_not_before(here: Path) -> None:
    servers(here, {"command": "x"})
    with pytest.raises(UntrustedError, match=r"mcp\.json: this directory is not trusted.*`playhead trust"):
        find_servers()
    with pytest.raises(UntrustedError):
        resolve_target("it")
    accept()
    assert find_servers()["it"].command == ("x",)
    assert resolve_target("it").command == ("x",)


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "python", "args": ["server.py"]},
        {"command": "./server.py"},
        {"command": "x", "args": ["--script=server.py"]},
        {"command": "python", "args": ["-m", "server"]},
        {"command": "sh", "args": ["-c", "exec ./server.py"]},
        {"command": "x", "env": {"START": "server.py"}},
        {"command": "x", "args": ["nested.py"], "cwd": "sub"},
    ],
)
def test_a_change_of_a_file_that_it_names_asks_again(here: Path, entry: object) -> None:
    (here / "sub").mkdir()
    named = here / ("sub/nested.py" if "nested" in str(entry) else "server.py")
    named.write_text("one")
    servers(here, entry)
    accept()
    assert is_accepted()
    named.write_text("two")
    assert not is_accepted()
    accept()
    assert is_accepted()
    named.unlink()
    assert not is_accepted()


@pytest.mark.parametrize(
    ("source", "imported"),
    [
        ("import helper", "src/helper.py"),
        ("import os, helper as h", "src/helper.py"),
        ("from helper import run", "src/helper.py"),
        ("def late():\n    import helper", "src/helper.py"),
        ("import helper", "helper.py"),
        ("import pack.inner", "src/pack/inner.py"),
        ("import pack.inner", "src/pack/__init__.py"),
        ("from pack import inner", "src/pack/inner.py"),
        ("from . import helper", "src/helper.py"),
        ("from .helper import run", "src/helper.py"),
        ("from ..other import run", "other.py"),
    ],
)
def test_a_change_of_a_file_that_one_of_them_imports_asks_again(
    here: Path, source: str, imported: str
) -> None:
    (here / "src").mkdir()
    (here / "src" / "server.py").write_text("import middle\nimport no_such_thing\n")
    (here / "src" / "middle.py").write_text(f"import server\n{source}\n")  # and around again
    path = here / imported
    path.parent.mkdir(exist_ok=True)
    path.write_text("one")
    (here / "src" / "unrelated.py").write_text("one")
    servers(here, {"command": "python", "args": ["src/server.py"]})
    accept()
    (here / "src" / "unrelated.py").write_text("two")
    assert is_accepted()
    path.write_text("two")
    assert not is_accepted()


def write(path: Path, text: str = "one") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    "added",
    [
        *("src/helper.so", "src/helper.cpython-399-x86_64-linux-gnu.so", "src/helper.pyd", "src/helper.pyc"),
        *("src/helper/__init__.py", "src/pack/inner.so", "src/pack/inner/__init__.py", "helper.py"),
        *("src/email.py", "src/email/__init__.py", "src/anyio.py", "src/anyio.abi3.so"),
    ],
)
def test_a_new_file_that_python_would_load_instead_asks_again(here: Path, added: str) -> None:
    write(here / "src" / "server.py", "import helper, pack.inner\n")
    for name in ("helper.py", "pack/__init__.py", "pack/inner.py"):
        write(here / "src" / name)
    servers(here, {"command": "python", "args": ["src/server.py"]})
    accept()
    assert is_accepted()
    write(here / added)
    assert not is_accepted()
    accept()
    (here / added).unlink()
    assert not is_accepted()


@pytest.mark.parametrize(
    "added",
    [
        *("src/server.log", "src/data.json", "src/songs/one.mp3", "src/songs/label.py", "src/build-2.py"),
        *("src/__pycache__/helper.cpython-311.pyc", "src/pack/other.py", "setup.py", "docs/conf.py"),
    ],
)
def test_a_new_file_that_hides_no_module_does_not_ask_again(here: Path, added: str) -> None:
    write(here / "src" / "server.py", "import helper, pack\n")
    write(here / "src" / "helper.py")
    write(here / "src" / "pack" / "__init__.py")
    servers(here, {"command": "python", "args": ["src/server.py"]})
    accept()
    write(here / added)
    assert is_accepted()


@pytest.mark.parametrize(
    ("entry", "added", "asks"),
    [
        ({"command": "python", "args": ["-m", "pack.server"]}, "anyio.py", True),
        ({"command": "python", "args": ["-m", "pack.server"]}, "pack/anyio.py", False),
        ({"command": "/usr/bin/python3", "args": ["-m", "installed"]}, "installed.py", True),
        ({"command": "python", "args": ["-um", "installed"]}, "anyio.py", True),
        ({"command": "python", "args": ["-m", "installed"], "cwd": "sub"}, "sub/anyio.py", True),
        ({"command": "python", "args": ["-c", "import installed"]}, "anyio.py", True),
        ({"command": "sh", "args": ["-c", "exec uv run -m installed"]}, "anyio.py", True),
        ({"command": "installed", "env": {"PYTHONPATH": "lib:sub"}}, "lib/anyio.py", True),
        ({"command": "./run"}, "anyio.py", True),
        ({"command": "python", "args": ["sub"]}, "sub/anyio.py", True),
        ({"command": "sh", "args": ["-c", "exec node server.js"]}, "anyio.py", False),
        ({"command": "node", "args": ["server.js"]}, "anyio.py", False),
    ],
)
def test_new_modules_count_where_a_servers_python_searches(
    here: Path, entry: object, added: str, asks: bool
) -> None:
    for name in ("pack/__init__.py", "pack/server.py", "sub/__main__.py", "lib/own.py", "server.js"):
        write(here / name)
    write(here / "run", "#!/usr/bin/env python3\n")
    servers(here, entry)
    accept()
    assert is_accepted()
    write(here / added)
    assert is_accepted() is not asks


def test_a_file_that_hides_a_standard_module_is_hashed_although_nothing_of_the_directory_imports_it(
    here: Path,
) -> None:
    write(here / "server.py", "import installed\n")
    write(here / "random.py", "import helper\n")
    for name in ("helper.py", "email/__init__.py", "email/message.py", "test/__init__.py", "other.py"):
        write(here / name)
    servers(here, {"command": "python", "args": ["server.py"]})
    (file,) = project_files(NAMES)
    assert {name for name in file.fingerprint if name.endswith(".py")} == {
        *("server.py", "random.py", "helper.py", "email/__init__.py", "email/message.py"),
    }


def test_new_modules_beside_a_handler_do_not_ask_again(here: Path) -> None:
    """Playhead loads a handler by its path, without its directory on the search path."""
    write(here / "handler.py")
    write(here / "playhead-tools.toml", 'modules = ["handler.py"]\n')
    (file,) = project_files(("playhead-tools.toml",))
    before = file.fingerprint
    write(here / "email.py")
    assert file.fingerprint == before


def test_a_file_that_python_cannot_parse_is_hashed_and_imports_nothing(here: Path) -> None:
    (here / "server.py").write_bytes(b"import helper\n\xff\0(")
    (here / "helper.py").write_text("one")
    servers(here, {"command": "python", "args": ["server.py"]})
    (file,) = project_files(NAMES)
    assert set(file.fingerprint) == {"mcp.json", "server.py", "./"}


def test_an_import_reaches_no_file_outside_the_directory(here: Path) -> None:
    (here.parent / "outside.py").write_text("one")
    (here / "server.py").write_text("from .. import outside\nfrom ... import outside\nimport outside\n")
    servers(here, {"command": "python", "args": ["server.py"]})
    (file,) = project_files(NAMES)
    assert set(file.fingerprint) == {"mcp.json", "server.py", "./"}


def test_a_change_of_the_file_itself_asks_again_and_another_directory_is_another_question(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers(here, {"command": "x"})
    accept()
    other = tmp_path / "other"
    other.mkdir()
    (other / "mcp.json").write_bytes((here / "mcp.json").read_bytes())
    servers(here, {"command": "y"})
    assert not is_accepted()
    monkeypatch.chdir(other)
    assert not is_accepted()


def test_a_refusal_is_remembered_and_said(here: Path) -> None:
    servers(here, {"command": "x"})
    (file,) = project_files(NAMES)
    Trust().remember(file, accepted=False)
    said: list[str] = []
    assert find_servers(trust=Trust(notice=said.append)) == {}
    assert said == [f"{here / 'mcp.json'} is not used, as you decided; `playhead trust` changes that"]


def test_the_answers_are_the_users_alone(here: Path, tmp_path: Path) -> None:
    servers(here, {"command": "x"})
    accept()
    store = tmp_path / "config" / "playhead" / "trust.json"
    assert store.stat().st_mode & 0o077 == 0
    store.write_text("{")
    with pytest.raises(ConfigError, match=r"trust\.json: not valid JSON"):
        find_servers()


def test_only_variables_that_the_file_names_are_expanded_in_it(here: Path) -> None:
    servers(here, {"url": "http://h/", "headers": {"A": "${KEY}"}})
    (file,) = project_files(NAMES)
    assert file.variables == {"KEY"}
    assert ("read", "environment variables KEY") in file.effects
    assert project_servers(file, environment={"KEY": "hush"})["it"].headers == {"A": "hush"}


def test_what_a_file_would_do_is_said(here: Path) -> None:
    (here / "mcp.json").write_text(
        json.dumps(
            {
                "mcpServers": {
                    "a": {"command": "sh", "args": ["-c", "rm x"], "env": {"E": "1"}},
                    "b": {
                        "url": "https://h/",
                        "headers": {"H": "1"},
                        "tls": {"verify": False},
                        "playhead": {"cache": "valkey://c"},
                    },
                }
            }
        )
    )
    (here / "playhead-tools.toml").write_text(
        'modules = ["evil.py"]\n[tools.a__b]\nresponse_handler = "evil.py:f"\n'
        '[approvals]\ndefault = "allow"\n'
    )
    found = [effect for file in project_files((*NAMES, "playhead-tools.toml")) for effect in file.effects]
    assert found == [
        ("start", "a: sh -c 'rm x'"),
        ("pass on", "a: environment E"),
        ("connect to", "b: https://h/"),
        ("pass on", "b: headers H"),
        ("store", "b: what it reads, in valkey://c"),
        ("allow", "b: unverified TLS"),
        ("run", "module evil.py"),
        ("run", "a__b: evil.py:f"),
        ("set approvals", '{"default": "allow"} (yours stay in force)'),
    ]


@pytest.mark.parametrize("name", ["https://h/mcp", "node server.js", "./run", "a'b"])
def test_a_name_that_looks_like_a_url_or_a_command_line_is_refused(here: Path, name: str) -> None:
    servers(here, {"command": "evil"}, name=name)
    accept()
    with pytest.raises(ConfigError, match="looks like a URL or a command line"):
        find_servers()
    if name != "a'b":
        assert resolve_target(name).command != ("evil",)


def test_a_directory_can_only_tighten_approvals(here: Path, tmp_path: Path) -> None:
    own = tmp_path / "config" / "playhead"
    own.mkdir(parents=True)
    (own / "tools.toml").write_text(
        '[approvals]\ndefault = "ask"\n[[approvals.rules]]\ntool = "rm"\naction = "deny"\n'
    )
    (here / "playhead-tools.toml").write_text(
        '[approvals]\ndefault = "allow"\n[[approvals.rules]]\ntool = "rm"\naction = "allow"\n'
        '[[approvals.rules]]\ntool = "send"\naction = "deny"\n'
    )
    policy = default_approval_policy(trust=Trust(everything=True))
    assert policy.action("s", "rm", destructive=False) == "deny"
    assert policy.action("s", "other", destructive=False) == "ask"
    assert policy.action("s", "send", destructive=False) == "deny"


def test_a_directorys_rule_does_not_allow_what_says_that_it_destroys() -> None:
    laxer = ApprovalPolicy(rules=(ApprovalRule(action="allow", tool="*"),))
    assert ApprovalPolicy().tightened(laxer).action("s", "t", destructive=True) == "ask"


def test_the_users_own_configuration_directory_needs_no_consent(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "config" / "playhead"
    own.mkdir(parents=True)
    (own / "mcp.json").write_text(json.dumps({"mcpServers": {"it": {"command": "x"}}}))
    monkeypatch.chdir(own)
    assert find_servers()["it"].command == ("x",)
