"""The example audio server, which finds music, links to it, and serves it in ranges.

`audio_tools.py` answers requests; `audio_server.py` runs the server, or opens it in this process. This module
has the options. It imports little, so that the command line shows its help at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from playhead.servers.listening import ListenOptions, Transport

MixerKind = Literal["memory", "system"]

DEFAULT_META_KEY: Final = "playhead/range"


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioServerOptions(ListenOptions):
    """The options of `playhead serve audio`."""

    transport: Transport = "stdio"
    port: int = 3001
    library: Path | None = None
    """A directory of music. None is the piece of music in the package."""
    state_directory: Path | None = None
    """The directory of the key that signs links, so that they work after a restart and in other processes.
    With None, links end with this process."""
    allow_origins: tuple[str, ...] = ()
    """The origins (`http://host:port`) that the server may read even if their address is not global."""
    mixer: MixerKind = "system"
    mixer_environment: Mapping[str, str] | None = field(default=None, repr=False)
    """The environment of the system's mixer commands. None is the environment of this process."""
    meta_key: str = DEFAULT_META_KEY
    """The key of `_meta` under which a read may state its range."""
    origin_seconds: float = 10.0
    """Limits the silence of an origin. Two attempts, a second apart, stay below the 30 s that a client waits
    for a page."""
