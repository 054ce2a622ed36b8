"""The SDK logs a failed flow with its traceback, in which server texts and token answers are quoted.

Nothing is lost by leaving that out: the failure is raised as our own error, with its reason.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

SDK_LOGGER: Final = "mcp.client.auth.oauth2"
_OURS: Final[ContextVar[bool]] = ContextVar("playhead_oauth_flow", default=False)


class _WithoutTracebacks(logging.Filter):
    """Drops what is logged with an exception from inside a flow of ours; other users' records stay."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.exc_info or not _OURS.get()


@contextmanager
def quiet_flow() -> Iterator[None]:
    """Keep this task's OAuth flow out of the log where it would be quoted. Nothing stays configured."""
    logger, without = logging.getLogger(SDK_LOGGER), _WithoutTracebacks()
    token = _OURS.set(True)
    logger.addFilter(without)
    try:
        yield
    finally:
        logger.removeFilter(without)
        _OURS.reset(token)
