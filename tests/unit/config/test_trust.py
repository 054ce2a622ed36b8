"""Consent to a directory's files: what is hashed, stored, shown and asked again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from playhead.config.servers import find_servers, project_servers, resolve_target
from playhead.config.tools import ApprovalPolicy, ApprovalRule, default_approval_policy
from playhead.config.trust import MOST_BYTES, MOST_FILES, Trust, UntrustedError, project_files
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


def write(path: Path, text: str = "one") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "server.py",
            "src/deep/helper.so",
            "data.json",
            "run.sh",
            "notes",
            "email/__init__.py",
            "song.py.mp3x",
        ),
        *("src/.hidden", "src/__pycache__/helper.py", "git/.gitattributes"),
    ],
)
def test_a_change_below_the_directory_asks_again(here: Path, name: str) -> None:
    servers(here, {"command": "x"})
    accept()
    for text in ("one", "two", None):
        assert is_accepted()
        if text is None:
            (here / name).unlink()
        else:
            write(here / name, text)
        assert not is_accepted()
        accept()
    assert is_accepted()


def test_a_new_name_for_the_same_content_asks_again(here: Path) -> None:
    servers(here, {"command": "x"})
    write(here / "helper.py")
    accept()
    (here / "helper.py").rename(here / "http.py")  # in the same place of the order
    assert not is_accepted()


@pytest.mark.parametrize(
    "name",
    [
        *(".git/HEAD", ".venv/bin/python", "web/node_modules/a/index.js", "song.mp3", "cover.PNG"),
        "src/__pycache__/helper.cpython-311.pyc",
    ],
)
def test_what_is_large_inert_or_changes_by_itself_does_not_ask_again(here: Path, name: str) -> None:
    servers(here, {"command": "x"})
    accept()
    (here / name).parent.mkdir(parents=True, exist_ok=True)
    (here / name).write_bytes(b"\xa7\r\r\n\0\0\0\0" + bytes(8))
    assert is_accepted()


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ({"command": ".venv/bin/python"}, ".venv/lib/helper.py"),
        ({"command": "node", "args": ["node_modules/a/index.js"]}, "node_modules/b/index.js"),
        ({"command": "python", "args": ["--run=evil.mp3"]}, "evil.mp3"),
    ],
)
def test_it_counts_if_the_file_names_it(here: Path, entry: object, name: str) -> None:
    servers(here, entry)
    accept()
    write(here / name)
    assert not is_accepted()


def test_compiled_python_that_is_not_checked_against_its_source_asks_again(here: Path) -> None:
    servers(here, {"command": "x"})
    accept()
    write(here / "__pycache__" / "helper.cpython-311.pyc")
    (here / "__pycache__" / "helper.cpython-311.pyc").write_bytes(b"\xa7\r\r\n\1\0\0\0" + bytes(8))
    assert not is_accepted()


def test_an_executable_with_the_name_of_music_asks_again(here: Path) -> None:
    servers(here, {"command": "x"})
    accept()
    write(here / "song.mp3")
    (here / "song.mp3").chmod(0o755)
    assert not is_accepted()


def test_a_link_counts_with_its_target_and_what_that_holds(here: Path, tmp_path: Path) -> None:
    servers(here, {"command": "x"})
    write(tmp_path / "outside.py")
    (here / "linked.py").symlink_to(tmp_path / "outside.py")
    (here / "package").symlink_to(tmp_path)  # not followed
    (here / "broken").symlink_to("nowhere")
    accept()
    assert is_accepted()
    write(tmp_path / "outside.py", "two")
    assert not is_accepted()
    accept()
    (here / "package").unlink()
    (here / "package").symlink_to(tmp_path / "config")
    assert not is_accepted()


@pytest.mark.parametrize("too_much", ["files", "bytes"])
def test_a_directory_that_is_too_large_is_refused_before_anybody_is_asked(here: Path, too_much: str) -> None:
    servers(here, {"command": "x"})
    if too_much == "files":
        for number in range(MOST_FILES):
            (here / str(number)).touch()
    else:
        with (here / "large").open("wb") as file:
            file.truncate(MOST_BYTES)
    with pytest.raises(ConfigError, match="use --trust for one command") as caught:
        find_servers()
    assert not isinstance(caught.value, UntrustedError)
    assert find_servers(trust=Trust(everything=True))["it"].command == ("x",)


def test_an_answer_of_an_earlier_version_asks_again(here: Path, tmp_path: Path) -> None:
    servers(here, {"command": "x"})
    accept()
    store = tmp_path / "config" / "playhead" / "trust.json"
    answers = json.loads(store.read_text())
    answers["answers"][str(here / "mcp.json")]["files"] = {"mcp.json": "00", "./": "00"}
    store.write_text(json.dumps(answers))
    assert not is_accepted()


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
                        "playhead": {"cache": "valkey://c", "allow_paths": ["/home/me"]},
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
        ("allow", "b: playing files below /home/me"),
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
