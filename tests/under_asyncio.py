"""Tests that are coroutines of asyncio; those of trio need nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

P = ParamSpec("P")


def under_asyncio(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @wraps(test)
    def runs(*args: P.args, **options: P.kwargs) -> None:
        asyncio.run(test(*args, **options))

    return runs
