"""The steps of a release on this machine, up to publishing: `python -m tests.wheels.dry_run`.

The last commit is cloned, gets made-up addresses and a dated changelog, and is built as by the workflow
`release`. An index of what was built is served on loopback, from which every extra is installed into an empty
environment. Prints each command with its output; status 1 if one fails. It compiles everything anew.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml
from markdown_it import MarkdownIt

from tests.wheels.environments import REPOSITORY, TOOLS

SETTINGS = {"repository": "https://example.org/music/playhead", "contact": "security@example.org"}
BUILT_BY_MAKE = ("package-page", "wheel", "sdist", "check-dist", "extra NAME=sbom")
UV = str(TOOLS / "uv")
DEMO_EXTRA = "cli"


def run(command: str, directory: Path, **variables: str) -> None:
    """Run a command, print what it prints, and how long it took."""
    print(f"$ {command}", flush=True)
    started = time.monotonic()
    subprocess.run(["bash", "-ec", command], cwd=directory, env=os.environ | variables, check=True)
    print(f"({time.monotonic() - started:.1f} s)\n", flush=True)


def prepare(clone: Path) -> str:
    """Clone the last commit and do what a maintainer does before the tag; return the version."""
    run(f"git clone --quiet {shlex.quote(str(REPOSITORY))} {shlex.quote(str(clone))}", REPOSITORY)
    version = str(tomllib.loads((clone / "Cargo.toml").read_text("utf-8"))["workspace"]["package"]["version"])
    pyproject = (clone / "pyproject.toml").read_text("utf-8")
    for name, value in SETTINGS.items():
        pyproject = re.sub(rf'^{name} = ".*"$', f'{name} = "{value}"', pyproject, flags=re.M)
    (clone / "pyproject.toml").write_text(pyproject, "utf-8")
    changelog = (clone / "CHANGELOG.md").read_text("utf-8")
    dated = changelog.replace("## Unreleased\n", f"## {version} - {time.strftime('%Y-%m-%d')}\n")
    (clone / "CHANGELOG.md").write_text(dated, "utf-8")
    return version


def compare_tag(clone: Path, version: str) -> None:
    """Run the step of the workflow that compares the tag with the version and the changelog."""
    workflow = yaml.safe_load((clone / ".github" / "workflows" / "release.yml").read_text("utf-8"))
    (step,) = (step for step in workflow["jobs"]["version"]["steps"] if "Compare" in step.get("name", ""))
    run(step["run"], clone, GITHUB_REF_NAME=f"v{version}")


def check_page(wheel: Path) -> None:
    """Print the metadata that a registry shows. Relative links would lead nowhere there."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        data = message_from_bytes(archive.read(name))
    for field in ("Name", "Version", "Author", "Maintainer-email", "License-Expression", "Project-URL"):
        print(*(f"{field}: {value}" for value in data.get_all(field, [])), sep="\n")
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(str(data.get_payload()))
    addresses = re.findall(r'(?:href|src)="([^"]+)"', page)
    relative = [address for address in addresses if not address.startswith(("https://", "#"))]
    print(f"{len(addresses)} links on the page, {len(relative)} relative: {relative}\n")
    assert not relative
    assert "pip install" in page


@contextmanager
def served(dist: Path) -> Iterator[str]:
    """Serve the files of `dist` as an index of one project."""
    project = dist / "simple" / "playhead"
    project.mkdir(parents=True)
    for path in (*dist.glob("*.whl"), *dist.glob("*.tar.gz")):
        (project / path.name).hardlink_to(path)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """A directory's listing is the index's page; requests are not printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(dist))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple/"
        server.shutdown()


def install(index: str, directory: Path, extras: list[str], version: str) -> None:
    """Install the library and each extra into an empty environment; last, the library from its sources."""
    for extra in ["", *extras]:
        wanted = f"playhead[{extra}]=={version}" if extra else f"playhead=={version}"
        home = directory / (extra or "library")
        run(f"{UV} venv --quiet --python {shlex.quote(sys.executable)} {home}", directory)
        pip = f"VIRTUAL_ENV={home} {UV} pip"
        run(
            f"{pip} install --quiet --refresh-package playhead --index {index} {shlex.quote(wanted)}",
            directory,
        )
        run(f"{pip} check && {home}/bin/python -Ic 'import playhead; print(playhead.__version__)'", directory)
        if extra in (DEMO_EXTRA, "all"):
            run("playhead demo --sink null", directory, PATH=f"{home}/bin:/usr/bin:/bin")
    from_sources = (
        f"VIRTUAL_ENV={directory / 'library'} {UV} pip install --quiet --reinstall-package playhead"
    )
    run(f"{from_sources} --no-binary playhead --index {index} playhead=={version}", directory)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="playhead-release-") as name:
        directory = Path(name)
        clone = directory / "clone"
        try:
            version = prepare(clone)
            compare_tag(clone, version)
            for target in BUILT_BY_MAKE:
                run(f"make {target}", clone)
            (wheel,) = (clone / "dist").glob("*.whl")
            check_page(wheel)
            run("ls -l *.whl *.tar.gz", clone / "dist")
            project = tomllib.loads((clone / "pyproject.toml").read_text("utf-8"))["project"]
            with served(clone / "dist") as index:
                install(index, directory, list(project["optional-dependencies"]), version)
        except subprocess.CalledProcessError as error:
            print(f"failed with status {error.returncode}", file=sys.stderr)
            return 1
    print("the release would be published now")
    return 0


if __name__ == "__main__":
    sys.exit(main())
