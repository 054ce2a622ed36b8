"""Conversion of an HTTP response to a tool result: a block for the body, and request details in `_meta`.

The details are on the block as well as on the result, because many clients pass on the blocks alone. A query
often holds a key, so its values are redacted.
"""

from __future__ import annotations

import codecs
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from mcp_types import CallToolResult

from playhead.content.audio import is_audio, split_mime
from playhead.content.blocks import StandardContent
from playhead.content.builders import (
    create_audio_content,
    create_embedded_resource,
    create_image_content,
    create_text_content,
    create_tool_response,
)
from playhead.content.findings import ABSENT, Absent
from playhead.content.formats import mime_problem, uri_problem
from playhead.errors import UsageError
from playhead.redaction import LEFT_OUT, redacted_url
from playhead.strict_json import parse_json

_TEXT: Final = frozenset(
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
"""Text types outside `text/…`."""
_NO_CHARSETS: Final = frozenset(
    {"idna", "mbcs", "oem", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"}
)
"""Python codecs that are never HTTP charsets; punycode takes time quadratic in the body."""
_MARKS: Final = (
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
    empty result. `isError` is set outside 200–299. `_meta` of the result and of its block holds `httpStatus`,
    `method` in upper case, `url`, and `timestamp` (ISO 8601, UTC).

    The URL is redacted as everywhere (`redacted_url`): without user, password and fragment, and with `…` for
    query values and for path segments that look random. As the URI of a blob it has `…` percent-encoded.

    Args:
        status, method, url, content_type, body: as sent and received; `body` is complete, and decompressed.
        now: Unix time.

    Raises:
        UsageError: a status outside 100–599, an invalid method, or an invalid URL.
    """
    _check(status, method, url)
    shown = redacted_url(url)
    at = datetime.fromtimestamp(now(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    meta = {"httpStatus": status, "method": method.upper(), "url": shown, "timestamp": at}
    uri = shown.replace(LEFT_OUT, quote(LEFT_OUT))
    block, structured = _block(status, uri, (content_type or "").strip(), bytes(body))
    return create_tool_response(
        [block.model_copy(update={"meta": dict(meta)})],
        structured_content=structured,
        is_error=not 200 <= status <= 299,
        meta=meta,
    )


def _check(status: object, method: object, url: object) -> None:
    if isinstance(status, bool) or not isinstance(status, int) or not 100 <= status <= 599:
        raise UsageError(f"status: expected an HTTP status from 100 to 599, got {status!r:.40}")
    if not isinstance(method, str) or not method.isalpha() or not method.isascii():
        raise UsageError(f"method: expected an HTTP method such as GET, got {method!r:.40}")
    problem = uri_problem(url) if isinstance(url, str) else type(url).__name__
    if problem:
        raise UsageError(f"url: expected an absolute URI (RFC 3986), got {problem}")


def _block(status: int, uri: str, label: str, body: bytes) -> tuple[StandardContent, object | Absent]:
    if not body:
        return create_text_content(f"HTTP {status} with an empty body"), ABSENT
    mime_type = None if not label or mime_problem(label) else label
    kind, parameters = split_mime(label) if mime_type else ("", {})
    if kind == "application/json" or kind.endswith("+json"):
        text = _decoded(body, parameters.get("charset"))
        return create_text_content(text), _object_in(text)
    if mime_type and kind.startswith("image/"):
        return create_image_content(body, mime_type), ABSENT
    if mime_type and is_audio(kind, None):
        return create_audio_content(body, mime_type), ABSENT
    if (
        kind.startswith("text/")
        or kind in _TEXT
        or kind.endswith(("+xml", "+yaml"))
        or "charset" in parameters
    ):
        return create_text_content(_decoded(body, parameters.get("charset"))), ABSENT
    if mime_type is None and (text_found := _plainly_text(body)) is not None:
        return create_text_content(text_found), ABSENT
    whole = mime_type or "application/octet-stream"
    return create_embedded_resource(uri, blob=body, mime_type=whole), ABSENT


def _decoded(body: bytes, charset: str | None) -> str:
    """Decode a body by byte order mark, else charset, else UTF-8, else Windows-1252 as browsers do."""
    name = next((codec for mark, codec in _MARKS if body.startswith(mark)), None) or _charset(charset)
    try:
        text = body.decode(name or "utf-8", "replace" if name else "strict")
    except UnicodeError:
        text = body.decode("cp1252", "replace")
    # UTF-7 and similar codecs can produce lone surrogates, which UTF-8 cannot encode.
    return text.encode("utf-8", "replace").decode("utf-8")


def _charset(name: str | None) -> str | None:
    try:
        # An unknown name or a bytes-to-bytes codec fails here, so nothing is decompressed.
        b"x".decode(name or "", "replace")
        found = codecs.lookup(name or "").name
    except (LookupError, ValueError):
        return None
    return None if found.replace("_", "-") in _NO_CHARSETS else found


def _plainly_text(body: bytes) -> str | None:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return text if all(character >= " " or character in "\t\n\r\f" for character in text) else None


def _object_in(text: str) -> object | Absent:
    try:
        value = parse_json(text)
    except (ValueError, RecursionError):
        return ABSENT
    return value if isinstance(value, dict) and _can_be_sent(value) else ABSENT


def _can_be_sent(value: object) -> bool:
    """Return False for strings that a message cannot represent: those with a lone surrogate."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return True
