"""The client that the official conformance suite runs, once a scenario: playhead, as a program would use it.

The suite appends its server's URL to the command and names the scenario, the revision and whatever the
scenario needs (client credentials, calls to make) in `MCP_CONFORMANCE_*`. Exit 0 where everything went as a
client wants it; a playhead error is said in one line and exits with 1, which scenarios about refusals expect.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import trio

from playhead.client import Question, Reply, Session, connect
from playhead.config.auth import AuthSettings, ClientCredentials, OAuthLogin
from playhead.config.servers import ServerConfig
from playhead.errors import AuthorizationNeededError, ConnectError, PlayheadError

METADATA_URL = "https://conformance-test.local/client-metadata.json"
"""The suite's: where a client metadata document would be, which its authorization server never fetches."""
EPHEMERAL = range(32768, 65536)
"""Origins of the suite's authorization servers: on this machine, on ports that are not known in advance."""
TRIES = 3
"""Reconnections for further permissions before a program gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run: what the suite asks for."""

    scenario: str
    revision: str
    url: str
    context: dict[str, Any]
    folder: Path

    @property
    def mode(self) -> str:
        return "auto" if self.revision >= "2026" else "legacy"

    def config(self) -> ServerConfig:
        if not self.scenario.startswith("auth/"):
            return ServerConfig(url=self.url)
        # The guard against the private network stays on: these are the origins a user would have to allow.
        origins = tuple(f"http://localhost:{port}" for port in EPHEMERAL)
        return ServerConfig(url=self.url, auth=self._auth(), allow_origins=origins)

    def _auth(self) -> AuthSettings:
        client_id, secret = self.context.get("client_id"), self.context.get("client_secret")
        if self.scenario == "auth/client-credentials-basic":
            assert client_id is not None
            assert secret is not None
            return ClientCredentials(
                token_folder=self.folder,
                client_id=client_id,
                client_secret=secret,
                issuer=self.context.get("issuer"),
            )
        return OAuthLogin(
            token_folder=self.folder,
            client_id=client_id,
            client_secret=secret,
            issuer=self.context.get("issuer"),
            client_metadata_url=METADATA_URL,
        )

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        async with connect(self.config(), mode=self.mode, show_url=allow, on_elicitation=accept) as session:
            yield session


async def allow(url: str) -> None:
    """The person in front of the browser, who allows everything."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(url)


async def accept(question: Question) -> Reply:
    """The person who agrees with what the form proposes."""
    return Reply(action="accept", content={})


async def list_and_call(task: Task) -> None:
    """List the tools and call each of them once, as most scenarios expect."""
    async with task.session() as session:
        tools = await session.list_tools()
        for tool in tools:
            await session.call_tool(tool.name, {})


async def only_list(task: Task) -> None:
    async with task.session() as session:
        await session.list_tools()


async def add_numbers(task: Task) -> None:
    async with task.session() as session:
        await session.list_tools()
        result = await session.call_tool("add_numbers", {"a": 5, "b": 3})
        assert "8" in result.text, result.text


async def call_what_the_context_says(task: Task) -> None:
    async with task.session() as session:
        await session.list_tools()
        for call in task.context["toolCalls"]:
            await session.call_tool(call["name"], call["arguments"])


async def give_the_schema_back(task: Task) -> None:
    """Send back what was listed, so that the suite sees what got lost."""
    async with task.session() as session:
        schemas = {tool.name: tool.input_schema for tool in await session.list_tools()}
        await session.call_tool("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})


async def call_with_texts(task: Task) -> None:
    """Call tools with a string for each parameter; those that playhead leaves out are not called."""
    async with task.session() as session:
        for tool in await session.list_tools():
            await session.call_tool(tool.name, dict.fromkeys(tool.input_schema.get("properties", {}), "x"))


async def with_authorization(task: Task) -> None:
    """Reconnect if further permissions are needed in the middle of a session."""
    for remaining in reversed(range(TRIES)):
        try:
            await list_and_call(task)
        except (AuthorizationNeededError, ConnectError) as error:
            needed = error if isinstance(error, AuthorizationNeededError) else error.__cause__
            if not remaining or not isinstance(needed, AuthorizationNeededError):
                raise
        else:
            return


SCENARIOS: dict[str, Callable[[Task], Awaitable[None]]] = {
    "tools_call": add_numbers,
    "http-custom-headers": call_what_the_context_says,
    "http-invalid-tool-headers": call_with_texts,
    "json-schema-2020-12-preservation": give_the_schema_back,
    "json-schema-ref-no-deref": only_list,
}


def handler_of(scenario: str) -> Callable[[Task], Awaitable[None]]:
    if scenario.startswith("auth/"):
        return with_authorization
    return SCENARIOS.get(scenario, list_and_call)


def main() -> int:
    with TemporaryDirectory() as folder:
        task = Task(
            scenario=os.environ["MCP_CONFORMANCE_SCENARIO"],
            revision=os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025-11-25"),
            url=sys.argv[-1],
            context=json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
            folder=Path(folder),
        )
        try:
            trio.run(handler_of(task.scenario), task)
        except PlayheadError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
