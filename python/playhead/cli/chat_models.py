"""Make a model from `--provider`, `--model` and the environment; the only reader of providers' API keys."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, assert_never
from urllib.parse import urlsplit

from playhead.errors import UsageError

if TYPE_CHECKING:
    from playhead.agent.conversation import Model

ProviderName = Literal["openai", "openai-responses", "anthropic", "gemini", "prompt"]

_KEYS: Final[Mapping[ProviderName, tuple[str, ...]]] = {
    "openai": ("OPENAI_API_KEY",),
    "openai-responses": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "prompt": ("OPENAI_API_KEY",),
}
"""The variables that each provider's own tools read."""
_NO_KEY: Final = "none"
"""For a local server, in a request that must have some key."""


def opened_model(
    provider: ProviderName,
    name: str,
    *,
    base_url: str | None,
    template: str | None,
    template_name: str = "--prompt-template",
    environment: Mapping[str, str],
) -> AbstractAsyncContextManager[Model]:
    """Make the model; its connections are pooled while the context is open.

    `base_url` None means the provider's own address. With one, `openai` and `prompt` use plain HTTP and need
    no SDK. Raises `UsageError` (at once, not on entering) for a missing key, a missing SDK, and an invalid
    template or address.
    """
    key = _key(provider, base_url=base_url, environment=environment)
    match provider:
        case "openai" if base_url is None:
            from playhead.agent.models.openai_chat import OpenAIChatModel

            return OpenAIChatModel(name, api_key=key or _NO_KEY)
        case "openai" | "prompt":
            from playhead.agent.models.openai_chat import OPENAI_URL, CompatibleModel

            inner = CompatibleModel(name, base_url=base_url or OPENAI_URL, api_key=key)
            return inner if provider == "openai" else _prompted(inner, template, template_name)
        case "openai-responses":
            from playhead.agent.models.openai_responses import OpenAIResponsesModel

            return OpenAIResponsesModel(name, api_key=key or _NO_KEY, base_url=base_url)
        case "anthropic":
            from playhead.agent.models.anthropic import AnthropicModel

            return AnthropicModel(name, api_key=key or _NO_KEY, base_url=base_url)
        case "gemini":
            from playhead.agent.models.gemini import GeminiModel

            return GeminiModel(name, api_key=key or _NO_KEY, base_url=base_url)
        case _:
            assert_never(provider)


def _key(provider: ProviderName, *, base_url: str | None, environment: Mapping[str, str]) -> str | None:
    names = _KEYS[provider]
    for name in names:
        if key := environment.get(name, "").strip():
            return key
    if base_url is not None and is_loopback(base_url):
        return None
    where = "" if base_url is None else "; only a --base-url on this machine works without a key"
    raise UsageError(f"--provider {provider} needs an API key: set {' or '.join(names)}{where}")


def is_loopback(url: str) -> bool:
    """Tell if the host of `url` is this machine, by its name or number alone: no lookup."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_readable(url: str | None) -> bool:
    """Tell if the network can read requests to `url`, key included: plain HTTP to another machine."""
    return url is not None and url.lower().startswith("http://") and not is_loopback(url)


def _prompted(
    inner: AbstractAsyncContextManager[Model], template: str | None, where: str
) -> AbstractAsyncContextManager[Model]:
    from playhead.agent.prompt_mode import DEFAULT_PROMPT, PromptModel, PromptTemplate

    chosen = DEFAULT_PROMPT if template is None else PromptTemplate(text=template, where=where)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Model]:
        async with inner as model:
            yield PromptModel(model, template=chosen)

    return opened()


def text_of(path: Path, *, option: str) -> str:
    """Read the text file that an option names. Raises `UsageError` if it isn't UTF-8, `OSError` if it can't
    be read."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{option}: {path}: expected UTF-8 text, got an invalid byte at {error.start}"
        ) from None
