"""The output of the builders, against the official schema of each revision and the official SDK."""

from __future__ import annotations

import hashlib
import json
import os
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, Icon

from playhead.client import connect
from playhead.content import (
    REVISION_NAMES,
    create_annotations,
    create_audio_content,
    create_embedded_resource,
    create_image_content,
    create_resource_link,
    create_text_content,
    create_tool_response,
    downgrade,
    downgrade_raw,
    dump,
    parse_block,
    validate_tool_response,
)
from playhead.content.types import StandardContent
from tests.documents.mutations import wrecks

SCHEMAS = Path(__file__).parents[1] / "data" / "mcp-schema"
PUBLISHED = {
    "2025-11-25": "4e01628360a2149892eab8f298ceee626d24a58862184eb8ec85d95b8f353e31",
    "2026-07-28": "6293cdfe015c14bd36eda4b1331ce37bda377609e58ed6d09d16f28e7d3c7ad4",
}
"""SHA-256, as the SDK's own PINNED.json has them."""

NOTE = create_annotations(audience=["user", "assistant"], priority=1, last_modified="2025-01-12T15:00:58Z")
META = {"com.example/key": {"a": None}}
BLOCKS: dict[str, StandardContent] = {
    "text": create_text_content("héllo", annotations=NOTE, meta=META),
    "image": create_image_content(b"\x89PNG", "image/png", annotations=NOTE, meta=META),
    "audio": create_audio_content(b"ID3", "audio/mpeg", annotations=NOTE, meta=META),
    "link": create_resource_link(
        "https://example.org/song.mp3",
        "song.mp3",
        title="Song",
        description="A song.",
        mime_type="audio/mpeg",
        size_bytes=3,
        icons=[Icon(src="https://example.org/i.png", mime_type="image/png", sizes=["48x48"], theme="dark")],
        annotations=NOTE,
        meta=META,
    ),
    "embedded text": create_embedded_resource(
        "x:notes", text="notes", mime_type="text/plain", resource_meta=META, annotations=NOTE, meta=META
    ),
    "embedded blob": create_embedded_resource("x:blob", blob=b"\x00", mime_type="application/pdf"),
}
RESULTS = {name: create_tool_response([block]) for name, block in BLOCKS.items()} | {
    "bare": create_tool_response([create_resource_link("x:1", "one"), create_text_content("")]),
    "empty": create_tool_response(),
    "full": create_tool_response(BLOCKS.values(), structured_content={"a": [1, None]}, meta=META),
    "list": create_tool_response(structured_content=[1, 2]),
    "null": create_tool_response(structured_content=None),
    "error": create_tool_response([create_text_content("It rains.")], is_error=True, meta=META),
}


def schema_files() -> dict[str, Path]:
    """By name. The published schemas of every revision join in where MCP_SCHEMA_DIR is the `schema` folder of
    a checkout of the specification."""
    files = {path.name.removesuffix(".json"): path for path in SCHEMAS.glob("*.json")}
    if folder := os.environ.get("MCP_SCHEMA_DIR"):
        files |= {
            f"{revision} published": Path(folder) / revision / "schema.json" for revision in REVISION_NAMES
        }
    return files


FILES = schema_files()


def official(name: str) -> tuple[str, Any]:
    """The revision, and a validator of its CallToolResult."""
    schema = json.loads(FILES[name].read_text("utf-8"))
    for key in ("$defs", "definitions"):
        if "CallToolResult" in schema.get(key, {}):
            schema = {"$schema": schema["$schema"], key: schema[key], "$ref": f"#/{key}/CallToolResult"}
    return name[:10], validator_for(schema, default=Draft202012Validator)(schema)


def test_every_revision_has_a_schema_and_the_published_ones_are_as_published() -> None:
    assert {name[:10] for name in FILES} == set(REVISION_NAMES)
    for revision, digest in PUBLISHED.items():
        assert hashlib.sha256(FILES[revision].read_bytes()).hexdigest() == digest


@pytest.mark.requirement("TR-07")
@pytest.mark.parametrize("schema", FILES)
@pytest.mark.parametrize("name", RESULTS)
def test_what_the_builders_make_is_right_in_every_revision(schema: str, name: str) -> None:
    revision, validator = official(schema)
    wire = dump(downgrade(RESULTS[name], revision))
    assert list(validator.iter_errors(wire)) == []
    assert validate_tool_response(wire, revision) == []


@pytest.mark.requirement("TR-01")
@pytest.mark.parametrize("name", BLOCKS)
def test_what_was_built_is_parsed_into_the_same_block(name: str) -> None:
    block = parse_block(json.loads(json.dumps(dump(BLOCKS[name]))))
    assert (block.content, block.findings) == (BLOCKS[name], ())


@pytest.mark.parametrize("name", RESULTS)
def test_the_official_sdk_reads_back_what_was_built(name: str) -> None:
    wire = json.loads(json.dumps(dump(RESULTS[name])))
    assert CallToolResult.model_validate(wire, by_name=False) == RESULTS[name]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("name", RESULTS)
async def test_a_session_gets_what_an_official_server_was_given(name: str, mode: str) -> None:
    async def call(context: Any, params: Any) -> CallToolResult:
        return downgrade(RESULTS[name], "2025-11-25" if mode == "legacy" else mode)

    async with connect(Server("built", on_call_tool=call), mode=mode) as session:
        result = await session.call_tool("any", {})
        assert validate_tool_response(result.raw, session.protocol_version) == []
        assert [dump(block) for block in result.blocks] == dump(await call(None, None))["content"]
        assert [block.findings for block in result.blocks] == [()] * len(result.blocks)


@pytest.mark.parametrize("schema", FILES)
def test_what_the_official_schema_rejects_has_a_finding(schema: str) -> None:
    revision, validator = official(schema)
    wire = downgrade_raw(dump(RESULTS["full"]), revision)
    rejected = (wreck for wreck in wrecks(wire) if not validator.is_valid(wreck))
    assert len(list(islice(rejected, 51))) == 51
    accepted = [wreck for wreck in wrecks(wire) if not validate_tool_response(wreck, revision)]
    assert [wreck for wreck in accepted if not validator.is_valid(wreck)] == []
