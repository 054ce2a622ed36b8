"""Write the project's addresses into what a release publishes: `python -m tests.wheels.package_page`.

`[tool.playhead]` of pyproject.toml has the repository and the contact, once. Links of README.md become
absolute at the tag, since a registry has no files beside its page; pyproject.toml gets its URLs, SECURITY.md
its contact, and the README installs from the registry instead of a clone. The release workflow runs it in its
own checkout before it builds. Status 1 while a setting is missing.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import tomlkit

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "repository": "the https URL of the repository",
    "contact": "an e-mail address for reports of vulnerabilities",
}
ADDRESS = re.compile(r"""(\]\(|\b(?:src|href)=")(?!https?:|mailto:|#)([^)\s"]+)""")
PICTURE = re.compile(r"\.(svg|png|gif|jpe?g)$")
CLONE = re.compile(r"<!-- until the release -->\n.*?<!-- after the release\n(.*?)-->\n", re.DOTALL)
"""Two blocks of the README: the first is visible now, the second in a comment until there is a release."""


class SettingError(Exception):
    """A setting is missing or of no use; `str()` says which and where it belongs."""


def settings(pyproject: str) -> tuple[str, str]:
    """The repository, without a final slash, and the contact."""
    table = tomllib.loads(pyproject).get("tool", {}).get("playhead", {})
    for name, meaning in SETTINGS.items():
        if not table.get(name):
            raise SettingError(f"pyproject.toml: [tool.playhead] {name} is not set: expected {meaning}")
    repository, contact = str(table["repository"]).rstrip("/"), str(table["contact"])
    address = urlsplit(repository)
    if address.scheme != "https" or not address.netloc or not address.path.strip("/"):
        raise SettingError(f"pyproject.toml: expected {SETTINGS['repository']}, got {repository!r}")
    if not re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", contact):
        raise SettingError(f"pyproject.toml: expected {SETTINGS['contact']}, got {contact!r}")
    return repository, contact


def package_page(readme: str, repository: str, tag: str) -> str:
    """`readme` with links to the files of `tag`, and with the block that installs from the registry."""

    def absolute(match: re.Match[str]) -> str:
        before, path = match.groups()
        return f"{before}{repository}/{'raw' if PICTURE.search(path) else 'blob'}/{tag}/{path}"

    return ADDRESS.sub(absolute, CLONE.sub(r"\1", readme))


def metadata(pyproject: str, repository: str, contact: str, tag: str) -> str:
    """`pyproject` with the URLs that the registry shows, and whom to write to."""
    document = tomlkit.parse(pyproject)
    project = document["project"]
    project["urls"] = {
        "Repository": repository,
        "Documentation": f"{repository}/blob/{tag}/docs/README.md",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    project["maintainers"] = [{"email": contact}]
    return tomlkit.dumps(document)


def write(root: Path) -> None:
    pyproject = (root / "pyproject.toml").read_text("utf-8")
    repository, contact = settings(pyproject)
    version = tomllib.loads((root / "Cargo.toml").read_text("utf-8"))["workspace"]["package"]["version"]
    tag = f"v{version}"
    pages: dict[str, Callable[[str], str]] = {
        "README.md": lambda text: package_page(text, repository, tag),
        "SECURITY.md": lambda text: text.replace(
            "the maintainers listed in the package metadata", f"<{contact}>"
        ),
        "pyproject.toml": lambda text: metadata(text, repository, contact, tag),
    }
    for name, change in pages.items():
        path = root / name
        path.write_text(change(path.read_text("utf-8")), "utf-8")


def main() -> int:
    try:
        write(ROOT)
    except SettingError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
