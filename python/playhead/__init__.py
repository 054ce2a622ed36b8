"""playhead plays, shows and routes MCP tool results while they are still arriving.

Most programs need only the names here. `playhead.playback` has the player and its sinks, `playhead.stream`
the ranged reads alone, and `playhead.testing` the suites and peers for your own tests.
"""
# ruff: noqa: E402 - the search path and the exit are settled before the imports

import sys

_IS_MODULE = sys.argv[:1] == ["-m"] and bool({"playhead", "-mplayhead"} & {*sys.orig_argv})
if _IS_MODULE and not sys.flags.safe_path:
    # `python -m playhead` puts the current directory in front: a file there called trio.py would be run.
    # Before every other import, and without one of `__future__`, which could be such a file too.
    del sys.path[0]
if _IS_MODULE or (sys.argv[:1] and sys.argv[0].rpartition("/")[2] == "playhead"):

    def _leave(kind: type[BaseException], error: BaseException, trace: object) -> None:
        """Exit without a traceback at a Ctrl-C during the imports, before `playhead.cli.main` handles it."""
        if kind is KeyboardInterrupt:
            import os

            os._exit(130)
        sys.__excepthook__(kind, error, trace)  # type: ignore[arg-type]  # its name for a traceback is an import

    sys.excepthook = _leave

from typing import TYPE_CHECKING, Final

from playhead import errors
from playhead.lazy_names import lazy_names
from playhead.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    __version__: str
    from playhead.client import CallResult, Session, connect
    from playhead.client.hub import Hub, open_hub
    from playhead.config.servers import ServerConfig
    from playhead.portals import AsyncioPortal, BlockingPortal, asyncio_portal, blocking_portal
    from playhead.stream.options import StreamOptions
    from playhead.stream.reader import RangeStream, open_stream

__all__ = [
    "DEFAULT_LIMITS",
    "AsyncioPortal",
    "BlockingPortal",
    "CallResult",
    "Hub",
    "Limits",
    "RangeStream",
    "ServerConfig",
    "Session",
    "StreamOptions",
    "__version__",
    "asyncio_portal",
    "blocking_portal",
    "connect",
    "errors",
    "open_hub",
    "open_stream",
]

_MODULES: Final = {
    "client": ("CallResult", "Session", "connect"),
    "client.hub": ("Hub", "open_hub"),
    "config.servers": ("ServerConfig",),
    "portals": ("AsyncioPortal", "BlockingPortal", "asyncio_portal", "blocking_portal"),
    "stream.options": ("StreamOptions",),
    "stream.reader": ("RangeStream", "open_stream"),
}
"""Imported on first use: the MCP SDK takes half a second, which `playhead --help` can do without."""
_lazy = lazy_names(__name__, _MODULES)


if not TYPE_CHECKING:  # a misspelt name is an error for a type checker

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("playhead")
        return _lazy(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
