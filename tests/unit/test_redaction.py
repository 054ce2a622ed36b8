"""Secrets are left out of URLs, text and reports; the rest stays readable."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from playhead.config.servers import ServerConfig
from playhead.redacted_request import RedactedURL
from playhead.redaction import redacted, redacted_url, redacted_values


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/mcp", "https://host/mcp"),
        ("https://me:hush@host:81/mcp", "https://host:81/mcp"),
        ("https://host/mcp?key=hush&v=2#hush", "https://host/mcp?key=…&v=…"),
        ("https://host/mcp?hush", "https://host/mcp?…"),
        ("https://host/s/0123456789abcdef0123/mcp", "https://host/s/…/mcp"),
        ("https://host/aB3dE5gH7jK9mN1pQ3rS/sse", "https://host/…/sse"),
        ("https://host/a-long-name-in-plain-words", "https://host/a-long-name-in-plain-words"),
        ("wss://[::1]:8/mcp?k=hush", "wss://[::1]:8/mcp?k=…"),
        ("https://me:hush/x@host/", "https://host/"),
        ("https://host:port/?key=hush", "https://host:port/?key=…"),
        ("not a url", "not a url"),
    ],
)
def test_a_url_shows_where_it_leads_and_no_secret(url: str, shown: str) -> None:
    assert redacted_url(url) == shown
    assert redacted_url(shown) == shown


def test_known_secrets_are_left_out_of_any_text_and_in_the_form_of_a_url_too() -> None:
    secrets = {"hush/hush", "no"}
    assert redacted("Bearer hush/hush, hush%2Fhush, no", secrets) == "Bearer …, …, no"
    assert redacted_url("https://h/x/hush/hush/y", secrets) == "https://h/x/…/y"


def test_reports_are_redacted_whole() -> None:
    @dataclass(frozen=True)
    class Report:
        said: str
        more: tuple[object, ...]

    found = redacted_values(Report("a hush-hush", ({"hush-hush": ["hush-hush", 1]},)), {"hush-hush"})
    assert found == Report("a …", ({"…": ["…", 1]},))


def test_a_server_knows_its_secrets() -> None:
    server = ServerConfig(
        url="https://me:password@host/?key=value-1",
        headers={"Authorization": "Bearer token-1", "Accept": "text/plain"},
        env={"API_KEY": "value-2", "MODE": "development"},
        expanded=frozenset({"value-3"}),
    )
    assert server.secrets == {"password", "value-1", "Bearer token-1", "token-1", "value-2", "value-3"}
    assert "value" not in repr(server)


def test_a_redirect_is_resolved_against_the_whole_url() -> None:
    url = RedactedURL("https://host/0123456789abcdef0123/mcp?key=hush")
    assert str(url) == "https://host/…/mcp?key=…"
    assert url.join("other").raw_path == b"/0123456789abcdef0123/other"
