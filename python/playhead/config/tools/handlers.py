"""Runs a response handler, and turns whatever goes wrong in it into one error that names it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Final, cast

import trio

from playhead.config.tools.config import ResponseHandler, ToolConfig, create_tool_id
from playhead.config.tools.imports import import_named
from playhead.config.tools.responses import HandlerReference, ToolContent, ToolResponse
from playhead.errors import ConfigError, HandlerError, HandlerLoadError, UsageError

MESSAGE_CHARS: Final = 500
"""Of what a handler says about its failure: some libraries quote the whole text that they could not read."""


async def run_handler(config: ToolConfig, content: ToolContent) -> ToolResponse:
    """What the handler of `config` makes of `content`.

    An async handler is awaited under trio. A sync one runs in a thread, because it may write files while
    music plays; it shares accordingly. Handlers have no deadline of their own.

    Raises `HandlerError` for whatever `Exception` the handler raises (its cause) and for an answer that is no
    `ToolResponse`; its kind `HandlerLoadError`, a `ConfigError`, where a file names a handler that can't be
    loaded; `UsageError` where `config` has none.

    Cancellation passes through: an async handler sees it, a sync one is left to end by itself in its thread,
    and its answer is dropped.
    """
    handler = config.response_handler
    if handler is None:
        raise UsageError(f"{config.tool_id} has no response_handler; look before calling run_handler")
    name = handler_name(handler)
    # A pattern's handler failed for one tool, and that is the one to look at.
    tool_id = create_tool_id(content.server, content.tool) if content.server else config.tool_id
    function: ResponseHandler
    if isinstance(handler, HandlerReference):
        try:
            # An import reads files and may take seconds.
            function = await trio.to_thread.run_sync(load_handler, handler, abandon_on_cancel=True)
        except ConfigError as error:
            raise HandlerLoadError(str(error), handler=name, tool_id=tool_id) from error
    else:
        function = handler
    try:
        if _is_async(function):
            answer = function(content)
        else:
            # In a tuple: trio would refuse the coroutine of a function that wraps an async one.
            (answer,) = await trio.to_thread.run_sync(lambda: (function(content),), abandon_on_cancel=True)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception as error:  # a stranger's code: whatever it raises is its own
        raise HandlerError(
            f"the response handler {name} of {tool_id} failed: {type(error).__name__}:"
            f" {str(error)[:MESSAGE_CHARS]}",
            handler=name,
            tool_id=tool_id,
        ) from error
    came: object = answer
    if not isinstance(came, ToolResponse):
        raise HandlerError(
            f"the response handler {name} of {tool_id} returned {type(came).__name__}; expected a"
            " playhead.config.tools.ToolResponse",
            handler=name,
            tool_id=tool_id,
        )
    return came


def handler_name(handler: ResponseHandler | HandlerReference) -> str:
    """The handler as a person would look for it: `module:function`."""
    if isinstance(handler, HandlerReference):
        return str(handler)
    inner: object = handler.func if isinstance(handler, partial) else handler
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    module = getattr(inner, "__module__", None)
    return f"{module}:{name}" if module else str(name)


def load_handler(reference: HandlerReference) -> ResponseHandler:
    """Import what `reference` names. Raises `ConfigError`, with the key path, where that fails."""
    module = import_named(reference.module, folder=reference.folder, where=reference.where)
    found: object = module
    for name in reference.function.split("."):
        found = getattr(found, name, None)
    if found is None:
        raise ConfigError(f"{reference.where}: {reference.module} has no {reference.function}")
    if not callable(found):
        raise ConfigError(f"{reference.where}: expected a function, {reference} is a {type(found).__name__}")
    return cast("ResponseHandler", found)


def _is_async(function: Callable[..., object]) -> bool:
    inner = function.func if isinstance(function, partial) else function
    # An object with an async `__call__` says so nowhere else.
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)
