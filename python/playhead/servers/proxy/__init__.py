"""A proxy that takes the audio out of the results of other servers, and plays it. Its options are here.

`proxy_server.py` runs it. This module imports little, so that the command line shows its help at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from playhead.servers.listening import ListenOptions, Transport

OnCall = Literal["duck", "pause", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions(ListenOptions):
    """The options of `playhead serve proxy`."""

    transport: Transport = "stdio"
    port: int = 3002
    on_call: OnCall = "duck"
    """The action on the audio while a tool of a server runs."""
    keep_audio: tuple[str, ...] = ()
    """The servers whose results keep their inline audio; it is not played then."""
    keep_links: tuple[str, ...] = ()
    """The servers whose results keep their links to audio; these are played all the same."""
    media_port: int | None = None
    """The port of the media addresses and of the page; None serves neither."""
    state_directory: Path | None = None
    """The directory of the media addresses, which outlive the process."""


_PLAIN_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,23}")
_RUNNERS: Final = re.compile(r"(node|npx|bun|bunx|deno|uv|uvx|pipx|docker|run|python[\d.]*)(\.exe)?")


def server_names(arguments: Sequence[str]) -> dict[str, str]:
    """Return a short name for each SERVER argument, for the names of its tools in the proxy.

    A name of the servers file stays. A URL becomes its host, and a command its program or script.
    """
    names: dict[str, str] = {}
    for argument in arguments:
        name = argument
        if not _PLAIN_NAME.fullmatch(argument):
            words = [word.rpartition("/")[2] for word in argument.split() if not word.startswith("-")]
            if "://" in argument:
                words = [urlsplit(argument).hostname or ""]
            word = next((word for word in words if not _RUNNERS.fullmatch(word)), "server")
            stem = word.removeprefix("www.").rpartition(".")[0] or word if "://" not in argument else word
            name = re.sub(r"[^A-Za-z0-9_]+", "-", stem).strip("-_")[:24] or "server"
            name = name if name[0].isalpha() else f"s-{name}"
        taken = names.values()
        names[argument] = next(
            each for number in count(1) if (each := name if number == 1 else f"{name}-{number}") not in taken
        )
    return names
