"""The fixture `playhead_check` for pytest: a test checks a server, with one subtest per check."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

try:
    import pytest
except ImportError as error:
    raise ImportError(
        "playhead.check.pytest_plugin needs pytest, which is not installed: pip install 'pytest>=9'"
    ) from error


@pytest.fixture
def playhead_check(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a function that checks a server and returns the `playhead.check.Report`.

    `playhead_check(server, **options)`: `server` is whatever `playhead.connect` takes, and the options are
    those of `playhead.check.CheckOptions`, with `depth="full"` by default. Each kind of check is a subtest,
    which fails with the messages of its failures. Needs pytest 9, or the plug-in pytest-subtests, and a test
    that is not async.
    """
    try:
        subtests = request.getfixturevalue("subtests")
    except pytest.FixtureLookupError:
        raise pytest.UsageError("playhead_check needs pytest 9 or newer, or pytest-subtests") from None

    def run(server: Any, **options: Any) -> Any:
        # The imports take a second, which only tests that check a server should wait.
        import trio

        from playhead.check import CheckOptions, check_server

        chosen = CheckOptions(**{"depth": "full", **options})
        report = trio.run(partial(check_server, server, chosen))
        messages: dict[str, list[str]] = {}
        for test in report.tests:
            for check in test.checks:
                failures = messages.setdefault(check.kind.name, [])
                if check.verdict == "failed":
                    failures.append(f"{test.subject} · {test.title}: {check.message}")
        for name, failures in messages.items():
            with subtests.test(msg=name):
                if failures:
                    pytest.fail("\n".join(failures), pytrace=False)
        with subtests.test(msg="coverage"):
            if report.is_unproven and not report.allow_unproven:
                pytest.fail(report.coverage, pytrace=False)
        return report

    return run
