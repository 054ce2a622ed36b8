"""A model that answers single questions, for the commands of other wings, which may not import `agent`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from playhead.agent.commands.chat import warn_if_readable
from playhead.agent.conversation import ModelRequest, Text, TextPiece, UserMessage
from playhead.agent.models.providers import PROVIDERS, open_model
from playhead.cli.terminal import Terminal
from playhead.errors import UsageError


@asynccontextmanager
async def answering(
    choice: str, *, base_url: str | None, terminal: Terminal
) -> AsyncIterator[Callable[[str, str], Awaitable[str]]]:
    """Open the model `choice`, PROVIDER:NAME. It takes a system prompt and a message, and returns its reply.

    Raises `UsageError` for an unknown provider, a missing name or key, and an invalid `base_url`.
    """
    provider, _, name = choice.partition(":")
    if provider not in PROVIDERS or not name:
        example = f"such as openai:gpt-5; providers are {', '.join(PROVIDERS)}"
        raise UsageError(f"--model {choice}: expected PROVIDER:NAME, {example}")
    warn_if_readable(terminal, base_url)
    async with open_model(provider, name, base_url=base_url, environment=os.environ) as model:

        async def ask(system: str, message: str) -> str:
            request = ModelRequest(messages=(UserMessage(parts=(Text(text=message),)),), system=system)
            async with model.stream(request) as pieces:
                return "".join([piece.text async for piece in pieces if isinstance(piece, TextPiece)])

        yield ask
