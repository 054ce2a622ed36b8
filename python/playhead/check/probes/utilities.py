"""The utilities that a server declares: log levels, completions and subscriptions.

These probes only ask. `check.conversation` judges the answers and everything that the server sends unasked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from playhead.check.probes.asking import ask, error_words, require_answered
from playhead.check.target import Target

LEVEL: Final = "warning"
"""Is above what servers say in passing, and below their errors."""
MOST_COMPLETED: Final = 8
"""Limits the arguments and variables to complete."""


async def probe_log_level(target: Target) -> None:
    """Set the level of log messages. Call it before the tools, whose messages show whether it counts."""
    if target.session.capabilities.logging is None or target.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return  # a modern client asks for messages with each request, and this one does not
    with target.test("logging", f"the level {LEVEL}", method="logging/setLevel") as draft:
        answer = await ask(target, draft, {"level": LEVEL})
        if require_answered(draft, "logging.set-level", answer, target) and answer.error is not None:
            draft.checks.clear()
            why = f"expected an empty result, since logging is declared; got {error_words(answer.error)}"
            draft.failed("logging.set-level", why)
            return
    with target.test("logging", "an unknown level", method="logging/setLevel") as draft:
        answer = await ask(target, draft, {"level": "loud"})
        if answer.failure is None:
            is_refused = answer.error is not None and answer.error.code == INVALID_PARAMS
            got = error_words(answer.error) if answer.error is not None else "a result"
            draft.require("logging.unknown-level", is_refused, f"expected error {INVALID_PARAMS}, got {got}")


Reference = tuple[str, Mapping[str, Any], str]
"""The subject, the reference and the name of an argument or variable."""


async def probe_completions(target: Target, references: Iterable[Reference]) -> None:
    """Complete arguments of prompts, or variables of templates, from an empty value; one if the server
    declares no completions."""
    is_declared = target.session.capabilities.completions is not None
    for words, reference, argument in islice(references, MOST_COMPLETED if is_declared else 1):
        with target.test(words, f"completion of {argument}", method="completion/complete") as draft:
            params = {"ref": reference, "argument": {"name": argument, "value": ""}}
            answer = await ask(target, draft, params)
            if not is_declared:
                draft.skipped("completion.declared", "not declared: only an answer is a finding")
            elif not require_answered(draft, "completion.answered", answer, target):
                continue
            elif answer.error is not None and answer.error.code in (METHOD_NOT_FOUND, -32603, 0):
                draft.checks.clear()
                why = f"expected values, or an empty array, got {error_words(answer.error)}"
                draft.failed("completion.answered", why)
            elif answer.error is not None:
                draft.undecided = f"refused to complete {argument}: {error_words(answer.error)}"


def prompt_references(prompts: Iterable[Mapping[str, Any]]) -> Iterator[Reference]:
    """Yield the references to the arguments of listed prompts."""
    for prompt in prompts:
        arguments = prompt.get("arguments")
        for argument in arguments if isinstance(arguments, list) else ():
            if isinstance(argument, dict) and isinstance(argument.get("name"), str):
                reference = {"type": "ref/prompt", "name": prompt["name"]}
                yield f"prompt {prompt['name']}", reference, argument["name"]


def template_references(target: Target) -> Iterator[Reference]:
    """Yield the references to the variables of the listed templates."""
    for template, names in target.templates.items():
        for name in names:
            yield f"template {template}", {"type": "ref/resource", "uri": template}, name


async def probe_subscriptions(target: Target, uri: str) -> None:
    """Subscribe to a listed resource, and unsubscribe."""
    resources = target.session.capabilities.resources
    if resources is None or not resources.subscribe or target.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return
    for method in ("resources/subscribe", "resources/unsubscribe"):
        with target.test("subscriptions", method, method=method) as draft:
            answer = await ask(target, draft, {"uri": uri})
            if require_answered(draft, "subscriptions.answered", answer, target) and answer.error is not None:
                draft.checks.clear()
                why = (
                    f"expected an empty result, since resources.subscribe is declared; got"
                    f" {error_words(answer.error)}"
                )
                draft.failed("subscriptions.answered", why)
