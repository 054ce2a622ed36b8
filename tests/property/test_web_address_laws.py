"""A web address has the parts that httpx2 finds in the same text, and is refused where httpx2 refuses it."""

from __future__ import annotations

import re

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from playhead.web_address import WebAddress

CROOKED = re.compile(r"^:|//[^/?#]*(?:[ \"<>\\^`{|}\[\]]|:[^/?#@]*[^0-9/?#@]|:[0-9]{6})")
"""Refused here, taken by httpx2: an empty scheme, and authorities that parsers disagree about."""
PIECES = st.sampled_from(
    [
        *(
            "http:",
            "https:",
            "WS:",
            "wss:",
            "file:",
            "x-1.+:",
            ":",
            "//",
            "/",
            "?",
            "#",
            "@",
            "[",
            "]",
            "::1",
        ),
        *("[::1]", "[fe80::1%25eth0]", "127.0.0.1", "127.1", "1.2.3.256", "0x7f.1", "ExAmple.com", "münchen"),
        *(
            "%",
            "%2F",
            "%zz",
            "..",
            ".",
            "\\",
            " ",
            "\t",
            "\n",
            "\x7f",
            "\x00",
            "80",
            "443",
            "8080",
            "-1",
            "+8",
        ),
        *(
            "a",
            "b:c",
            "ß",
            "İ",
            "①",
            "。",
            "\u2028",
            "\x85",
            '"',
            "<",
            "`",
            "{",
            "|",
            "^",
            "_",
            "~",
            "=",
            "&",
        ),
    ]
)
TEXTS = st.lists(PIECES | st.characters(codec="utf-8"), max_size=9).map("".join)
URLS = st.builds("{}://{}{}".format, st.sampled_from(["http", "https", "ws"]), TEXTS, TEXTS)


def parts(address: WebAddress) -> tuple[object, ...]:
    return (
        *(str(address), address.scheme, address.userinfo.encode(), address.host.encode(), address.port),
        *(address.target.encode(), (address.query or "").encode(), address.host_and_port.encode()),
    )


def parts_of_httpx2(url: httpx2.URL) -> tuple[object, ...]:
    return (str(url), url.scheme, url.userinfo, url.raw_host, url.port, url.raw_path, url.query, url.netloc)


@given(TEXTS | URLS)
@example("http://[::1]80/")
@example("http://a:+80/")
@example("http://a\\@b/")
@example("http://u:p@w:1@[::1]:8/a/../b?c#d")
@example("http://h/#a#b`")
@example("http://h:٣/")
def test_it_is_parsed_as_by_httpx2_or_refused(text: str) -> None:
    try:
        address = WebAddress.parse(text)
    except ValueError:
        try:
            httpx2.URL(text)
        except (httpx2.InvalidURL, ValueError):
            return
        assert CROOKED.search(text), "it is refused, and httpx2 takes it"
        return
    assert parts(address) == parts_of_httpx2(httpx2.URL(text))


@given(URLS, TEXTS)
@example("http://h/a/b", "//other/c")
@example("http://h/a/b", "?q")
@example("http://h/a/b", "https:\\\\other")
def test_a_reference_is_resolved_as_by_httpx2(base: str, reference: str) -> None:
    try:
        joined = WebAddress.parse(base).join(reference)
    except ValueError:
        return
    assert str(joined) == str(httpx2.URL(base).join(reference))


@pytest.mark.parametrize(
    "text", ["http://h\t/", "http://h/\n", " http://h\r", "http://\x00h", "http://h/\x7f"]
)
def test_a_control_character_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="control character"):
        WebAddress.parse(text)


def test_credentials_are_decoded() -> None:
    assert WebAddress.parse("http://jo%40x:a%20b@h").credentials == ("jo@x", "a b")
    assert WebAddress.parse("http://h").credentials is None
