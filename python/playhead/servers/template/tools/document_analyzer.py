"""The tool `document_analyzer` counts words and finds key words, in a document or a page of this server."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

import mcp_types as types
import trio

from playhead.errors import UsageError
from playhead.servers.template.resources import ShippedPages, words
from playhead.servers.template.tools import Arguments, TemplateTool, answer

MAX_CHARS: Final = 100_000
WORDS_A_MINUTE: Final = 240
"""The assumed reading speed: silent reading of English prose (Brysbaert 2019: 238)."""
_SENTENCE_END: Final = re.compile(r"[.!?](?=\s|$)")
"""Matches the last mark of a run such as `?!`. `[.!?]+` would be quadratic in a long run before a letter."""

DEFINITION: Final = types.Tool(
    name="document_analyzer",
    title="Document analyzer",
    description=(
        "Counts the characters, words, sentences and paragraphs of a document, estimates how long it takes "
        "to read, and finds its key words. Give either the text or the URI of a page of this server."
    ),
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "text": {
                "type": "string",
                "description": "The document itself.",
                "minLength": 1,
                "maxLength": MAX_CHARS,
                "examples": ["Sound is a wave. It needs a medium."],
            },
            "uri": {
                "type": "string",
                "description": "A page of this server, as resources/list names it.",
                "pattern": "^pages://[a-z0-9-]{1,64}$",
                "examples": ["pages://sampling"],
            },
            "max_keywords": {
                "type": "integer",
                "description": "The greatest number of key words.",
                "minimum": 0,
                "maximum": 50,
                "default": 5,
                "examples": [5],
            },
        },
        "oneOf": [{"required": ["text"]}, {"required": ["uri"]}],
        "additionalProperties": False,
        "examples": [{"text": "Sound is a wave. It needs a medium."}, {"uri": "pages://sampling"}],
    },
    output_schema={
        "type": "object",
        "properties": {
            "characters": {"type": "integer", "minimum": 0},
            "words": {"type": "integer", "minimum": 0},
            "sentences": {"type": "integer", "minimum": 0},
            "paragraphs": {"type": "integer", "minimum": 0},
            "reading_seconds": {"type": "integer", "minimum": 0},
            "keywords": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"word": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
                    "required": ["word", "count"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["characters", "words", "sentences", "paragraphs", "reading_seconds", "keywords"],
        "additionalProperties": False,
    },
    annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
)


def document_analyzer(pages: ShippedPages) -> TemplateTool:
    """Return the tool over the shipped pages."""

    async def run(arguments: Arguments) -> types.CallToolResult:
        text = _text_of(pages, arguments)
        # This runs in a thread, because 100,000 characters take some tens of milliseconds.
        return await trio.to_thread.run_sync(analyze, text, arguments["max_keywords"])

    return TemplateTool(definition=DEFINITION, run=run)


def analyze(text: str, max_keywords: int) -> types.CallToolResult:
    """Analyze `text`, in nearly linear time."""
    word_count = len(text.split())
    keywords = sorted(Counter(words(text)).items(), key=lambda pair: (-pair[1], pair[0]))[:max_keywords]
    facts: dict[str, Any] = {
        "characters": len(text),
        "words": word_count,
        "sentences": len(_SENTENCE_END.findall(text)) or int(word_count > 0),
        "paragraphs": sum(bool(part.strip()) for part in re.split(r"\n[ \t]*\n", text)),
        "reading_seconds": round(word_count / WORDS_A_MINUTE * 60),
        "keywords": [{"word": word, "count": count} for word, count in keywords],
    }
    named = ", ".join(f"{word} ({count})" for word, count in keywords) or "none"
    summary = (
        f"{facts['words']} words in {facts['sentences']} sentences and {facts['paragraphs']} paragraphs, "
        f"{facts['characters']} characters; about {facts['reading_seconds']} s to read. Key words: {named}."
    )
    return answer(summary, facts)


def _text_of(pages: ShippedPages, arguments: Arguments) -> str:
    if "text" in arguments:
        return str(arguments["text"])
    uri = str(arguments["uri"])
    page = pages.get(uri.removeprefix("pages://"))
    if page is None:
        raise UsageError(f"unknown page {uri!r}; resources/list names the pages")
    return page.text
