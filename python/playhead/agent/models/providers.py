"""The table of model providers, from which `playhead chat` opens a model by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from playhead.errors import UsageError
from playhead.net_guard import is_loopback

if TYPE_CHECKING:
    from playhead.agent.models.http_model import HttpModel

_NO_KEY: Final = "none"
"""Replaces a missing key, because the model classes require one, and a local server ignores it."""


def _openai(name: str, key: str | None, base_url: str | None) -> HttpModel:
    from playhead.agent.models.openai_chat import OpenAIChatModel

    if base_url is None:
        return OpenAIChatModel(name, api_key=key or _NO_KEY)
    return _compatible(name, key, base_url)


def _compatible(name: str, key: str | None, base_url: str | None) -> HttpModel:
    from playhead.agent.models.openai_chat import OPENAI_URL, CompatibleModel

    return CompatibleModel(name, base_url=base_url or OPENAI_URL, api_key=key)


def _openai_responses(name: str, key: str | None, base_url: str | None) -> HttpModel:
    from playhead.agent.models.openai_responses import OpenAIResponsesModel

    return OpenAIResponsesModel(name, api_key=key or _NO_KEY, base_url=base_url)


def _anthropic(name: str, key: str | None, base_url: str | None) -> HttpModel:
    from playhead.agent.models.anthropic import AnthropicModel

    return AnthropicModel(name, api_key=key or _NO_KEY, base_url=base_url)


def _gemini(name: str, key: str | None, base_url: str | None) -> HttpModel:
    from playhead.agent.models.gemini import GeminiModel

    return GeminiModel(name, api_key=key or _NO_KEY, base_url=base_url)


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """One provider."""

    make: Callable[[str, str | None, str | None], HttpModel]
    """Makes a model from its name, key and base URL. It imports the model's module."""
    key_variables: tuple[str, ...]
    """The environment variables with the key, as for the provider's own tools."""


PROVIDERS: Final[Mapping[str, ProviderEntry]] = {
    "openai": ProviderEntry(_openai, ("OPENAI_API_KEY",)),
    "openai-responses": ProviderEntry(_openai_responses, ("OPENAI_API_KEY",)),
    "anthropic": ProviderEntry(_anthropic, ("ANTHROPIC_API_KEY",)),
    "gemini": ProviderEntry(_gemini, ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
    "prompt": ProviderEntry(_compatible, ("OPENAI_API_KEY",)),
}

if TYPE_CHECKING:
    ProviderName = str
else:
    ProviderName = Literal[tuple(PROVIDERS)]
    """The choices of `--provider`."""


def open_model(
    provider: ProviderName, name: str, *, base_url: str | None, environment: Mapping[str, str]
) -> HttpModel:
    """Make a provider's model. Its context pools the connections.

    `base_url` None is the provider's own address. With another one, `openai` is any compatible server. Raises
    `UsageError` for a missing key and an invalid address, before the context is entered.
    """
    entry = PROVIDERS[provider]
    # API keys are read here and nowhere else.
    keys = [key for variable in entry.key_variables if (key := environment.get(variable, "").strip())]
    if not keys and (base_url is None or not is_loopback(base_url)):
        where = "" if base_url is None else "; only a --base-url on this machine works without a key"
        variables = " or ".join(entry.key_variables)
        raise UsageError(f"provider {provider} needs an API key: set {variables}{where}")
    return entry.make(name, keys[0] if keys else None, base_url)
