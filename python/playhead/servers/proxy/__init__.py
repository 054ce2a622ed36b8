"""A proxy that takes the audio out of the results of other servers, and plays it. Its options are here.

`proxy_server.py` runs it. This module imports little, so that the command line shows its help at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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
