"""Pages of the site that are not files of docs/, links that GitHub resolves and the site cannot, and a check.

The site has README.md as its overview, CHANGELOG.md, the table of checks, a reference page for each public
package, on its home a piece of music and the report of a check, and the reports of public servers, if any.
Links between pages work in both places; a link to a source file becomes its text, since the site has no copy
of it.
"""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
FROM_THE_ROOT = {"README.md": "overview.md", "CHANGELOG.md": "changelog.md"}
CATALOGUE = "python/playhead/check/catalogue.py"

PACKAGES = {
    "Connect and call": {
        "playhead": "sessions, calls and streams: what most programs need",
        "playhead.errors": "the tree of exceptions, by fault",
        "playhead.limits": "every limit and its default",
    },
    "Play": {
        "playhead.playback": "the player, its queue and its sinks",
        "playhead.stream": "ranged reads alone, over any function that reads a range",
    },
    "Build an assistant": {
        "playhead.agent": "the tool loop",
        "playhead.agent.events": "the events of the tool loop",
        "playhead.agent.budgets": "limits of a turn",
        "playhead.results.responses": "structured responses that steer a turn",
        "playhead.results.plan": "dispositions of a result's blocks",
    },
    "Configure": {
        "playhead.config.servers": "the servers file",
        "playhead.config.tools": "configuration per tool",
        "playhead.config.outputs": "saved outputs",
    },
    "Build and test servers": {
        "playhead.content": "build, validate and downgrade content",
        "playhead.servers.ranged_resource": "offer a resource in ranges",
        "playhead.check": "the checker",
        "playhead.testing": "conformance suites, scripted peers, slow links",
    },
}
"""The public packages and modules by task, in the order of the navigation."""

FIRST = {"playhead": ("connect", "Session", "CallResult", "open_hub", "Hub", "open_stream", "RangeStream")}
"""The names that a package's page begins with; the others follow in the order of `__all__`."""

MUSIC = ROOT / "python" / "playhead" / "servers" / "audio" / "music" / "first-light.mp3"
REPORT = ROOT / "build" / "docs" / "check-report.html"
"""The report of the example server, which `make docs` writes."""

PUBLIC_SERVERS = ROOT / "build" / "public-servers" / "reports"
"""The reports of public servers, if `make extra NAME=public-servers` has written any."""

ON_THE_SITE = re.compile(r"<!-- on the site\n(.*?)-->\n", re.DOTALL)
"""Parts of a page that need files which only the site has."""

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
LOADED = re.compile(
    r"<(?:script|img|iframe|audio|video|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\"' >]+"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preconnect|preload|icon|dns-prefetch))"
    r"[^>]*\bhref=[\"']?(?:https?:)?//[^\"' >]+"
    r"|url\([\"']?(?:https?:)?//[^)]+"
)
"""An address on another host that a browser fetches by itself; plain links to other sites are fine."""


def reference(package: str) -> str:
    return f"reference/{package}.md"


def on_config(config: Any) -> Any:
    """List the reference pages in the navigation."""
    for entry in config.nav:
        if "Reference" in entry:
            entry["Reference"] = [
                {task: [{package: reference(package)} for package in packages]}
                for task, packages in PACKAGES.items()
            ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from the root of the repository and the reference."""
    for name, page in FROM_THE_ROOT.items():
        text = (ROOT / name).read_text("utf-8")
        files.append(File.generated(config, page, content=LINK.sub(from_the_root, text)))
    files.append(File.generated(config, "checks.md", content=checks()))
    for packages in PACKAGES.values():
        for package, content in packages.items():
            text = f"# {package}\n\n{content[0].upper()}{content[1:]}.\n\n::: {package}\n{order(package)}"
            files.append(File.generated(config, reference(package), content=text))
    for path in (MUSIC, REPORT):
        if not path.exists():
            raise PluginError(f"{path} is missing: build the site with `make docs`")
        files.append(File.generated(config, path.name, abs_src_path=str(path)))
    for path in sorted(PUBLIC_SERVERS.glob("*.html")):
        files.append(File.generated(config, f"public-servers/{path.name}", abs_src_path=str(path)))
    return files


def public_reports() -> str:
    """Return a list of links to the reports of public servers; nothing if there are none."""
    links = [f"* [{path.stem}](public-servers/{path.name})" for path in sorted(PUBLIC_SERVERS.glob("*.html"))]
    return "\n".join(["", "## Their reports", "", *links, ""]) if links else ""


def checks() -> str:
    """Return the page of all checks. Their catalogue imports nothing of the package."""
    lines = ["# All checks", "", "| check | level | requirement |", "|---|---|---|"]
    for kind in runpy.run_path(str(ROOT / CATALOGUE))["CATALOGUE"].values():
        title = kind.title.replace("|", "\\|")
        lines.append(f"| `{kind.name}` | {kind.level} | [{title}]({kind.source.removeprefix('docs/')}) |")
    return "\n".join([*lines, ""])


def order(package: str) -> str:
    """Return the options that list a package's names with the most used ones first."""
    if package not in FIRST:
        return ""
    source = ast.parse((ROOT / "python" / package.replace(".", "/") / "__init__.py").read_text("utf-8"))
    (names,) = (
        ast.literal_eval(node.value)
        for node in source.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    members = [*FIRST[package], *(name for name in names if name not in FIRST[package])]
    return f"    options:\n      group_by_category: false\n      members: {members}\n"


def from_the_root(link: re.Match[str]) -> str:
    """Rewrite a link of README.md or CHANGELOG.md as one of a page beside those of docs/."""
    mark, text, target, anchor = link.groups("")
    if re.match(r"\w+:", target):
        return link[0]
    target = target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"
    return f"{mark}[{text}]({target}{anchor})"


def title(page: str) -> str:
    """Return the title of a page of docs/."""
    return (ROOT / "docs" / page).read_text("utf-8").partition("\n")[0].removeprefix("# ")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Point links out of docs/ at pages of the site, or leave their text.

    A link that shows the name of a file shows the title of its page.
    """

    def inside(link: re.Match[str]) -> str:
        _, text, target, anchor = link.groups("")
        if target.startswith("examples/"):
            return f"{text}"
        if not target.startswith("../"):
            return f"[{title(target)}]({target}{anchor})" if text == target else link[0]
        page = {**FROM_THE_ROOT, CATALOGUE: "checks.md"}.get(target.removeprefix("../"))
        return f"[{text}]({page}{anchor})" if page else text

    if page.file.src_uri == "public-servers.md":
        markdown += public_reports()
    return LINK.sub(inside, ON_THE_SITE.sub(r"\1", markdown))


def on_post_build(config: Any) -> None:
    """Fail if a page would make the reader's browser load something from another host."""
    pages = sorted(Path(config.site_dir).rglob("*.html"))
    styles = sorted(Path(config.site_dir).rglob("*.css"))
    expected = sum(map(len, PACKAGES.values()))
    if len(pages) < expected:
        raise PluginError(f"expected at least {expected} pages, got {len(pages)}")
    for path in [*pages, *styles]:
        loaded = LOADED.search(path.read_text("utf-8"))
        if loaded is not None:
            raise PluginError(f"{path} loads from a third party: {loaded[0]}")
