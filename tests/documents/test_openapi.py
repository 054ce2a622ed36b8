"""The OpenAPI document: valid, of one piece with the schema, and what the running server does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import trio
import yaml
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from playhead.servers.template.documents import openapi_text, validate_messages
from playhead.servers.template.endpoints import ENDPOINTS
from tests.documents.components import with_components
from tests.documents.mutations import MUTATIONS, mutant, objects_in, recorded
from tests.documents.template_talk import template_server
from tests.servers.messages import initialize

TOKEN = "secret"
BOTH = {"accept": "application/json, text/event-stream"}
MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}


@cache
def document() -> Any:
    return yaml.load(openapi_text(), yaml.CSafeLoader)


def validator(schema: Any) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": document()["components"]})


def operations() -> Iterator[tuple[str, str, Any]]:
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def resolved(node: Any) -> Any:
    while "$ref" in node:
        found = document()
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        node = found
    return node


def assert_documented(path: str, method: str, response: httpx2.Response) -> None:
    """The status, the media type and the body are those that the document gives the operation."""
    responses = document()["paths"][path][method]["responses"]
    assert str(response.status_code) in responses, f"{method} {path} answered {response.status_code}"
    described = resolved(responses[str(response.status_code)])
    for name, header in described.get("headers", {}).items():
        assert not header.get("required") or name in response.headers, f"{name} is missing"
    if not response.content:
        return
    media = response.headers["content-type"].partition(";")[0]
    assert media in described["content"], f"{method} {path} {response.status_code} answered {media}"
    if media == "application/json":
        schema = described["content"][media]["schema"]
        assert [error.message for error in validator(schema).iter_errors(response.json())] == []


def test_it_is_valid() -> None:
    OpenAPIV31SpecValidator(document()).validate()


def test_its_messages_are_those_of_the_schema() -> None:
    assert openapi_text() == with_components(openapi_text()), "run python -m tests.documents.components"


def test_a_generator_finds_no_choice_between_schemas_and_no_list_of_types() -> None:
    """Its classes would decide by the names of members, and most messages have the same."""
    conditions = [each["if"] for each in objects_in(document()) if "if" in each]
    hidden = [id(each) for condition in conditions for each in objects_in(condition)]
    seen = [each for each in objects_in(document()) if id(each) not in hidden]
    assert len(conditions) > 10
    assert [each for each in seen if {"oneOf", "anyOf"} & each.keys()] == []
    assert [each for each in seen if isinstance(each.get("type"), list)] == []


def test_its_messages_pass_and_fail_as_those_of_the_schema() -> None:
    """The conditions are for validators: what is wrong by `schema.json` is wrong here too."""
    messages = recorded()
    message = validator({"$ref": "#/components/schemas/Message"})
    assert [each for each in messages if not message.is_valid(each)] == []
    wrong = [each.name for each in MUTATIONS if message.is_valid(mutant(each, messages))]
    assert wrong == []
    answers = [each for each in messages if "method" not in each]
    answer = validator({"$ref": "#/components/schemas/Answer"})
    assert len(answers) > 10
    assert [each for each in messages if answer.is_valid(each)] == answers


def test_it_has_the_paths_of_the_server_and_no_other() -> None:
    assert set(document()["paths"]) == {"/", *ENDPOINTS.values()}


def test_every_operation_has_a_name_of_its_own_and_says_what_it_does() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names) == 7
    assert all(operation["summary"] for _, _, operation in operations())


def examples() -> Iterator[tuple[str, Any, Any]]:
    for path, method, operation in operations():
        contents = [resolved(response).get("content", {}) for response in operation["responses"].values()]
        if "requestBody" in operation:
            contents.append(operation["requestBody"]["content"])
        for media in (each["application/json"] for each in contents if "application/json" in each):
            named = {"example": {"value": media.get("example")}, **media.get("examples", {})}
            for name, example in named.items():
                if example["value"] is not None:
                    yield f"{method} {path} {name}", media["schema"], example["value"]


@pytest.mark.parametrize(
    ("name", "schema", "example"), [pytest.param(*each, id=each[0]) for each in examples()]
)
def test_every_example_is_what_it_is_an_example_of(name: str, schema: Any, example: Any) -> None:
    assert [error.message for error in validator(schema).iter_errors(example)] == []
    if isinstance(example, dict) and "jsonrpc" in example:
        assert validate_messages(json.dumps([example])) == []


async def test_the_server_answers_as_it_says() -> None:
    async with template_server() as url, httpx2.AsyncClient(base_url=url) as client:
        for path in ("/", "/health", "/ready", "/metrics"):
            answer = await client.get(path)
            assert answer.status_code == 200
            assert_documented(path, "get", answer)
        began = await client.post("/mcp", json=initialize("2025-11-25"), headers=BOTH)
        assert_documented("/mcp", "post", began)
        session = {**BOTH, "mcp-session-id": began.headers["mcp-session-id"]}
        taken = await client.post(
            "/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session
        )
        assert taken.status_code == 202
        assert_documented("/mcp", "post", taken)
        for expected, said, headers in (
            (200, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, session),
            (200, {"jsonrpc": "2.0", "id": 3, "method": "prompts/get", "params": {"name": "none"}}, session),
            (400, {"jsonrpc": "2.0", "id": 4, "method": 5}, session),
            (
                200,
                {"jsonrpc": "2.0", "id": 8, "method": "tools/list"},
                {**session, "accept": "application/json"},
            ),
            (404, {"jsonrpc": "2.0", "id": 5, "method": "ping"}, {**session, "mcp-session-id": "none"}),
            (406, {"jsonrpc": "2.0", "id": 6, "method": "ping"}, {**session, "accept": "text/html"}),
            (400, {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}}, {**BOTH, **MODERN}),
        ):
            answer = await client.post("/mcp", json=said, headers=headers)
            assert answer.status_code == expected
            assert_documented("/mcp", "post", answer)
        ended = await client.delete("/mcp", headers=session)
        assert ended.status_code == 200
        assert_documented("/mcp", "delete", ended)
        assert_documented("/mcp", "delete", await client.delete("/mcp", headers=session))


async def test_who_may_not_ask_is_refused_as_it_says() -> None:
    async with template_server(TOKEN) as url, httpx2.AsyncClient(base_url=url) as client:
        mine = {"authorization": f"Bearer {TOKEN}"}
        for path, method, operation in operations():
            body = initialize("2025-11-25") if method == "post" else None
            secret = operation.get("security") != []
            for expected, headers in (
                (401 if secret else 200, {}),
                (401 if secret else 200, {"authorization": "Bearer wrong"}),
                (403, {**mine, "origin": "https://evil.example"}),
                (421, {**mine, "host": "evil.example"}),
            ):
                answer = await client.request(method.upper(), path, headers={**BOTH, **headers}, json=body)
                assert answer.status_code == expected
                assert_documented(path, method, answer)


async def test_the_upgrade_to_a_websocket_is_answered_as_it_says() -> None:
    async with template_server() as url:
        address = urlsplit(url)
        lines = [
            "GET /mcp HTTP/1.1",
            f"Host: {address.netloc}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {'A' * 22}==",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: mcp",
        ]
        async with await trio.open_tcp_stream(address.hostname or "", address.port or 0) as stream:
            await stream.send_all("".join(f"{line}\r\n" for line in (*lines, "")).encode())
            head = b""
            while b"\r\n\r\n" not in head:
                head += await stream.receive_some()
    first, *answered = head.decode().partition("\r\n\r\n")[0].split("\r\n")
    assert first.split()[1] == "101"
    got = {name.lower(): value for name, _, value in (line.partition(": ") for line in answered)}
    described = document()["paths"]["/mcp"]["get"]["responses"]["101"]["headers"]
    for name, header in described.items():
        value = got[name.lower()]
        wanted = header["schema"]
        assert value.lower() == wanted.get("const", value).lower()
        assert wanted.get("minLength", 0) <= len(value) <= wanted.get("maxLength", 100)
