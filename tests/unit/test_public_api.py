"""The public names and the parameters of each: a change of them is deliberate and goes into the changelog.

`pytest tests/unit/test_public_api.py --update-golden` writes the list anew.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest

from playhead import Limits, StreamOptions, connect
from playhead.config.servers import from_command
from playhead.errors import UsageError

GOLDEN = Path(__file__).parents[1] / "golden" / "public-api.txt"

PUBLIC = (
    "playhead",
    "playhead.agent",
    "playhead.check",
    "playhead.client",
    "playhead.config.outputs",
    "playhead.config.tools",
    "playhead.content",
    "playhead.net_guard",
    "playhead.playback",
    "playhead.playback.sinks",
    "playhead.portals",
    "playhead.results.responses",
    "playhead.servers.file_downloads",
    "playhead.servers.ranged_resource",
)


def parameters(thing: object) -> str:
    """`(path, *, title=…)` for what can be called, nothing for the rest."""
    if not callable(thing):
        return ""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    plain = [
        parameter.replace(
            annotation=inspect.Parameter.empty,
            default=parameter.default if parameter.default is inspect.Parameter.empty else ...,
        )
        for parameter in signature.parameters.values()
    ]
    return str(inspect.Signature(plain)).replace("Ellipsis", "…")


def entries(package: str) -> list[str]:
    module = import_module(package)
    found: list[str] = []
    for name in sorted(module.__all__):
        thing = getattr(module, name)
        found.append(f"{package}.{name}{parameters(thing)}")
        if inspect.isclass(thing) and thing.__module__.startswith("playhead"):
            found.extend(
                f"{package}.{name}.{member}{parameters(value)}"
                for member, value in sorted(vars(thing).items())
                if not member.startswith("_") and (callable(value) or isinstance(value, property))
            )
    return found


def test_the_public_names_are_those_of_the_list(pytestconfig: pytest.Config) -> None:
    found = "".join(f"{entry}\n" for package in PUBLIC for entry in entries(package))
    if pytestconfig.getoption("--update-golden"):
        GOLDEN.write_text(found, encoding="utf-8")
    assert GOLDEN.read_text("utf-8") == found, "expected the listed names; --update-golden writes them anew"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            lambda: Limits(handshake_seconds=-1),
            "Limits.handshake_seconds: expected a number of 0 or more, got -1",
        ),
        (
            lambda: Limits(page_seconds=math.nan),
            "Limits.page_seconds: expected a number of 0 or more, got nan",
        ),
        (
            lambda: Limits(json_depth=cast(Any, "9")),
            "Limits.json_depth: expected a number of 0 or more, got '9'",
        ),
        (lambda: StreamOptions(in_flight=cast(Any, "9")), "in_flight: expected 1 to 256, got '9'"),
        (lambda: StreamOptions(max_bytes=cast(Any, "1MB")), "max_bytes: expected 0 or more, got '1MB'"),
        (lambda: StreamOptions(timeout=cast(Any, "1")), "timeout: expected more than 0 seconds, got '1'"),
        (lambda: from_command(["sh", cast(Any, None)]), "the command's item 1: expected a string, got None"),
        (lambda: from_command([""]), "the command is empty; give the program and its arguments"),
    ],
)
def test_settings_that_cannot_be_right_name_what_was_expected(
    settings: Callable[[], object], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        settings()
    assert str(caught.value) == message


async def test_the_servers_file_may_be_a_string(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing\.json: no such file"):
        async with connect("home", config=str(tmp_path / "missing.json")):
            pass
