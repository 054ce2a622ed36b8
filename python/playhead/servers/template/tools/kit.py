"""What a tool is here: its definition, and one function from valid arguments to an answer.

A tool says what went wrong by raising a `PlayheadError`: the server answers with `isError` and the error's
message, which is read by a model and should say what to do. Anything else that a tool raises is a bug, and
becomes a JSON-RPC error.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types as types

from playhead.content.builders import create_annotations, create_text_content

Arguments = Mapping[str, Any]
"""Checked against the tool's `inputSchema`, with the schema's defaults for what was left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateTool:
    """One tool."""

    definition: types.Tool
    run: Callable[[Arguments], Awaitable[types.CallToolResult]]

    @property
    def name(self) -> str:
        return self.definition.name


def answer(text: str, structured: dict[str, Any]) -> types.CallToolResult:
    """A result told twice: in words for a person, and as data.

    The data are `structuredContent` and, for clients that don't know it, the same JSON as text. The
    annotations say which block is for whom, so that a client need not show or send both.
    """
    return types.CallToolResult(
        content=[
            create_text_content(text, annotations=create_annotations(audience=["user"])),
            create_text_content(
                json.dumps(structured, ensure_ascii=False),
                annotations=create_annotations(audience=["assistant"]),
            ),
        ],
        structured_content=structured,
    )


def failed(text: str) -> types.CallToolResult:
    """The answer of a tool that could not do what was asked."""
    return types.CallToolResult(content=[create_text_content(text)], is_error=True)
