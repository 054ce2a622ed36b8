"""A resource that clients read in byte ranges, for authors of MCP servers: `ranged_resource`.

    song = ranged_resource(server, "music://song.mp3", Path("song.mp3"), mime_type="audio/mpeg")

adds a resource to a server of the SDK (`Server`, `MCPServer`) or of FastMCP. A client states the range in the
URI (`uri-template`), in `arguments`, in `_meta`, or over HTTP (`file`, with `FileDownloads`); see
docs/ranged-resources.md. All of these give the same bytes, by the same rules:

* A range beyond the end gets the bytes before the end, and a range at or after the end gets `end_marker`. So
  a page that is not empty is never the end, and no client needs the size.
* A range longer than `page_bytes` gets its first bytes. A short page is not the end.
* A read without a range gets the whole resource. If the resource is longer than `whole_bytes`, the read
  fails, because the first bytes alone would look like the whole.

It runs under asyncio and trio, as servers of the SDK and of FastMCP do.
"""

from __future__ import annotations

import base64
import inspect
import mimetypes
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, Protocol, TypeVar, cast
from urllib.parse import urlsplit

import mcp_types as types
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourceUpdated,
    SubscriptionBus,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from playhead.cache import ETAG_META, LIVE_META, OFFSET_META, SIZE_META
from playhead.errors import UsageError
from playhead.limits import MIB
from playhead.servers.byte_sources import ByteSource, ReadCallable, ResourceBytes, source_of
from playhead.servers.growing_source import (
    KEPT_BYTES,
    Growing,
    GrowingItem,
    GrowingItems,
    GrowingSource,
)
from playhead.servers.late_blob import LateBlob

__all__ = ["RangedResource", "ReadCallable", "ResourceBytes", "ranged_resource"]

META_KEY: Final = "playhead/range"
"""The key of `_meta` that holds `{"start": …, "end": …}`."""
SERVED_PAGE_BYTES: Final = 8 * MIB
"""The default limit of a page. As base64 in one message, such a page takes a third more."""
RESOURCE_NOT_FOUND: Final = -32002
"""The error code for an unknown resource before revision 2026-07-28."""

_LARGEST_OFFSET: Final = 2**53 - 1
"""Limits an offset. Beyond it, JSON numbers are not exact in every language."""

Context = ServerRequestContext[Any, Any]
_Listing = TypeVar("_Listing", types.ListResourcesResult, types.ListResourceTemplatesResult)


class FileForm(Protocol):
    """Offers resources as files over HTTP: `FileDownloads`."""

    resources: list[RangedResource]

    def base_url(self, request: object) -> str | None: ...

    async def authorize(
        self, resource: RangedResource, values: Mapping[str, str], *, base_url: str
    ) -> dict[str, Any]: ...


def ranged_resource(
    server: object,
    uri: str,
    source: Path | bytes | ReadCallable | None = None,
    *,
    growing: Growing | None = None,
    kept_bytes: int = KEPT_BYTES,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    size_bytes: int | None = None,
    sha256: str | None = None,
    meta_key: str = META_KEY,
    page_bytes: int = SERVED_PAGE_BYTES,
    whole_bytes: int = SERVED_PAGE_BYTES,
    end_marker: bytes = b"",
    files: FileForm | None = None,
    ttl_seconds: float = 0.0,
    cache_scope: Literal["public", "private"] = "private",
) -> RangedResource:
    """Add a resource that clients read in ranges to `server`, and return it.

    The server's own resources and templates stay as they are. The server lists this one with them, as a
    resource (if `uri` has no variables) and as a URI template that ends with `start` and `end`.

    Args:
        server: an SDK `Server` or `MCPServer`, or a `FastMCP`. A read does not pass FastMCP's own middleware,
            and a FastMCP that mounts this one does not see the resource: add it to the outer one.
        uri: the URI, or a URI template (RFC 6570) with variables of a whole family: `music://{id}`. The
            variables `start` and `end` are added unless it has them.
        source: a file (read anew for each range, so that it may change between two), the bytes, or a
            `ReadCallable`, which a template with variables needs.
        growing: in place of `source`, an async iterator of bytes that are still being made, such as speech,
            or a callable that returns one for the template's variables. It runs once, from now on (a
            callable's from the first link or read on), and any number of clients read it meanwhile, until ten
            minutes after its end. A server has at most 32. Clients get notifications of its growth. Clients
            of revisions before 2026-07-28 get them only if the first growing resource, or a callable, was
            added before they connected.
        kept_bytes: the number of the newest bytes of `growing` to store (64 MiB).
        name: the last part of the URI by default.
        title, description: as in any resource.
        mime_type: guessed from the name's suffix by default. size_bytes, sha256: the size and digest of the
            bytes of a callable, if they are known and the same for all variables. `sha256` is hexadecimal,
            and announced in `file` form. A file or bytes need neither.
        meta_key: the key of `_meta` that holds the range of a read.
        page_bytes: the most that one read returns.
        whole_bytes: the most that a read without a range returns; 0 refuses every such read.
        end_marker: the blob at and after the end. Empty by default; some clients expect `b"[DONE]"`.
        files: a `FileDownloads` that also offers the resource as a file over HTTP, while the server has an
            HTTP side.
        ttl_seconds, cache_scope: the time for which clients of revision 2026-07-28 may share a page, and the
            scope: `public` includes other users. By default they share none, as in the SDK.

    Raises:
        UsageError: `server` is not such a server; `uri` is not a URI or template, or has a fragment; `source`
            is not an existing file, bytes or a callable; a template has variables and `source` is not a
            callable, or does not take them; `sha256` is not a SHA-256 in hexadecimal; both or neither of
            `source` and `growing` are given, or `files` with `growing`.
        MCPError: 32 items of `growing` are being made already.
    """
    template, variables = _template_and_variables(uri)
    if (source is None) == (growing is None) or (growing is not None and files is not None):
        raise UsageError(f"{uri}: expected either a source or growing (without files), got both or neither")
    registration = _Registration.of(_sdk_server(server))
    if growing is None:
        bytes_of = source_of(source, size_bytes=size_bytes, sha256=sha256)
    else:
        bytes_of = registration.growing_source(growing, kept_bytes=kept_bytes)
    resource = RangedResource(
        uri=uri,
        template=template,
        name=name or _last_part(uri),
        title=title,
        description=description,
        mime_type=mime_type or mimetypes.guess_type(_last_part(uri))[0] or "application/octet-stream",
        meta_key=meta_key,
        page_bytes=page_bytes,
        whole_bytes=whole_bytes,
        end_marker=end_marker,
        files=files,
        ttl_seconds=ttl_seconds,
        cache_scope=cache_scope,
        variables=variables,
        required=_required_variables(source if growing is None else growing, variables, uri),
        _parsed=UriTemplate.parse(template),
        _source=bytes_of,
    )
    registration.add(resource)
    if files is not None:
        files.resources.append(resource)
    return resource


@dataclass(frozen=True, slots=True, kw_only=True)
class RangedResource:
    """A resource, or a family of them. `ranged_resource` makes it."""

    uri: str
    """The URI, or the template of a family, as the author wrote it."""
    template: str
    """The listed template, with `start` and `end`."""
    name: str
    title: str | None
    description: str | None
    mime_type: str
    meta_key: str
    page_bytes: int
    whole_bytes: int
    end_marker: bytes
    files: FileForm | None = field(repr=False)
    ttl_seconds: float
    cache_scope: Literal["public", "private"]
    variables: frozenset[str]
    """The variables of a family; empty for a single resource."""
    required: frozenset[str]
    """The variables without which the callable cannot read."""
    _parsed: UriTemplate = field(repr=False)
    _source: ByteSource | GrowingSource = field(repr=False)

    def expand(self, **values: str) -> str:
        """Return the URI of one resource of the family, without a range."""
        return self._parsed.expand(values) if self.variables else self.uri

    async def link(self, **values: str) -> types.ResourceLink:
        """Return a link to the resource, for the result of a tool; `values` are the template's variables.

        Raises:
            MCPError: the callable refused to read its first byte.
        """
        piece = await self.read(0, 1, values)
        return types.ResourceLink(
            type="resource_link",
            uri=self.expand(**values),
            name=piece.name or self.name,
            title=self.title,
            description=self.description,
            mime_type=piece.mime_type,
            size=None if piece.is_live else piece.total_bytes,
            _meta=_without_none({ETAG_META: piece.etag, LIVE_META: piece.is_live}) or None,
        )

    def growing_item(self, **values: str) -> GrowingItem:
        """Start `growing` if it has not started, and return its bytes so far. Raises `MCPError` if it cannot
        start, and `UsageError` for a resource with a `source`."""
        if not isinstance(self._source, GrowingSource):
            raise UsageError(f"{self.uri}: expected a resource that grows, got one with a source")
        return self._source.item(values)

    async def file(self, **values: str) -> dict[str, Any]:
        """Describe the resource as a file of SEP-2631: `uri`, `name`, `mimeType`, and `size` and `digest` if
        known.

        Raises:
            MCPError: as `link`.
        """
        piece = await self.read(0, 1, values)
        digest = await self._source.sha256(piece)
        file = {"uri": self.expand(**values), "name": piece.name or self.name, "mimeType": piece.mime_type}
        size = {} if piece.total_bytes is None else {"size": piece.total_bytes}
        return file | size | ({} if digest is None else {"digest": _digest_members(digest)})

    async def read(self, start: int, end: int, values: Mapping[str, str]) -> ResourceBytes:
        """Read `[start, end)`, at most `page_bytes` of it. `data` is empty at and after the end.

        Raises:
            MCPError: the callable refused, or the file cannot be read (-32603).
        """
        end = min(end, start + self.page_bytes)
        piece = await self._source.read(start, end, values)
        etag = piece.etag
        if etag is not None and not etag.startswith(('"', 'W/"')):
            etag = f'"{etag}"'
        mime_type = piece.mime_type or self.mime_type
        return replace(piece, data=piece.data[: end - start], mime_type=mime_type, etag=etag)

    async def answer(self, params: Mapping[str, object]) -> types.ReadResourceResult | None:
        """Answer a `resources/read`, whose `params` are as received; None if it reads another resource.

        Raises:
            MCPError: -32602 for an invalid range or variable, or no range where the resource is too long;
                otherwise as `read`.
        """
        uri = str(params.get("uri", ""))
        matched = self.match(uri)
        if matched is None:
            return None
        meta = params.get("_meta")
        sources = (params.get("arguments"), meta.get(self.meta_key) if isinstance(meta, Mapping) else None)
        # `_meta` may hold the range only; the variables are then in `arguments` or in the URI.
        arguments = {
            str(key): value
            for source in sources
            if isinstance(source, Mapping)
            for key, value in source.items()
        }
        values = {**matched, **arguments}
        from_uri = values.keys() - arguments.keys()  # a number is a string in the URI, but not in arguments
        if self.whole_bytes and values.keys().isdisjoint(("start", "end")):
            start, piece = 0, await self._read_whole(self.known(matched, arguments))
        else:
            start = self._check_offset(values.get("start"), "start", may_be_string="start" in from_uri)
            end = self._check_offset(values.get("end"), "end", may_be_string="end" in from_uri)
            if start >= end:
                self._refuse(f"start {start} is not before end {end}")
            piece = await self.read(start, end, self.known(matched, arguments))
            if not piece.data and not piece.is_live:
                piece = replace(piece, data=self.end_marker, mime_type=None)
        meta = {
            OFFSET_META: start,
            ETAG_META: piece.etag,
            SIZE_META: piece.total_bytes,
            LIVE_META: piece.is_live,
        }
        contents = types.BlobResourceContents(
            uri=uri,
            mime_type=piece.mime_type,
            blob=base64.b64encode(piece.data).decode("ascii"),
            _meta=_without_none(meta),
        )
        return types.ReadResourceResult(
            contents=[contents], ttl_ms=int(1000 * self.ttl_seconds), cache_scope=self.cache_scope
        )

    def match(self, uri: str) -> dict[str, object] | None:
        """Return the variables in `uri`, which may include `start` and `end`; None for another resource."""
        if uri == self.uri and not self.variables:
            return {}
        variables = self._parsed.match(uri)
        return None if variables is None else dict(variables)

    def known(self, matched: Mapping[str, object], given: Mapping[str, object]) -> dict[str, str]:
        """Return the variables in the URI (`matched`) and in the arguments (`given`).

        Raises `MCPError` (-32602) if one is wrong.
        """
        known: dict[str, str] = {}
        for name in sorted(self.variables):
            value = given.get(name, matched.get(name))
            if value != matched.get(name, value):  # a gateway may have checked only the URI
                self._refuse(f"{name} is {value!r:.80}, and {matched[name]!r:.80} in the URI")
            if isinstance(value, str):
                known[name] = value
            elif value is not None:
                self._refuse(f"{name} is {value!r:.80}")
            elif name in self.required:
                self._refuse(f"{name} is missing")
        return known

    async def _read_whole(self, values: Mapping[str, str]) -> ResourceBytes:
        """Read the whole resource by pages. Raises `MCPError` if it is too long, or changes meanwhile."""
        data, etag, size = bytearray(), None, 0
        while True:
            piece = await self.read(len(data), self.whole_bytes + 1, values)
            if piece.is_live:
                self._refuse("it still grows, and no range was given")
            if data and piece.etag != etag:
                raise MCPError(types.INTERNAL_ERROR, "it changed while it was read; read it again")
            data, etag, size = data + piece.data, piece.etag, max(size, piece.total_bytes or 0)
            if max(size, len(data)) > self.whole_bytes:
                self._refuse(f"it has more than {self.whole_bytes} bytes, and no range was given")
            if not piece.data and len(data) < size:
                raise MCPError(types.INTERNAL_ERROR, f"it has {size} bytes and ended after {len(data)}")
            if not piece.data or len(data) == size:
                return replace(piece, data=bytes(data), total_bytes=len(data))

    def _check_offset(self, value: object, name: str, *, may_be_string: bool) -> int:
        if may_be_string and isinstance(value, str) and re.fullmatch(r"[0-9]{1,16}", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self._refuse(f"{name} is {value!r:.80}" if value is not None else f"{name} is missing")
        if not 0 <= value <= _LARGEST_OFFSET:
            self._refuse(f"{name} is {str(value)[:40]}")
        return value

    def _refuse(self, fault: str) -> NoReturn:
        others = "".join(f"{name} (a string), " for name in sorted(self.variables))
        raise MCPError(
            types.INVALID_PARAMS,
            f"{fault}; expected {others}start and end (bytes, whole numbers, 0 <= start < end), as "
            f"`arguments`, as `_meta`, or in the URI like {self.template}",
        )


class _Registration:
    """The ranged resources of one server. Its handlers answer before the server's own."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server
        self._growing_items = GrowingItems()
        self._bus: SubscriptionBus | None = None
        """Notifies clients of revision 2026-07-28; None before the first growing resource."""
        self._resources: list[RangedResource] = []
        self._own_handlers = {
            method: server.get_request_handler(method)
            for method in (
                "resources/list",
                "resources/templates/list",
                "resources/read",
                "resources/subscribe",
                "resources/unsubscribe",
            )
        }
        for method, params, handler in (
            ("resources/list", types.PaginatedRequestParams, self._list),
            ("resources/templates/list", types.PaginatedRequestParams, self._list_templates),
            ("resources/read", types.ReadResourceRequestParams, self._read),
            ("files/authorizeDownload", _AuthorizeParams, self._authorize),
        ):
            server.add_request_handler(method, params, cast("Any", handler))
        # The first middleware gets the result last, after FastMCP's own middleware, which drops unknown
        # members.
        server.middleware.insert(0, self._announce_files)

    @classmethod
    def of(cls, server: Server[Any]) -> _Registration:
        entry = server.get_request_handler("resources/read")
        owner = getattr(entry.handler, "__self__", None) if entry is not None else None
        return owner if isinstance(owner, cls) else cls(server)

    def add(self, resource: RangedResource) -> None:
        source = resource._source
        if isinstance(source, GrowingSource):
            source.expand = resource.expand
            source.on_dropped = partial(self._resources.remove, resource)
            source.start_now()
        self._resources.append(resource)

    def growing_source(self, growing: Growing, *, kept_bytes: int) -> GrowingSource:
        """Return the source of a growing resource. The first one lets clients subscribe to resources."""
        if self._bus is None:
            entry = self._server.get_request_handler("subscriptions/listen")
            self._bus = InMemorySubscriptionBus() if entry is None else getattr(entry.handler, "_bus", None)
            if self._bus is None:
                # The author has another handler, so clients must poll. The SDK (2.3) makes no bus public.
                self._bus = InMemorySubscriptionBus()
            if entry is None:
                listen, params = ListenHandler(self._bus), types.SubscriptionsListenRequestParams
                self._server.add_request_handler("subscriptions/listen", params, listen)
            for method, params_type, handler in (
                ("resources/subscribe", types.SubscribeRequestParams, self._subscribe),
                ("resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe),
            ):
                self._server.add_request_handler(method, params_type, cast("Any", handler))
        bus = self._bus

        async def announce(uri: str) -> None:
            await bus.publish(ResourceUpdated(uri=uri))

        return GrowingSource(growing, kept_bytes=kept_bytes, items=self._growing_items, announce=announce)

    def _growing_item(self, uri: str) -> GrowingItem | None:
        for each in self._resources:
            matched = each.match(uri)
            if matched is not None and isinstance(each._source, GrowingSource):
                return self._growing_items.by_uri.get(each.expand(**each.known(matched, {})))
        return None

    async def _subscribe(self, context: Context, params: types.SubscribeRequestParams) -> HandlerResult:
        uri = str(params.uri)
        if (item := self._growing_item(uri)) is not None:
            notify = partial(context.session.send_resource_updated, uri)
            item.subscribe(_connection_key(context), notify)
        elif (entry := self._own_handlers["resources/subscribe"]) is not None:
            return await entry.handler(context, params)
        return types.EmptyResult()

    async def _unsubscribe(self, context: Context, params: types.UnsubscribeRequestParams) -> HandlerResult:
        if (item := self._growing_item(str(params.uri))) is not None:
            item.unsubscribe(_connection_key(context))
        elif (entry := self._own_handlers["resources/unsubscribe"]) is not None:
            return await entry.handler(context, params)
        return types.EmptyResult()

    async def _list(self, context: Context, params: types.PaginatedRequestParams) -> HandlerResult:
        listed = await self._own_listing(types.ListResourcesResult, {"resources": []}, context, params)
        if isinstance(listed, types.ListResourcesResult) and listed.next_cursor is None:
            for each in self._resources:
                if not each.variables:
                    listed.resources.append(await _listed_resource(each))
        return listed

    async def _list_templates(self, context: Context, params: types.PaginatedRequestParams) -> HandlerResult:
        empty: dict[str, Any] = {"resourceTemplates": []}
        listed = await self._own_listing(types.ListResourceTemplatesResult, empty, context, params)
        if isinstance(listed, types.ListResourceTemplatesResult) and listed.next_cursor is None:
            listed.resource_templates.extend(
                types.ResourceTemplate(
                    uri_template=each.template,
                    name=each.name,
                    title=each.title,
                    description=each.description,
                    mime_type=None if each.variables else each.mime_type,
                )
                for each in self._resources
            )
        return listed

    async def _own_listing(
        self, model: type[_Listing], empty: dict[str, Any], context: Context, params: Any
    ) -> HandlerResult:
        """Return a copy of the server's own listing, for adding ranged resources, or the server's error."""
        entry = self._own_handlers[context.method]
        result = empty if entry is None else await entry.handler(context, params)
        if isinstance(result, types.ErrorData):
            return result
        if isinstance(result, model):
            result = result.model_dump(by_alias=True, exclude_unset=True)
        return model.model_validate(result)

    async def _read(self, context: Context, params: types.ReadResourceRequestParams) -> HandlerResult:
        # Pass the raw params on, because the typed ones lack `arguments`.
        for resource in self._resources:
            result = await resource.answer(context.params or {})
            if result is not None:
                late, contents = LateBlob.of(context), result.contents[0]
                if late is not None and isinstance(contents, types.BlobResourceContents):
                    contents.blob = late.leave(contents.blob)
                return result
        entry = self._own_handlers["resources/read"]
        if entry is None:
            raise self._unknown_resource(str(params.uri), context)
        return await entry.handler(context, params)

    async def _authorize(self, context: Context, params: _AuthorizeParams) -> HandlerResult:
        for resource in self._resources:
            files = resource.files
            matched = resource.match(params.uri)
            if files is not None and matched is not None:
                base_url = files.base_url(context.request)
                if base_url is None:
                    raise MCPError(
                        types.METHOD_NOT_FOUND,
                        "expected a connection over HTTP: this one has no address for a link; read the "
                        "resource with resources/read",
                    )
                values = resource.known(matched, params.arguments or {})
                return await files.authorize(resource, values, base_url=base_url)
        if all(resource.files is None for resource in self._resources):
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", "files/authorizeDownload")
        raise self._unknown_resource(params.uri, context)

    async def _announce_files(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Add the capability `files` to the handshake if a resource can be downloaded."""
        result = await call_next(ctx)
        if ctx.method not in ("initialize", "server/discover") or result is None:
            return result
        offers = [each.files for each in self._resources if each.files is not None]
        bases = [base for files in offers if (base := files.base_url(ctx.request)) is not None]
        if not bases or isinstance(result, types.ErrorData):
            return result
        members = dict(result) if isinstance(result, Mapping) else _as_json(result)
        transports = sorted({urlsplit(base).scheme for base in bases})
        files = {"files": {"download": True, "transports": transports}}
        return members | {"capabilities": {**members.get("capabilities", {}), **files}}

    def _unknown_resource(self, uri: str, context: Context) -> MCPError:
        is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS  # SEP-2164 changed the code
        known = ", ".join(each.template for each in self._resources)
        code = types.INVALID_PARAMS if is_modern else RESOURCE_NOT_FOUND
        return MCPError(code, f"unknown resource {uri[:200]!r}; this server has {known}", {"uri": uri[:200]})


class _AuthorizeParams(types.RequestParams):
    uri: str
    arguments: dict[str, Any] | None = None
    """Variables of the template that are not in the URI, as in the `arguments` form."""


def _template_and_variables(uri: str) -> tuple[str, frozenset[str]]:
    """Return the template with `start` and `end`, and the names of its other variables."""
    try:
        names = set(UriTemplate.parse(uri).variable_names)
    except InvalidUriTemplate as error:
        raise UsageError(f"expected a URI or a URI template, got {uri!r}: {error}") from error
    if "#" in uri or not urlsplit(uri).scheme:
        raise UsageError(f"expected a URI with a scheme and without a fragment, got {uri!r}")
    missing = ",".join(name for name in ("start", "end") if name not in names)
    if not missing:
        template = uri
    elif re.search(r"\{[?&][^}]+\}$", uri):
        template = f"{uri[:-1]},{missing}}}"
    else:
        template = f"{uri}{{{'&' if '?' in uri else '?'}{missing}}}"
    return template, frozenset(names - {"start", "end"})


def _required_variables(source: object, variables: frozenset[str], uri: str) -> frozenset[str]:
    """Return the variables that `source` requires."""
    if not callable(source):
        if variables:
            raise UsageError(f"{uri} has variables; expected a callable that reads, got {source!r:.80}")
        return frozenset()
    parameters = inspect.signature(source).parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    if not takes_any and (unknown := sorted(variables - parameters.keys())):
        raise UsageError(f"expected a callable with the parameters {', '.join(unknown)} of {uri}")
    return frozenset(
        name for name in variables & parameters.keys() if parameters[name].default is inspect.Parameter.empty
    )


def _sdk_server(server: object) -> Server[Any]:
    for inner in (server, getattr(server, "_lowlevel_server", None), getattr(server, "_mcp_server", None)):
        if isinstance(inner, Server):
            return inner
    raise UsageError(f"expected a Server or MCPServer of the SDK or a FastMCP, got {type(server).__name__}")


def _last_part(uri: str) -> str:
    plain = re.sub(r"\{.*?\}", "", uri).partition("?")[0].rstrip("/")
    return plain.rpartition("/")[2].rpartition(":")[2] or uri


async def _listed_resource(resource: RangedResource) -> types.Resource:
    try:
        link = await resource.link()
    except MCPError:  # list it without details; a read will report the error
        return types.Resource(
            uri=resource.uri,
            name=resource.name,
            title=resource.title,
            description=resource.description,
            mime_type=resource.mime_type,
        )
    return types.Resource.model_validate(link.model_dump(by_alias=True, exclude={"type"}, exclude_none=True))


def _connection_key(context: Context) -> int:
    """Return a key that is the same for all requests of a connection."""
    return id(context.session.client_params)


def _without_none(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in meta.items() if value is not None}


def _as_json(result: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", result.model_dump(by_alias=True, mode="json", exclude_none=True))


def _digest_members(digest: bytes) -> dict[str, str]:
    """Return the digest in both forms of the draft: base64url, and hexadecimal for people."""
    value = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return {"algorithm": "sha-256", "value": value, "sha-256": digest.hex()}
