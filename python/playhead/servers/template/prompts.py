"""The prompts: a person picks one from a menu, and the host sends its messages to the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from playhead.servers.template.resources import ShippedPage, ShippedPages

ARGUMENT_CHARS: Final = 500
_Arguments = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplatePrompt:
    """A prompt: its definition, and the function from its arguments to messages."""

    definition: types.Prompt
    messages: Callable[[_Arguments], list[types.PromptMessage]]

    def get(self, arguments: _Arguments) -> types.GetPromptResult:
        """Fill in the prompt. Raises `MCPError` (-32602) for arguments that are missing, unknown or too
        long."""
        declared = {each.name: each for each in self.definition.arguments or []}
        for name, each in declared.items():
            if each.required and not arguments.get(name, "").strip():
                raise MCPError(INVALID_PARAMS, f"the prompt {self.definition.name} needs the argument {name}")
        for name, value in arguments.items():
            if name not in declared:
                raise MCPError(
                    INVALID_PARAMS, f"unknown argument {name[:40]!r}; expected {', '.join(declared)}"
                )
            if len(value) > ARGUMENT_CHARS:
                raise MCPError(
                    INVALID_PARAMS, f"{name} has {len(value)} characters; {ARGUMENT_CHARS} are allowed"
                )
        return types.GetPromptResult(
            description=self.definition.description, messages=self.messages(arguments)
        )


def all_prompts(pages: ShippedPages) -> dict[str, TemplatePrompt]:
    """Return every prompt by its name."""
    prompts = (_research(), _explain_page(pages))
    return {prompt.definition.name: prompt for prompt in prompts}


def _research() -> TemplatePrompt:
    def messages(arguments: _Arguments) -> list[types.PromptMessage]:
        depth = arguments.get("depth", "").strip() or "a paragraph"
        return [
            _text_message(
                f"Answer this question in {depth}: {arguments['question'].strip()}\n"
                "Search with web_search, look up relations with knowledge_graph, and name your sources."
            )
        ]

    return TemplatePrompt(
        definition=types.Prompt(
            name="research",
            title="Research a question",
            description="Asks for a researched answer with its sources.",
            arguments=[
                types.PromptArgument(name="question", description="The question.", required=True),
                types.PromptArgument(
                    name="depth",
                    description="The length of the answer; a paragraph by default.",
                    required=False,
                ),
            ],
        ),
        messages=messages,
    )


def _explain_page(pages: ShippedPages) -> TemplatePrompt:
    def messages(arguments: _Arguments) -> list[types.PromptMessage]:
        slug = arguments["page"].strip()
        page = pages.get(slug)
        if page is None:
            raise MCPError(INVALID_PARAMS, f"unknown page {slug[:80]!r}; resources/list names the pages")
        return [
            _text_message("Explain this page to a curious child, in five sentences at most."),
            _page_message(page),
        ]

    return TemplatePrompt(
        definition=types.Prompt(
            name="explain_page",
            title="Explain a page",
            description="Gives a page of this server to the model, and asks for a simple explanation.",
            arguments=[
                types.PromptArgument(
                    name="page", description="Its slug, such as sampling or fourier.", required=True
                )
            ],
        ),
        messages=messages,
    )


def _text_message(text: str) -> types.PromptMessage:
    return types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))


def _page_message(page: ShippedPage) -> types.PromptMessage:
    contents = types.TextResourceContents(uri=page.uri, mime_type="text/plain", text=page.text)
    return types.PromptMessage(
        role="user", content=types.EmbeddedResource(type="resource", resource=contents)
    )
