"""The page of a release on a registry has absolute links, URLs and a contact, all from one setting."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from email import message_from_string
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.wheels.package_page import ROOT, SettingError, package_page, settings, write

REPOSITORY = "https://example.org/music/playhead"
MATURIN = Path(sys.executable).with_name("maturin")


def pyproject(repository: str = REPOSITORY, contact: str = "security@example.org") -> str:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    text, count = re.subn(r'^repository = ".*"', f'repository = "{repository}"', text, flags=re.M)
    text, again = re.subn(r'^contact = ".*"', f'contact = "{contact}"', text, flags=re.M)
    assert count == again == 1
    return text


def addresses(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        yield from (str(token.attrs[name]) for name in ("href", "src") if name in token.attrs)
        if token.type in ("html_inline", "html_block"):
            yield from re.findall(r'(?:href|src|srcset)="([^"]+)"', token.content)
        yield from addresses(token.children or [])


@pytest.mark.skipif(not MATURIN.exists(), reason="needs maturin: make")
def test_the_page_of_a_release_has_absolute_links_and_every_url(tmp_path: Path) -> None:
    for name in ("Cargo.toml", "Cargo.lock", "README.md", "SECURITY.md", "THIRD-PARTY.md"):
        shutil.copy(ROOT / name, tmp_path)
    for path in ROOT.glob("LICENSE-*"):
        shutil.copy(path, tmp_path)
    for name in ("rust", "benches", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(
        ROOT / "python", tmp_path / "python", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    (tmp_path / "pyproject.toml").write_text(pyproject(), "utf-8")
    write(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    command = [str(MATURIN), "pep517", "write-dist-info", "--metadata-directory", str(out)]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (path,) = out.glob("*/METADATA")
    data = message_from_string(path.read_text("utf-8"))
    urls = dict(str(each).split(", ", 1) for each in data.get_all("Project-URL", []))
    tag = f"v{data['Version']}"
    assert urls == {
        "Repository": REPOSITORY,
        "Documentation": f"{REPOSITORY}/blob/{tag}/docs/README.md",
        "Changelog": f"{REPOSITORY}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{REPOSITORY}/issues",
    }
    assert data["Author"] == "the playhead developers"
    assert data["Maintainer-email"] == "security@example.org"
    assert "<security@example.org>" in (tmp_path / "SECURITY.md").read_text("utf-8")
    description = str(data.get_payload())
    linked = list(addresses(MarkdownIt().parse(description)))
    assert f"{REPOSITORY}/blob/{tag}/CONTRIBUTING.md" in linked
    assert [each for each in linked if not each.startswith(("https://", "#"))] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](docs/a.md#b)", "[a](https://h/o/p/blob/v1/docs/a.md#b)"),
        ("![a](docs/a.png)", "![a](https://h/o/p/raw/v1/docs/a.png)"),
        ("[![a](a.svg)](b.md)", "[![a](https://h/o/p/raw/v1/a.svg)](https://h/o/p/blob/v1/b.md)"),
        ('<img src="a.svg"> <a href="b.md">', None),
        (
            "[a](https://x.org) [b](#part) [c](mailto:x@y.org)",
            "[a](https://x.org) [b](#part) [c](mailto:x@y.org)",
        ),
        (
            "<!-- until the release -->\nclone\n<!-- after the release\ninstall\n-->\nmore\n",
            "install\nmore\n",
        ),
    ],
)
def test_links_lead_to_the_files_of_the_tag(text: str, expected: str | None) -> None:
    expected = expected or '<img src="https://h/o/p/raw/v1/a.svg"> <a href="https://h/o/p/blob/v1/b.md">'
    assert package_page(text, "https://h/o/p", "v1") == expected


@pytest.mark.parametrize(
    ("repository", "contact", "message"),
    [
        (
            "",
            "a@b.org",
            r"\[tool\.playhead\] repository is not set: expected the https URL of the repository",
        ),
        (REPOSITORY, "", r"\[tool\.playhead\] contact is not set: expected an e-mail address"),
        ("http://h/o/p", "a@b.org", r"expected the https URL of the repository, got 'http://h/o/p'"),
        (REPOSITORY, "nobody", "expected an e-mail address for reports of vulnerabilities, got 'nobody'"),
    ],
)
def test_a_setting_that_is_missing_or_of_no_use_is_named(repository: str, contact: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        settings(pyproject(repository, contact))
