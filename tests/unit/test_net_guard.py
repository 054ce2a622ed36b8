"""The URLs, addresses and origins that the guard lets through."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from playhead.errors import BlockedAddressError, UsageError
from playhead.net_guard import Origin, check_url, parse_origins, why_not_global


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/a.mp3",
        "https://EXAMPLE.com:8443/a%20b?c=d#e",
        "http://93.184.216.34/",
        "http://[2606:2800:220:1::1]:80/",
        "http://a_b.example-1.org./",
        "http://xn--mnchen-3ya.de/",
        "http://example.com/@home",
    ],
)
def test_an_honest_url_passes(url: str) -> None:
    assert check_url(url).scheme in ("http", "https")


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("http://127.1/", "disguise"),
        ("http://2130706433/", "disguise"),
        ("http://0x7f000001/", "disguise"),
        ("http://0x7f.0.0.1/", "disguise"),
        ("http://0X7F.1/", "disguise"),
        ("http://017700000001/", "disguise"),
        ("http://0177.0.0.1/", "0177"),
        ("http://127.0.0.1./", "disguise"),
        ("http://1.2.3.4.5/", "disguise"),
        ("http://user@example.com/", "user name"),
        ("http://user:word@example.com/", "user name"),
        ("http://@example.com/", "user name"),
        ("http://example.com\\@127.0.0.1/", "backslash"),
        ("http://example.com/\r\nHost: x", "control"),
        ("http://exa\tmple.com/", "control"),
        ("http://exa mple.com/", "space"),
        ("http://①②⑦.⓪.⓪.①/", "non-ASCII"),
        ("http://exa%6dple.com/", "not a valid host name"),
        ("http://-example.com/", "not a valid host name"),
        ("http://a..b/", "not a valid host name"),
        ("http:///path", "not a valid host name"),
        ("http://[fe80::1%25eth0]/", "zone"),
        ("http://[::1/", "will not fetch"),
        ("http://example.com:0/", "port"),
        ("http://example.com:65536/", "will not fetch"),
        ("file:///etc/passwd", "file"),
        ("data:text/plain,hello", "data"),
        ("gopher://example.com/", "gopher"),
        ("ftp://example.com/", "ftp"),
        ("//example.com/", "relative"),
        ("", "relative"),
    ],
)
def test_a_crooked_url_is_refused_with_its_reason_and_the_remedy(url: str, word: str) -> None:
    with pytest.raises(BlockedAddressError, match=word) as caught:
        check_url(url)
    assert "an origin that you have allowed" in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "192.168.1.1",
        "198.18.0.1",
        "224.0.0.251",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a00:1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2001:0:7f00:1::",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "fc00::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
    ],
)
def test_an_address_that_is_or_stands_for_a_private_one_is_refused(address: str) -> None:
    assert why_not_global(ip_address(address)) is not None


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_a_global_address_passes(address: str) -> None:
    assert why_not_global(ip_address(address)) is None


def test_an_origin_is_scheme_host_and_port_with_the_default_port_filled_in() -> None:
    assert parse_origins(["http://LOCALHOST/", "https://[::1]:8443"]) == {
        Origin(scheme="http", host="localhost", port=80),
        Origin(scheme="https", host="::1", port=8443),
    }
    assert str(Origin.parse("https://[::1]:8443")) == "https://[::1]:8443"


@pytest.mark.parametrize("text", ["http://h/path", "http://h/?q", "http://h/#f", "h:80", "http://u@h/"])
def test_an_origin_with_more_or_less_than_scheme_host_and_port_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Origin.parse(text)
