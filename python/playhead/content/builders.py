"""Builders of tool results in the SDK's types, from values or from an HTTP response.

The builders validate their arguments, so that no client sees an invalid result: they raise `UsageError` with
the name of the argument, the expected value and the actual one. The dumped JSON has no absent field as null.

The result for an HTTP response has one block with the body. Both the result and the block have the details of
the request in `_meta`, because many clients pass on only the blocks. A query often holds a secret
key, so its values are redacted.
"""

from __future__ import annotations

import codecs
import json
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote

from mcp_types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    Icon,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from playhead.content.audio import is_audio, split_mime
from playhead.content.blocks import Block
from playhead.content.findings import ABSENT, Absent, kind_of
from playhead.content.formats import base64_problem, meta_key_problem, mime_problem, time_problem, uri_problem
from playhead.content.types import StandardContent, TypedContent
from playhead.errors import UsageError
from playhead.redaction import LEFT_OUT, redacted_url
from playhead.strict_json import parse_json

Role = Literal["user", "assistant"]
_Typed = TypeVar("_Typed", str, bool, int)


def create_annotations(
    *,
    audience: Iterable[Role] | None = None,
    priority: float | None = None,
    last_modified: datetime | str | None = None,
) -> Annotations:
    """Build annotations: the audience of a block, its priority (0 to 1), and its last change.

    `last_modified` is a timezone-aware datetime or an ISO 8601 string. Raises `UsageError` for anything else.
    """
    roles = None if audience is None else list(audience)
    for role in roles or ():
        if role not in ("user", "assistant"):
            raise _unexpected("annotations.audience", "user or assistant", repr(role))
    if priority is not None:
        _require_fraction("annotations.priority", priority)
    if isinstance(last_modified, datetime):
        if last_modified.tzinfo is None:
            raise _unexpected("annotations.last_modified", "a datetime with a time zone", "one without")
        last_modified = last_modified.isoformat().replace("+00:00", "Z")
    elif last_modified is not None:
        _require(str, "annotations.last_modified", last_modified)
        if problem := time_problem(last_modified):
            raise _unexpected("annotations.last_modified", "an ISO 8601 time", problem)
    return Annotations(audience=roles, priority=priority, last_modified=last_modified)


def create_text_content(
    text: str, *, annotations: Annotations | None = None, meta: Mapping[str, object] | None = None
) -> TextContent:
    """Build a text block. Raises `UsageError` for text that cannot be encoded as UTF-8."""
    return TextContent(
        text=_require_text("text", text),
        annotations=_require_annotations(annotations),
        _meta=_require_meta("meta", meta),
    )


def create_image_content(
    data: bytes | bytearray | memoryview | str,
    mime_type: str,
    *,
    annotations: Annotations | None = None,
    meta: Mapping[str, object] | None = None,
) -> ImageContent:
    """Build an image block. `data` is bytes, or base64 (RFC 4648, padded).

    Raises `UsageError` for invalid base64, and for a MIME type other than `image/…`.
    """
    if not _require_mime("mime_type", mime_type).lower().startswith("image/"):
        raise _unexpected("mime_type", "an image/… type", repr(mime_type))
    return ImageContent(
        data=_to_base64("data", data),
        mime_type=mime_type,
        annotations=_require_annotations(annotations),
        _meta=_require_meta("meta", meta),
    )


def create_audio_content(
    data: bytes | bytearray | memoryview | str,
    mime_type: str,
    *,
    annotations: Annotations | None = None,
    meta: Mapping[str, object] | None = None,
) -> AudioContent:
    """Build an audio block. `data` is bytes, or base64 (RFC 4648, padded).

    Raises `UsageError` for invalid base64, and for a MIME type that is not audio.
    """
    if not is_audio(_require_mime("mime_type", mime_type), None):
        raise _unexpected("mime_type", "an audio/… type, or application/ogg", repr(mime_type))
    return AudioContent(
        data=_to_base64("data", data),
        mime_type=mime_type,
        annotations=_require_annotations(annotations),
        _meta=_require_meta("meta", meta),
    )


def create_resource_link(
    uri: str,
    name: str,
    *,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    size_bytes: int | None = None,
    icons: Iterable[Icon] | None = None,
    annotations: Annotations | None = None,
    meta: Mapping[str, object] | None = None,
) -> ResourceLink:
    """Build a link to a resource that the client reads on demand; `size_bytes` is its decoded size.

    Raises `UsageError` for an invalid URI (RFC 3986; percent-encode other characters), an invalid MIME type,
    or a negative size.
    """
    if size_bytes is not None and _require(int, "size_bytes", size_bytes) < 0:
        raise _unexpected("size_bytes", "0 or more", str(size_bytes))
    return ResourceLink(
        uri=_require_uri("uri", uri),
        name=_require_text("name", name),
        title=None if title is None else _require_text("title", title),
        description=None if description is None else _require_text("description", description),
        mime_type=None if mime_type is None else _require_mime("mime_type", mime_type),
        size=size_bytes,
        icons=None if icons is None else list(icons),
        annotations=_require_annotations(annotations),
        _meta=_require_meta("meta", meta),
    )


def create_embedded_resource(
    uri: str,
    *,
    text: str | None = None,
    blob: bytes | bytearray | memoryview | str | None = None,
    mime_type: str | None = None,
    resource_meta: Mapping[str, object] | None = None,
    annotations: Annotations | None = None,
    meta: Mapping[str, object] | None = None,
) -> EmbeddedResource:
    """Build an embedded resource with either `text`, or `blob` as bytes or base64.

    `resource_meta` is the `_meta` of the contents, `meta` the block's. Raises `UsageError` for both
    or neither of `text` and `blob`, and for the same reasons as the other builders.
    """
    if (text is None) == (blob is None):
        raise _unexpected("text and blob", "exactly one of them", "neither" if text is None else "both")
    contents: TextResourceContents | BlobResourceContents
    _require_uri("uri", uri)
    kind = None if mime_type is None else _require_mime("mime_type", mime_type)
    inner = _require_meta("resource_meta", resource_meta)
    if text is not None:
        contents = TextResourceContents(
            uri=uri, text=_require_text("text", text), mime_type=kind, _meta=inner
        )
    else:
        contents = BlobResourceContents(uri=uri, blob=_to_base64("blob", blob), mime_type=kind, _meta=inner)
    return EmbeddedResource(
        resource=contents,
        annotations=_require_annotations(annotations),
        _meta=_require_meta("meta", meta),
    )


def create_tool_response(
    content: Iterable[StandardContent] = (),
    *,
    structured_content: object | Absent = ABSENT,
    is_error: bool = False,
    meta: Mapping[str, object] | None = None,
) -> CallToolResult:
    """Build the complete result of a tool call.

    `structured_content` is any JSON value (before 2026-07-28 only an object). If there is no other content,
    its JSON becomes a text block, as the specification recommends for clients that do not read structured
    content. Raises `UsageError` for content other than blocks, and for values that JSON cannot represent
    (NaN, bytes, cycles).
    """
    if isinstance(content, str | bytes | Mapping) or not isinstance(content, Iterable):
        raise _unexpected("content", "a list of blocks (create_text_content makes one)", kind_of(content))
    blocks = list(content)
    for index, block in enumerate(blocks):
        if not isinstance(block, StandardContent):
            raise _unexpected(f"content[{index}]", "a block that a builder made", type(block).__name__)
    _require(bool, "is_error", is_error)
    result = CallToolResult(content=list(blocks), is_error=is_error, _meta=_require_meta("meta", meta))
    if structured_content is not ABSENT:
        text = _to_json("structured_content", structured_content)
        result.structured_content = structured_content
        if not blocks:
            result.content.append(TextContent(text=text))
    return result


def dump(value: CallToolResult | TypedContent | Block) -> dict[str, Any]:
    """Return the JSON to send, with wire names and without absent fields; for a `Block`, the raw object.

    It keeps `structuredContent: null` if set explicitly, and nulls inside `_meta` and structured
    content.
    """
    if isinstance(value, Block):
        raw: dict[str, Any] = value.raw
        return raw
    wire: dict[str, Any] = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, CallToolResult) and "structured_content" in value.model_fields_set:
        wire.setdefault("structuredContent", None)
    return wire


def _unexpected(where: str, expected: str, actual: str) -> UsageError:
    return UsageError(f"{where}: expected {expected}, got {actual}")


def _require(kind: type[_Typed], where: str, value: object) -> _Typed:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _unexpected(where, f"a value of type {kind.__name__}", type(value).__name__)
    return value


def _require_fraction(where: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise _unexpected(where, "a number from 0 to 1", repr(value))


def _require_text(where: str, text: str) -> str:
    try:
        _require(str, where, text).encode()
    except UnicodeEncodeError as error:
        raise _unexpected(
            where, "text that can be encoded as UTF-8", f"a lone surrogate at {error.start}"
        ) from None
    return text


def _to_base64(where: str, data: object) -> str:
    if isinstance(data, bytes | bytearray | memoryview):
        return b64encode(data).decode("ascii")
    if not isinstance(data, str):
        raise _unexpected(where, "bytes or a base64 string", type(data).__name__)
    if problem := base64_problem(data):
        raise _unexpected(where, "base64 (RFC 4648, padded, no whitespace)", problem)
    return data


def _require_mime(where: str, text: str) -> str:
    if problem := mime_problem(_require(str, where, text)):
        raise _unexpected(where, "a MIME type such as audio/mpeg", problem)
    return text


def _require_uri(where: str, text: str) -> str:
    if problem := uri_problem(_require(str, where, text)):
        raise _unexpected(where, "an absolute URI, percent-encoded (RFC 3986)", problem)
    return text


def _require_annotations(annotations: Annotations | None) -> Annotations | None:
    if annotations is not None and not isinstance(annotations, Annotations):
        raise _unexpected(
            "annotations", "Annotations (create_annotations makes them)", type(annotations).__name__
        )
    return annotations


def _require_meta(where: str, meta: Mapping[str, object] | None) -> dict[str, Any] | None:
    if meta is None:
        return None
    if not isinstance(meta, Mapping):
        raise _unexpected(where, "a mapping", type(meta).__name__)
    for key in meta:
        if problem := meta_key_problem(_require(str, where, key)):
            raise _unexpected(where, "keys as the specification defines them (prefix.label/name)", problem)
    _to_json(where, dict(meta))
    return dict(meta)


def _to_json(where: str, value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _unexpected(where, "a JSON value", f"one that JSON cannot represent ({error})") from None
    return text


_TEXT_TYPES: Final = frozenset(
    {
        "application/ecmascript",
        "application/graphql",
        "application/javascript",
        "application/json5",
        "application/jsonl",
        "application/sql",
        "application/toml",
        "application/x-httpd-php",
        "application/x-javascript",
        "application/x-ndjson",
        "application/x-sh",
        "application/x-www-form-urlencoded",
        "application/x-yaml",
        "application/xml",
        "application/yaml",
    }
)
"""The MIME types of text outside `text/…`."""
_NOT_CHARSETS: Final = frozenset(
    {"idna", "mbcs", "oem", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"}
)
"""The Python codecs that are never HTTP charsets. Punycode takes time quadratic in the body."""
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def tool_response_from_http(
    status: int,
    method: str,
    url: str,
    content_type: str | None,
    body: bytes,
    *,
    now: Callable[[], float] = time.time,
) -> CallToolResult:
    """Convert a complete HTTP response to a tool result.

    Text becomes a text block (decoded by its charset, invalid bytes replaced). JSON becomes a text block and,
    if it is an object, also `structuredContent`. Images and audio become image and audio blocks, anything
    else an embedded blob under the URL. An empty body becomes one line of text, because some models reject an
    empty result. `isError` is true for a status outside 200–299. `_meta` of the result and of its
    block holds `httpStatus`, `method` in upper case, `url`, and `timestamp` (ISO 8601, UTC).

    The URL has no user, password and fragment, and `…` for query values and for path segments that look
    random (`redacted_url`). In the URI of a blob, `…` is percent-encoded.

    Args:
        status, method, url, content_type, body: as sent and received; `body` is complete, and decompressed.
        now: Unix time.

    Raises:
        UsageError: a status outside 100–599, an invalid method, or an invalid URL.
    """
    _check_arguments(status, method, url)
    shown_url = redacted_url(url)
    timestamp = datetime.fromtimestamp(now(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    meta = {"httpStatus": status, "method": method.upper(), "url": shown_url, "timestamp": timestamp}
    uri = shown_url.replace(LEFT_OUT, quote(LEFT_OUT))
    block, structured = _block_of_body(status, uri, (content_type or "").strip(), bytes(body))
    return create_tool_response(
        [block.model_copy(update={"meta": dict(meta)})],
        structured_content=structured,
        is_error=not 200 <= status <= 299,
        meta=meta,
    )


def _check_arguments(status: object, method: object, url: object) -> None:
    if isinstance(status, bool) or not isinstance(status, int) or not 100 <= status <= 599:
        raise UsageError(f"status: expected an HTTP status from 100 to 599, got {status!r:.40}")
    if not isinstance(method, str) or not method.isalpha() or not method.isascii():
        raise UsageError(f"method: expected an HTTP method such as GET, got {method!r:.40}")
    problem = uri_problem(url) if isinstance(url, str) else type(url).__name__
    if problem:
        raise UsageError(f"url: expected an absolute URI (RFC 3986), got {problem}")


def _block_of_body(
    status: int, uri: str, content_type: str, body: bytes
) -> tuple[StandardContent, object | Absent]:
    """Return the block for a body, and its structured content."""
    if not body:
        return create_text_content(f"HTTP {status} with an empty body"), ABSENT
    mime_type = None if not content_type or mime_problem(content_type) else content_type
    kind, parameters = split_mime(mime_type) if mime_type else ("", {})
    if kind == "application/json" or kind.endswith("+json"):
        text = _decode_text(body, parameters.get("charset"))
        return create_text_content(text), _json_object_or_absent(text)
    if mime_type and kind.startswith("image/"):
        return create_image_content(body, mime_type), ABSENT
    if mime_type and is_audio(kind, None):
        return create_audio_content(body, mime_type), ABSENT
    if (
        kind.startswith("text/")
        or kind in _TEXT_TYPES
        or kind.endswith(("+xml", "+yaml"))
        or "charset" in parameters
    ):
        return create_text_content(_decode_text(body, parameters.get("charset"))), ABSENT
    if mime_type is None and (plain := _text_or_none(body)) is not None:
        return create_text_content(plain), ABSENT
    mime_type = mime_type or "application/octet-stream"
    return create_embedded_resource(uri, blob=body, mime_type=mime_type), ABSENT


def _decode_text(body: bytes, charset: str | None) -> str:
    """Decode a body as browsers do: by its mark or charset, else as UTF-8, else as Windows-1252."""
    codec_of_bom = next((codec for bom, codec in _BOMS if body.startswith(bom)), None)
    codec = codec_of_bom or _usable_charset(charset)
    try:
        text = body.decode(codec or "utf-8", "replace" if codec else "strict")
    except UnicodeError:
        text = body.decode("cp1252", "replace")
    # UTF-7 and similar codecs can produce lone surrogates, which UTF-8 cannot encode.
    return text.encode("utf-8", "replace").decode("utf-8")


def _usable_charset(name: str | None) -> str | None:
    """Return the codec of a charset; None if it is unknown, or not a charset of HTTP."""
    try:
        # An unknown name or a bytes-to-bytes codec fails here, so nothing is decompressed.
        b"x".decode(name or "", "replace")
        codec = codecs.lookup(name or "").name
    except (LookupError, ValueError):
        return None
    return None if codec.replace("_", "-") in _NOT_CHARSETS else codec


def _text_or_none(body: bytes) -> str | None:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return text if all(character >= " " or character in "\t\n\r\f" for character in text) else None


def _json_object_or_absent(text: str) -> object | Absent:
    try:
        value = parse_json(text)
    except (ValueError, RecursionError):
        return ABSENT
    return value if isinstance(value, dict) and _can_be_encoded(value) else ABSENT


def _can_be_encoded(value: object) -> bool:
    """Return False for strings that a message cannot represent, because of a lone surrogate."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return True
