"""The tool `web_search` searches the pages shipped with the package, or asks a real search engine."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import quote

import mcp_types as types
import trio

from playhead.client.transports.http_client import TRANSPORT_ERRORS, HttpClient, HttpRequest, anywhere
from playhead.content.formats import uri_problem
from playhead.errors import ConnectError, DeadlineError, LimitError, ProtocolError, RemoteError
from playhead.limits import MIB
from playhead.net_guard import REDIRECTS, check_url
from playhead.servers.template.resources import ShippedPages
from playhead.servers.template.tools import Arguments, TemplateTool, answer

MOST_RESULTS: Final = 20
ANSWER_BYTES: Final = MIB
"""Limits the answer accepted from the engine. Twenty results are about 10 KB."""
ENGINE_SECONDS: Final = 20.0
SNIPPET_CHARS: Final = 300

DEFINITION: Final = types.Tool(
    name="web_search",
    title="Web search",
    description="Searches the web and returns the titles, addresses and first words of pages, best first.",
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "The words to search for.",
                "minLength": 1,
                "maxLength": 300,
                "examples": ["how sound is sampled"],
            },
            "max_results": {
                "type": "integer",
                "description": "The greatest number of results.",
                "minimum": 1,
                "maximum": MOST_RESULTS,
                "default": 5,
                "examples": [3],
            },
        },
        "required": ["query"],
        "additionalProperties": False,
        "examples": [{"query": "how sound is sampled", "max_results": 3}],
    },
    output_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "results": {
                "type": "array",
                "maxItems": MOST_RESULTS,
                "items": {
                    "type": "object",
                    "properties": {
                        "title": {"type": "string"},
                        "url": {"type": "string", "format": "uri"},
                        "snippet": {"type": "string", "maxLength": SNIPPET_CHARS},
                    },
                    "required": ["title", "url", "snippet"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["query", "results"],
        "additionalProperties": False,
    },
    annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """A page and its first words."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A search engine that answers JSON as SearXNG does: `{"results": [{"title", "url", "content"}]}`."""

    url: str
    """The URL template of a search, with `{query}` and optionally `{max_results}`."""
    client: HttpClient
    """A guarded HTTP client, because the engine's redirects must not lead into the private network."""

    async def search(self, query: str, most: int) -> list[SearchResult]:
        """Return at most `most` results of the engine. Cancelling closes the request.

        Raises:
            TransportError: no answer arrived in time.
            RemoteError: the answer is unusable.
            BlockedAddressError: the address of the engine is forbidden.
        """
        url = self.url.replace("{query}", quote(query, safe="")).replace("{max_results}", str(most))
        try:
            with trio.fail_after(ENGINE_SECONDS):
                body = await self._get(url)
        except trio.TooSlowError:
            raise DeadlineError(f"the search engine did not answer within {ENGINE_SECONDS:g} s") from None
        except TRANSPORT_ERRORS as error:
            raise ConnectError(f"cannot reach the search engine: {error}") from error
        return _read_results(body)[:most]

    async def _get(self, url: str) -> bytes:
        request = HttpRequest(method="GET", url=check_url(url), headers=[(b"accept", b"application/json")])
        response = await self.client.send(request, redirect=anywhere, redirects=REDIRECTS)
        try:
            if response.status != 200:
                raise RemoteError(f"the search engine answered HTTP {response.status}; try again later")
            return await response.read(ANSWER_BYTES)
        except LimitError as error:
            raise LimitError(
                f"the search engine's answer is longer than {ANSWER_BYTES} bytes",
                limit="ANSWER_BYTES",
                allowed=ANSWER_BYTES,
                got=error.got,
            ) from None
        finally:
            await response.aclose()


def web_search(pages: ShippedPages, engine: Engine | None) -> TemplateTool:
    """Return the tool over an engine or, without one, over the shipped pages."""

    async def run(arguments: Arguments) -> types.CallToolResult:
        query, most = arguments["query"], arguments["max_results"]
        if engine is not None:
            results = await engine.search(query, most)
        else:
            await trio.lowlevel.checkpoint()
            results = [
                SearchResult(title=page.title, url=page.uri, snippet=page.text[:SNIPPET_CHARS])
                for page, _ in pages.search(query, most)
            ]
        return _answer(query, results)

    return TemplateTool(definition=DEFINITION, run=run)


def _answer(query: str, results: list[SearchResult]) -> types.CallToolResult:
    lines = [
        f"{number}. {each.title}\n   {each.url}\n   {each.snippet}" for number, each in enumerate(results, 1)
    ]
    return answer(
        "\n".join(lines) or "Nothing was found.",
        {"query": query, "results": [asdict(each) for each in results]},
    )


def _read_results(body: bytes) -> list[SearchResult]:
    try:
        value: Any = json.loads(body)
        items = value["results"]
        return [
            SearchResult(
                title=str(item.get("title") or item["url"]),
                url=str(item["url"]),
                snippet=str(item.get("content") or "")[:SNIPPET_CHARS],
            )
            for item in items
            if uri_problem(str(item["url"])) is None
        ]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolError(
            'expected {"results": [{"title", "url", "content"}]} from the search engine, '
            f"got an answer of another form ({type(error).__name__})"
        ) from error
