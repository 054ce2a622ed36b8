"""Documents run from the wheel, with what each page tells to install and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.snippets import EXAMPLES, PAGES, blocks
from tests.wheels.environments import TOOLS, Environment, Environments, NoNetworkError
from tests.wheels.example_peers import PEERS
from tests.wheels.try_wheel import table, try_page

DOCUMENTS = [path for path in (*PAGES, *EXAMPLES) if any(block.not_run is None for block in blocks(path))]


@pytest.mark.slow("installs the wheel, and starts a new interpreter per program or command")
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    not all((TOOLS / tool).exists() for tool in ("uv", "maturin")), reason="needs uv and maturin: make"
)
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_runs_from_the_wheel(path: Path, run_directory: Path, tmp_path: Path) -> None:
    shared = run_directory / "wheels"
    shared.mkdir(exist_ok=True)
    try:
        rows = try_page(path, Environments(shared), tmp_path)
    except NoNetworkError:
        pytest.skip("needs the package index, or a uv cache that has all packages")
    assert not any(row.failures for row in rows), table(rows)
    assert any(row.programs or row.commands for row in rows)


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=lambda path: path.name)
def test_what_starts_an_example_server_tells_to_install_it(path: Path) -> None:
    """Of what is not run, too."""
    for block in blocks(path):
        for name, extra in (("audio", "cli"), ("template", "serve")):
            if any(text in block.code for text in (f'"serve", "{name}"', f"playhead serve {name}")):
                assert any(extra in each or "all" in each for each in block.installs), str(block)


def test_every_example_has_a_peer_or_says_why_it_is_not_run() -> None:
    assert [path.name for path in EXAMPLES if path.name not in PEERS] == [
        block.page for path in EXAMPLES for block in blocks(path) if block.not_run
    ]


def test_a_command_that_fails_is_a_row_that_failed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`pip install nothing`\n\n```console\n$ false # with a comment\n$ true\noutput\n```\n")

    class Here(Environments):
        def environment(self, installs: frozenset[str]) -> Environment:
            assert installs == {"nothing"}
            return Environment(directory=tmp_path, home=tmp_path)

    (row,) = try_page(page, Here(tmp_path), tmp_path)
    assert row.cells == ("page.md", "nothing", "0", "2", "0", "1 failed")
    assert "false\nexit code 1" in row.failures[0]
