"""The options and fixtures of the benchmarks, which `python -m benches.run` runs."""

from __future__ import annotations

import pytest

from benches.board import Board

BOARD = pytest.StashKey[Board]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--smoke", action="store_true", help="small sizes and one or two rounds; bounds are not held"
    )
    parser.addoption("--rounds", type=int, help="rounds of each comparison, in place of its own number")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full_run: takes no other way than its neighbours; not in a smoke run")
    config.stash[BOARD] = Board(smoke=config.getoption("--smoke"), rounds_wanted=config.getoption("--rounds"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.stash[BOARD].smoke:
        for item in items:
            if item.get_closest_marker("full_run"):
                item.add_marker(pytest.mark.skip(reason="full runs only: its neighbour takes the same way"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not session.config.stash[BOARD].is_met:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    board = config.stash[BOARD]
    if board.comparisons:
        board.print()
        print(f"raw numbers: {board.write()}")


@pytest.fixture
def board(pytestconfig: pytest.Config) -> Board:
    return pytestconfig.stash[BOARD]


@pytest.fixture
def smoke(board: Board) -> bool:
    return board.smoke
