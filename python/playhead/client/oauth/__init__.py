"""OAuth for servers over HTTP: the SDK's flows, tokens kept in a file, and a browser asked in good time."""

from __future__ import annotations

from playhead.client.oauth.build import ShowUrl, build_oauth
from playhead.client.oauth.flow import OAuth

__all__ = ["OAuth", "ShowUrl", "build_oauth"]
