"""`AudioTools`: the tools `musicPlayer`, `set_volume` and `speak`, a resource that reads URLs in ranges, and
a prompt.

The resource `resource://read_from_http` is a range of a URL. The URL is plain, or in base64url so that
reserved characters survive a URI template. docs/ranged-resources.md has the forms in which a client states
the range.

For a link to the library, the server reads the file, whichever process of the user made the link
(`media_links`). It fetches any other URL.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit

import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from playhead.cache import ETAG_META, LINK_META
from playhead.client.session.http_range import HttpRange, fetch_range
from playhead.client.transports.http_client import HttpClient
from playhead.errors import (
    BlockedAddressError,
    DeadlineError,
    PlayheadError,
    RangePastEndError,
    ResourceChangedError,
)
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.servers.audio import DEFAULT_META_KEY
from playhead.servers.audio.library import Library
from playhead.servers.audio.media_links import MediaLinks, SignedTrack, path_of
from playhead.servers.audio.mixer import Mixer
from playhead.servers.audio.speech import TEXT_CHARS, Speech
from playhead.servers.byte_sources import ResourceBytes, file_version, read_file
from playhead.servers.file_downloads import FileDownloads
from playhead.servers.ranged_resource import ranged_resource

URI: Final = "resource://read_from_http"
TEMPLATE: Final = URI + "{?url,start,end}"
RETRY_SECONDS: Final = 1.0
TTL_SECONDS: Final = 24 * 3600.0
"""The time for which clients may share a page. The URL of a page names the version of its file."""
DONE: Final = b"[DONE]"
"""The blob of a read at the end or after it."""

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

SPEAK = types.Tool(
    name="speak",
    description="Speaks text, and returns a link to the speech, which is heard while it is synthesised.",
    input_schema={
        "type": "object",
        "properties": {
            "text": {
                "type": "string",
                "maxLength": TEXT_CHARS,
                "description": "The text to speak.",
                "examples": ["Dinner is ready."],
            },
            "wait": {
                "type": "boolean",
                "default": False,
                "description": "Return only when all of it is synthesised. The first report of the call's"
                " progress has its link.",
                "examples": [False],
            },
        },
        "required": ["text"],
    },
    annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
)

_Context = ServerRequestContext[dict[str, Any]]


@dataclass(slots=True, kw_only=True)
class AudioTools:
    """The request handlers and their data. Any number of sessions may share them."""

    library: Library
    links: MediaLinks
    origin: str
    """The base URL under which the library is served."""
    client: HttpClient
    """A guarded client, for URLs that are not links to the library."""
    mixer: Mixer
    meta_key: str = DEFAULT_META_KEY
    limits: Limits = DEFAULT_LIMITS
    files: FileDownloads | None = None
    """Offers the resource as a file over HTTP; None offers none."""
    speech: Speech | None = None
    """The speech of the server. None before `server` is called, and if espeak-ng is not installed."""

    def server(self) -> Server[dict[str, Any]]:
        """Return a server of the SDK, for any transport."""
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
            ttl_seconds=TTL_SECONDS,
            cache_scope="public",
        )
        self.speech = Speech.of(server)
        return server

    async def read(self, start: int, end: int, *, url: str) -> ResourceBytes:
        """Read `[start, end)` of a URL.

        For a link to the library it reads the file, unless the file has changed since. It fetches any other
        URL. If the origin does not answer in time, it tries once more, after a second. Cancellation closes
        the request.

        Raises:
            MCPError: -32602 if the URL is invalid or may not be fetched, or the file has changed; -32603 if
                the fetch failed.
        """
        url = _decode_url(url)
        path = path_of(url)
        if path is not None and (signed := self.links.open(path)) is not None:
            return await _read_from_library(signed, start, end)
        try:
            answer = await self._fetch(url, start, end)
        except RangePastEndError:
            return ResourceBytes(data=b"")
        except BlockedAddressError as error:
            remedy = (
                "" if path is None else ". If it was a link to music here, call musicPlayer for a new one"
            )
            raise MCPError(
                types.INVALID_PARAMS, f"{error} (with this server's --allow-origin){remedy}"
            ) from error
        except PlayheadError as error:
            reason = {"kind": type(error).__name__}
            raise MCPError(types.INTERNAL_ERROR, f"reading failed: {error}", reason) from error
        return ResourceBytes(
            data=answer.body,
            total_bytes=answer.total_bytes,
            mime_type=answer.mime_type,
            etag=answer.etag,
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
        return types.ListToolsResult(tools=[*self._tools.values()])

    @property
    def _tools(self) -> dict[str, types.Tool]:
        spoken = (SPEAK,) if self.speech is not None else ()
        return {tool.name: tool for tool in (MUSIC_PLAYER, SET_VOLUME, *spoken)}

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
        if params.name == SPEAK.name and self.speech is not None:
            return await self._speak(self.speech, arguments, context)
        raise MCPError(-32602, f"unknown tool {params.name[:80]!r}; this server has {', '.join(self._tools)}")

    def _music_player(self, arguments: Mapping[str, object]) -> types.CallToolResult:
        query = arguments.get("query")
        if not isinstance(query, str):
            return _error_result(f"query: expected a string (a title, or a part of it), got {query!r:.80}")
        track = self.library.find(query)
        if track is None:
            titles = "\n".join(f"- {track.title}" for track in self.library.tracks)
            return _error_result(f"No title is like {query[:200]!r}. The titles are:\n{titles}")
        try:
            path, status = self.links.sign(track)
        except OSError as error:
            return _error_result(f"{track.title!r} cannot be read any more: {error.strerror}")
        link = types.ResourceLink(
            type="resource_link",
            uri=URI,
            name=track.title,
            title=track.title,
            description=self.origin + path,
            mime_type=track.mime_type,
            size=status.st_size,
            _meta={ETAG_META: file_version(status)},
        )
        return types.CallToolResult(content=[link])

    async def _set_volume(self, arguments: Mapping[str, object]) -> types.CallToolResult:
        volume = arguments.get("volume")
        if isinstance(volume, bool) or not isinstance(volume, int) or not 1 <= volume <= 100:
            return _error_result(f"volume: expected an integer from 1 to 100, got {volume!r:.80}")
        try:
            means = await self.mixer.set_volume(volume)
        except PlayheadError as error:
            return _error_result(f"The volume was not set: {error}")
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=f"Volume set to {volume} ({means}).")]
        )

    async def _speak(
        self, speech: Speech, arguments: Mapping[str, object], context: _Context
    ) -> types.CallToolResult:
        text, waits = arguments.get("text"), arguments.get("wait", False)
        if not isinstance(text, str) or not text.strip() or len(text) > TEXT_CHARS:
            got = f"{len(text)} characters" if isinstance(text, str) else repr(text)[:80]
            return _error_result(f"text: expected a string of 1 to {TEXT_CHARS} characters, got {got}")
        if not isinstance(waits, bool):
            return _error_result(f"wait: expected true or false, got {waits!r:.80}")
        link = await speech.link(text)
        if waits:
            await _report_link(context, link)
            link = await speech.spoken(link)
        return types.CallToolResult(content=[link])


async def _report_link(context: _Context, link: types.ResourceLink) -> None:
    """Send `link` in a progress report of the call, if the client has asked for reports."""
    token = (context.params or {}).get("_meta", {}).get("progressToken")
    if not isinstance(token, str | int):
        return
    params = types.ProgressNotificationParams(
        progress_token=token,
        progress=0,
        _meta={LINK_META: link.model_dump(by_alias=True, mode="json", exclude_none=True)},
    )
    await context.session.send_notification(types.ProgressNotification(params=params), context.request_id)


async def _read_from_library(signed: SignedTrack, start: int, end: int) -> ResourceBytes:
    piece = await read_file(signed.track.path, start, end)
    if piece.etag != signed.etag:
        raise MCPError(
            types.INVALID_PARAMS,
            f"the file of {signed.track.title!r} has changed since this link was made; call musicPlayer for a"
            " new one",
            {"kind": ResourceChangedError.__name__},
        )
    return replace(piece, mime_type=signed.track.mime_type, name=signed.track.id)


def _decode_url(text: str) -> str:
    if ":" in text:  # base64url has no colon, so this is a plain URL
        return text
    try:
        padded = text.rstrip("=").encode("ascii") + b"=" * (-len(text.rstrip("=")) % 4)
        url = base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        url = ""
    if ":" not in url:
        raise MCPError(types.INVALID_PARAMS, f"url is {text!r:.80}, neither a URL nor one in base64url")
    return url


def _error_result(text: str) -> types.CallToolResult:
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
"""Limits a wish. A longer one is neither a title nor a mood."""


def prompt_messages(name: str, arguments: dict[str, str]) -> types.GetPromptResult:
    """Return the messages of a prompt. Raises `MCPError` (-32602) if it is unknown, or the wish too long."""
    if name != PLAY_MUSIC.name:
        raise MCPError(-32602, f"unknown prompt {name[:80]!r}; this server has play_music")
    wish = arguments.get("wish", "").strip()
    if len(wish) > WISH_CHARS:
        raise MCPError(-32602, f"wish has {len(wish)} characters; {WISH_CHARS} are allowed")
    request = f"Play this: {wish}." if wish else "Play some music."
    text = f"{request} Use musicPlayer, and say nothing while it plays."
    message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
    return types.GetPromptResult(description=PLAY_MUSIC.description, messages=[message])
