"""`requirements.toml` against the tests: every promise has a test, and every mark names a promise.

The marks are read from the source, not from a collection: one file alone can be run and still be compared
with the whole suite, in a second.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent
SOURCE = re.compile(r"docs/[a-z-]+\.md(, [\w ,'-]+)?|/specification/20\d\d-\d\d-\d\d/[\w/-]+(#[a-z-]+)?")


@cache
def table() -> tuple[dict[str, dict[str, str]], tuple[str, ...]]:
    """The rows by id, and the ids that no test proves yet. An id given twice is an error of the TOML."""
    read = tomllib.loads((HERE / "requirements.toml").read_text("utf-8"))
    return read["requirements"], tuple(read["pending"])


def is_mark(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement"


def marks_in(tree: ast.AST) -> Iterator[tuple[int, list[object]]]:
    """Line and arguments of each mark below `tree`."""
    for node in ast.walk(tree):
        if is_mark(node):
            assert isinstance(node, ast.Call)
            values = [arg.value if isinstance(arg, ast.Constant) else None for arg in node.args]
            yield node.lineno, [None, *values] if node.keywords else list(values)


def collected(module: ast.Module) -> Iterator[ast.AST]:
    """Yield what pytest reads in a test file: the decorators of tests, and `pytestmark`."""
    for node in module.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_"):
                yield from node.decorator_list
            case ast.Assign(targets=[ast.Name(id="pytestmark")]):
                yield node


@cache
def bound() -> tuple[dict[str, list[str]], list[str]]:
    """Id → the places that carry it; and the marks that are wrong."""
    places: dict[str, list[str]] = {}
    wrong: list[str] = []
    paths = sorted(TESTS.rglob("*.py"))
    assert len(paths) > 150, "these are not all tests"
    for path in paths:
        text = path.read_text("utf-8")
        if "mark.requirement" not in text or path == Path(__file__):
            continue
        module = ast.parse(text)
        everywhere = {line for line, _ in marks_in(module)}
        if path.name.startswith("test_"):
            for root in collected(module):
                for line, values in marks_in(root):
                    everywhere.discard(line)
                    place = f"{path.relative_to(TESTS)}:{line}"
                    if not values or any(not isinstance(value, str) for value in values):
                        wrong.append(f"{place}: a mark takes ids as plain texts")
                    for value in values:
                        places.setdefault(str(value), []).append(place)
        wrong += [f"{path.relative_to(TESTS)}:{line}: a mark on no test" for line in everywhere]
    return places, wrong


def test_every_requirement_has_a_test_or_is_listed_as_pending() -> None:
    rows, pending = table()
    assert rows.keys() - bound()[0].keys() - set(pending) == set()


def test_a_pending_requirement_has_no_test_yet() -> None:
    rows, pending = table()
    assert len(set(pending)) == len(pending)
    assert set(pending) <= rows.keys()
    places = bound()[0]
    assert {name: places[name] for name in pending if name in places} == {}, "take them out of `pending`"


def test_every_mark_names_a_requirement() -> None:
    places, wrong = bound()
    assert wrong == []
    rows, _ = table()
    assert {name: at for name, at in places.items() if name not in rows} == {}


def test_each_source_of_our_own_is_a_page_and_a_section_of_it() -> None:
    rows, _ = table()
    for name, source in {name: row["source"] for name, row in rows.items()}.items():
        page, _, section = source.partition(", ")
        if page.startswith("docs/"):
            headings = re.findall(r"^#+ (.+)$", (TESTS.parent / page).read_text("utf-8"), re.M)
            assert not section or section in [line.replace("`", "") for line in headings], f"{name}: {source}"


def test_each_row_is_one_sentence_with_its_source() -> None:
    rows, _ = table()
    for name, row in rows.items():
        assert re.fullmatch(r"(TR|SR|CF|HUB|OUT|PQ|MCP)-\d\d", name), name
        assert row.keys() == {"source", "sentence"}, name
        assert SOURCE.fullmatch(row["source"]), f"{name}: {row['source']}"
        assert row["sentence"].endswith("."), name
        assert ". " not in row["sentence"], f"{name}: more than one sentence"
    sentences = [row["sentence"] for row in rows.values()]
    assert len(set(sentences)) == len(sentences)
