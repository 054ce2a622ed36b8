"""An HTTP answer becomes the block that fits its body."""

from __future__ import annotations

import pytest

from playhead.content import dump, tool_response_from_http, validate_tool_response
from playhead.errors import UsageError

URL = "https://example.org/a"


def made(content_type: str | None, body: bytes, *, status: int = 200) -> dict[str, object]:
    return dump(tool_response_from_http(status, "get", URL, content_type, body, now=lambda: 12.9))


META = {"httpStatus": 200, "method": "GET", "url": URL, "timestamp": "1970-01-01T00:00:12Z"}


def text(value: str, status: int = 200) -> list[dict[str, object]]:
    return [{"type": "text", "text": value, "_meta": META | {"httpStatus": status}}]


@pytest.mark.requirement("TR-10", "TR-12")
def test_an_object_is_text_and_structured_content() -> None:
    assert made("application/json; charset=utf-8", b'{"a": 1}') == {
        "content": text('{"a": 1}'),
        "structuredContent": {"a": 1},
        "isError": False,
        "resultType": "complete",
        "_meta": META,
    }


@pytest.mark.parametrize(
    "body", [b"[1]", b"1", b"{", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": "\\ud800"}', b"[" * 100_000]
)
def test_json_that_is_no_object_is_text_alone(body: bytes) -> None:
    result = made("application/problem+json", body)
    assert result["content"] == text(body.decode())
    assert "structuredContent" not in result


@pytest.mark.requirement("TR-09")
@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("text/plain; charset=iso-8859-1", b"\xe9", "é"),
        ('TEXT/HTML; Charset="utf-8"', b"\xc3\xa9", "é"),
        ("text/plain", b"\xc3\xa9", "é"),
        ("text/plain", b"\xe9", "é"),
        ("text/plain; charset=utf-8", b"\xff!", "\ufffd!"),
        ("text/plain; charset=latin-1", b"\xef\xbb\xbf\xc3\xa9", "é"),
        ("text/plain", "é".encode("utf-16"), "é"),
        ("text/plain; charset=zlib", b"abc", "abc"),
        ("text/plain; charset=punycode", b"abc-def", "abc-def"),
        ("text/plain; charset=undefined", b"abc", "abc"),
        ("text/plain; charset=a\x00b", b"abc", "abc"),
        ("text/plain; charset=utf-7", b"+2AA-", "?"),
        ("application/xml", b"<a/>", "<a/>"),
        ("application/atom+xml", b"<a/>", "<a/>"),
        (None, b"plain", "plain"),
        ("nonsense", b"plain", "plain"),
    ],
)
def test_text_is_decoded_by_its_charset(content_type: str | None, body: bytes, expected: str) -> None:
    assert made(content_type, body)["content"] == text(expected)


@pytest.mark.requirement("TR-09")
@pytest.mark.parametrize(
    ("content_type", "block"),
    [
        ("image/png", {"type": "image", "data": "AAE=", "mimeType": "image/png"}),
        ("audio/mpeg", {"type": "audio", "data": "AAE=", "mimeType": "audio/mpeg"}),
        (
            "application/pdf",
            {"type": "resource", "resource": {"uri": URL, "blob": "AAE=", "mimeType": "application/pdf"}},
        ),
        (
            None,
            {
                "type": "resource",
                "resource": {"uri": URL, "blob": "AAE=", "mimeType": "application/octet-stream"},
            },
        ),
    ],
)
def test_bytes_keep_their_type(content_type: str | None, block: dict[str, object]) -> None:
    assert made(content_type, b"\x00\x01")["content"] == [block | {"_meta": META}]


def test_an_empty_body_is_said_to_be_empty() -> None:
    assert made("image/png", b"", status=204)["content"] == text("HTTP 204 with an empty body", 204)


@pytest.mark.requirement("TR-11")
@pytest.mark.parametrize(
    ("status", "failed"), [(199, True), (200, False), (299, False), (300, True), (500, True)]
)
def test_a_status_outside_the_200s_is_an_error(status: int, failed: bool) -> None:
    assert made("text/plain", b"x", status=status)["isError"] is failed


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:secret@example.org/x", "https://example.org/x"),
        ("https://example.org/x?key=secret&page=secret", "https://example.org/x?key=…&page=…"),
        ("https://example.org/x?secret#secret", "https://example.org/x?…"),
        ("https://example.org/secretSECRET0123456789/x", "https://example.org/…/x"),
    ],
)
@pytest.mark.parametrize("content_type", ["text/plain", "a/b"])
def test_a_secret_in_the_url_goes_nowhere(url: str, shown: str, content_type: str) -> None:
    result = dump(tool_response_from_http(200, "GET", url, content_type, b"\x00"))
    (block,) = result["content"]
    assert "secret" not in str(result).lower()
    assert result["_meta"]["url"] == block["_meta"]["url"] == shown
    if content_type == "a/b":
        assert block["resource"]["uri"] == shown.replace("…", "%E2%80%A6")
    assert validate_tool_response(result) == []


@pytest.mark.parametrize(
    ("status", "method", "url", "word"),
    [
        (0, "GET", URL, "status"),
        (200, "", URL, "method"),
        (200, "G T", URL, "method"),
        (200, "GET", "a", "url"),
    ],
)
def test_a_wrong_argument_is_named(status: int, method: str, url: str, word: str) -> None:
    with pytest.raises(UsageError, match=f"^{word}: expected"):
        tool_response_from_http(status, method, url, None, b"")
