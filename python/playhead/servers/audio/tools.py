"""The MCP face of the audio server: `musicPlayer`, `set_volume`, the resource they lead to, and a prompt.

The resource `resource://read_from_http` is a range of a URL, which is plain or in base64url (in it, reserved
characters survive a URI template). docs/ranged-resources.md has the ways to ask for the range.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from playhead.client.session.http_range import HttpRange, fetch_range
from playhead.errors import BlockedAddressError, DeadlineError, PlayheadError, RangePastEndError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.servers.audio import DEFAULT_META_KEY
from playhead.servers.audio.library import Library, media_url
from playhead.servers.audio.mixer import Mixer
from playhead.servers.byte_sources import ResourceBytes
from playhead.servers.file_downloads import FileDownloads
from playhead.servers.ranged_resource import ranged_resource

URI: Final = "resource://read_from_http"
TEMPLATE: Final = URI + "{?url,start,end}"
RETRY_SECONDS: Final = 1.0
DONE: Final = b"[DONE]"
"""The blob that marks the end: nothing is at this offset or after it."""

MUSIC_PLAYER = types.Tool(
    name="musicPlayer",
    description="Finds a piece of music by its title and returns a link to it, ready to play.",
    input_schema={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "The title, or a part of it; empty for any piece.",
                "examples": ["first light", ""],
            }
        },
        "required": ["query"],
    },
    annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
)
SET_VOLUME = types.Tool(
    name="set_volume",
    description="Sets the playback volume.",
    input_schema={
        "type": "object",
        "properties": {
            "volume": {
                "type": "integer",
                "minimum": 1,
                "maximum": 100,
                "description": "Per cent.",
                "examples": [40],
            }
        },
        "required": ["volume"],
    },
    annotations=types.ToolAnnotations(idempotent_hint=True, destructive_hint=False),
)

_Context = ServerRequestContext[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioTools:
    """The handlers and what they use. They hold no state of their own: any number of sessions may share
    them."""

    library: Library
    origin: str
    """The base URL under which the library is served."""
    client: httpx2.AsyncClient
    """A guarded client that may reach `origin`."""
    mixer: Mixer
    meta_key: str = DEFAULT_META_KEY
    limits: Limits = DEFAULT_LIMITS
    files: FileDownloads | None = None
    """Offers the resource over HTTP too."""

    def server(self) -> Server[dict[str, Any]]:
        """A server of the SDK, for any transport."""
        server: Server[dict[str, Any]] = Server(
            "playhead-audio",
            version=version("playhead"),
            instructions="Call musicPlayer with a title, then read the link that it returns in byte ranges.",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )
        ranged_resource(
            server,
            TEMPLATE,
            self.read,
            name="read_from_http",
            description="Bytes [start, end) of an http or https URL; the URL may be in base64url.",
            meta_key=self.meta_key,
            whole_bytes=0,
            end_marker=DONE,
            files=self.files,
        )
        return server

    async def read(self, start: int, end: int, *, url: str) -> ResourceBytes:
        """Fetch `[start, end)` of a URL.

        A request that the origin does not answer in time is repeated once, after a second. Cancelling closes
        the HTTP request.

        Raises:
            MCPError: -32602 if the URL is invalid or may not be fetched, -32603 if fetching failed.
        """
        url = _decoded_url(url)
        try:
            found = await self._fetch(url, start, end)
        except RangePastEndError:
            return ResourceBytes(data=b"")
        except BlockedAddressError as error:
            raise MCPError(types.INVALID_PARAMS, f"{error} (with this server's --allow-origin)") from error
        except PlayheadError as error:
            reason = {"kind": type(error).__name__}
            raise MCPError(types.INTERNAL_ERROR, f"reading failed: {error}", reason) from error
        return ResourceBytes(
            data=found.body,
            total_bytes=found.total_bytes,
            mime_type=found.mime_type,
            etag=found.etag,
            name=urlsplit(url).path.rpartition("/")[2] or None,
        )

    async def _fetch(self, url: str, start: int, end: int) -> HttpRange:
        try:
            return await fetch_range(self.client, url, start, end, limits=self.limits)
        except DeadlineError:
            await trio.sleep(RETRY_SECONDS)
            return await fetch_range(self.client, url, start, end, limits=self.limits)

    async def _list_tools(
        self, context: _Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[MUSIC_PLAYER, SET_VOLUME])

    async def _list_prompts(
        self, context: _Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[PLAY_MUSIC])

    async def _get_prompt(
        self, context: _Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        return prompt_messages(params.name, params.arguments or {})

    async def _call_tool(
        self, context: _Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        arguments = params.arguments or {}
        if params.name == MUSIC_PLAYER.name:
            return self._music_player(arguments)
        if params.name == SET_VOLUME.name:
            return await self._set_volume(arguments)
        raise MCPError(
            -32602, f"unknown tool {params.name[:80]!r}; this server has musicPlayer and set_volume"
        )

    def _music_player(self, arguments: Mapping[str, object]) -> types.CallToolResult:
        query = arguments.get("query")
        if not isinstance(query, str):
            return _failed(f"query: expected a string (a title, or a part of it), got {query!r:.80}")
        track = self.library.find(query)
        if track is None:
            titles = "\n".join(f"- {track.title}" for track in self.library.tracks)
            return _failed(f"No title is like {query[:200]!r}. The titles are:\n{titles}")
        link = types.ResourceLink(
            type="resource_link",
            uri=URI,
            name=track.title,
            title=track.title,
            description=media_url(self.origin, track),
            mime_type=track.mime_type,
            size=track.size_bytes,
        )
        return types.CallToolResult(content=[link])

    async def _set_volume(self, arguments: Mapping[str, object]) -> types.CallToolResult:
        volume = arguments.get("volume")
        if isinstance(volume, bool) or not isinstance(volume, int) or not 1 <= volume <= 100:
            return _failed(f"volume: expected an integer from 1 to 100, got {volume!r:.80}")
        try:
            how = await self.mixer.set_volume(volume)
        except PlayheadError as error:
            return _failed(f"The volume was not set: {error}")
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=f"Volume set to {volume} ({how}).")]
        )


def _decoded_url(text: str) -> str:
    if ":" in text:  # never in base64url
        return text
    try:
        padded = text.rstrip("=").encode("ascii") + b"=" * (-len(text.rstrip("=")) % 4)
        url = base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        url = ""
    if ":" not in url:
        raise MCPError(types.INVALID_PARAMS, f"url is {text!r:.80}, neither a URL nor one in base64url")
    return url


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


PLAY_MUSIC: Final = types.Prompt(
    name="play_music",
    title="Play music",
    description="Asks for a piece of music, or for any that fits.",
    arguments=[
        types.PromptArgument(
            name="wish", description="A title or a mood; anything by default.", required=False
        )
    ],
)
WISH_CHARS: Final = 500
"""A longer wish is neither a title nor a mood."""


def prompt_messages(name: str, arguments: dict[str, str]) -> types.GetPromptResult:
    """The messages of a prompt. Raises `MCPError` (-32602) for an unknown one, or a wish that is too long."""
    if name != PLAY_MUSIC.name:
        raise MCPError(-32602, f"unknown prompt {name[:80]!r}; this server has play_music")
    wish = arguments.get("wish", "").strip()
    if len(wish) > WISH_CHARS:
        raise MCPError(-32602, f"wish has {len(wish)} characters; {WISH_CHARS} are allowed")
    asked = f"Play this: {wish}." if wish else "Play some music."
    text = f"{asked} Use musicPlayer, and say nothing while it plays."
    message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
    return types.GetPromptResult(description=PLAY_MUSIC.description, messages=[message])
