"""The documents in other hands: ajv's verdict on every message, and clients made of the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from playhead.servers.template.documents import validate_messages
from tests.documents.mutations import MUTATIONS, mutant, recorded
from tests.documents.template_talk import template_server
from tests.documents.tools import (
    PYTHON,
    ajv_takes,
    make_javascript_client,
    make_openapi_generator_javascript_client,
    make_openapi_generator_python_client,
    make_python_client,
    needs_tools,
    run,
)

pytestmark = pytest.mark.slow("generates clients of four kinds and runs them")

GOT = {
    "about": ["playhead-template", "/mcp"],
    "health": "healthy",
    "uptime": True,
    "ready": "ready",
    "metrics": True,
    "session": True,
    "initialized": 202,
    "server": "playhead-template",
    "id": "two",
    "calculator": '14,{"result": 14}',
    "structured": {"result": 14},
    "tool": "calculator",
    "code": -32002,
}
"""The results that each client gets from the server."""


@needs_tools
async def test_ajv_takes_what_the_schema_takes_and_rejects_what_it_rejects(tmp_path: Path) -> None:
    messages = recorded()
    lines = [json.dumps(each) for each in (*messages, *(mutant(each, messages) for each in MUTATIONS))]
    ours = [not validate_messages(f"[{line}]") for line in lines]
    theirs = json.loads(await ajv_takes(tmp_path, "\n".join(lines)))
    assert theirs == ours
    assert ours == [True] * len(messages) + [False] * len(MUTATIONS)


CLIENTS: dict[str, tuple[Callable[[Path], Awaitable[None]], str | Path, str]] = {
    # what makes it, and its command
    "hey-api for JavaScript": (make_javascript_client, "node", "client.ts"),
    "openapi-python-client": (make_python_client, PYTHON, "client.py"),
    "openapi-generator for Python": (make_openapi_generator_python_client, PYTHON, "generator_client.py"),
    "openapi-generator for JavaScript": (
        make_openapi_generator_javascript_client, "node", "generator_client.cjs",
    ),
}  # fmt: skip


@needs_tools
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_generated_client_calls_the_server(client: str, tmp_path: Path) -> None:
    make, interpreter, program = CLIENTS[client]
    await make(tmp_path)
    async with template_server() as url:
        assert json.loads(await run(tmp_path, interpreter, program, url)) == GOT
