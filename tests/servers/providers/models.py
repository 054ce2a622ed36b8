"""Each provider's model at a local server, and the bytes of a reply on its wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from playhead.agent.models.anthropic import AnthropicModel
from playhead.agent.models.gemini import GeminiModel
from playhead.agent.models.http_model import HttpModel
from playhead.agent.models.openai_chat import CompatibleModel, OpenAIChatModel
from playhead.agent.models.openai_responses import OpenAIResponsesModel
from tests.servers.providers import anthropic, gemini, openai_chat, openai_responses
from tests.servers.providers.script import Reply

ModelName = Literal["openai", "openai-responses", "anthropic", "gemini", "gemini-without-ids", "compatible"]

KEY: Final = "sk-test-0123456789abcdef"
_MODELS: dict[ModelName, tuple[Callable[..., HttpModel], str, str, Any]] = {
    "openai": (OpenAIChatModel, "gpt-5.2", "/v1", openai_chat),
    "openai-responses": (OpenAIResponsesModel, "gpt-5.2", "/v1", openai_responses),
    "anthropic": (AnthropicModel, "claude-test", "", anthropic),
    "gemini": (GeminiModel, "gemini-3-flash", "/v1beta", gemini),
    "gemini-without-ids": (GeminiModel, "gemini-2.5-flash", "/v1beta", gemini),
    "compatible": (CompatibleModel, "llama", "/v1", openai_chat),
}
"""The class of each, its name at the provider, the path of its base URL, and the wire of its server."""


def model_at(name: ModelName, url: str, **more: Any) -> HttpModel:
    """A model at the server `url` (without a path); by default it never sends a request twice."""
    make, model, path, _ = _MODELS[name]
    return make(model, **{"api_key": KEY, "base_url": url + path, "max_retries": 0, **more})


def frames_of(name: ModelName, reply: Reply) -> list[bytes]:
    """The events of a reply without a `Hold` or a failure, as the provider sends them."""
    _, model, _, wire = _MODELS[name]
    return list(wire.frames(reply, model=model, number=1))
