"""Processing a result: handler, saving and routing as configured, with nothing lost on the way."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp.server.mcpserver import MCPServer
from mcp_types import AudioContent, CallToolResult, ImageContent, ResourceLink, TextContent

from playhead.client.call_results.processing import DELIVERED
from playhead.client.call_results.spool import Saved
from playhead.client.call_results.tee import TeeMedia
from playhead.client.hub import Hub, open_hub
from playhead.config.examples import summarise
from playhead.config.outputs import OutputStore, SavedOutput
from playhead.config.tools import (
    HandlerReference,
    ToolConfig,
    ToolConfigs,
    ToolContent,
    ToolOverride,
    ToolResponse,
    create_tool_config,
)
from playhead.errors import ConfigError, HandlerError, SavingError
from playhead.limits import Limits

SOUND = b"RIFF\x24\x00\x00\x00WAVE" + bytes(range(256))
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(20)
LONG = "word " * 1000


def text(content: str) -> TextContent:
    return TextContent(type="text", text=content)


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def sample() -> MCPServer:
    server: MCPServer = MCPServer("sample", log_level="CRITICAL")

    @server.tool(structured_output=False)
    async def words() -> str:
        return "some words"

    @server.tool(structured_output=False)
    async def long() -> str:
        return LONG

    @server.tool(structured_output=False)
    async def media() -> list[TextContent | AudioContent | ImageContent | ResourceLink]:
        return [
            text("listen:"),
            AudioContent(type="audio", data=base64_of(SOUND), mime_type="audio/wav"),
            ImageContent(type="image", data=base64_of(PICTURE), mime_type="image/png"),
            ResourceLink(type="resource_link", uri="resource://song", name="song.wav", mime_type="audio/wav"),
        ]

    @server.tool(structured_output=False)
    async def broken() -> list[TextContent | ImageContent]:
        return [ImageContent(type="image", data="*", mime_type="image/png"), text("after it")]

    @server.tool()
    async def fails() -> CallToolResult:
        return CallToolResult(content=[text("it is on fire")], is_error=True)

    @server.resource("resource://song", mime_type="audio/wav")
    def song() -> bytes:
        return SOUND

    return server


@asynccontextmanager
async def hub_with(folder: Path, *configs: ToolConfig, limits: Limits | None = None) -> AsyncIterator[Hub]:
    async with open_hub(
        {"s": sample()},
        tool_configs=ToolConfigs(configs),
        outputs=OutputStore(folder / "outputs"),
        limits=limits or Limits(),
    ) as hub:
        await hub.connect_all()
        await hub.discover_and_register_all_tools()
        yield hub


def shout(content: ToolContent) -> ToolResponse:
    return ToolResponse(content.text.upper(), content.text)


def config(tool: str, **settings: Any) -> ToolConfig:
    return create_tool_config("s", tool, **settings)


@pytest.mark.requirement("CF-17")
@pytest.mark.requirement("CF-19")
@pytest.mark.requirement("CF-20")
async def test_without_configuration_the_classifier_decides_and_nothing_is_saved(tmp_path: Path) -> None:
    async with hub_with(tmp_path) as hub:
        done = await hub.call_tool("s__words")
        assert (done.text_for_model, done.text_for_user) == ("some words", "")
        assert done.turn.decision == "continue"
        assert done.resolution.layer == "none"
        heard = await hub.call_tool("s__media")
        assert heard.turn.decision == "stop"
        assert heard.text_for_model.startswith("listen:\n[audio")
        assert [item.mime_type for item in heard.media] == ["audio/wav", "audio/wav"]
        assert (done.saved, heard.saved) == ((), ())
    assert not (tmp_path / "outputs").exists()


@pytest.mark.requirement("CF-21")
async def test_a_result_that_is_kept_from_the_model_goes_to_the_user_and_ends_the_turn(
    tmp_path: Path,
) -> None:
    async with hub_with(tmp_path, config("words")) as hub:
        done = await hub.call_tool("s__words")
        assert (done.text_for_model, done.text_for_user) == (DELIVERED, "some words")
        assert done.turn.decision == "stop"
        assert "send_result_to_ai" in done.turn.reason
        sent = await hub.call_tool("s__words", override=ToolOverride(send_result_to_ai=True))
        assert (sent.text_for_model, sent.turn.decision) == ("some words", "continue")
        assert sent.resolution.layer == "call"


@pytest.mark.requirement("CF-22")
@pytest.mark.requirement("HUB-06")
async def test_a_handlers_text_replaces_the_text_and_media_are_still_routed(tmp_path: Path) -> None:
    configured = config("media", response_handler=shout, send_result_to_ai=True)
    async with hub_with(tmp_path, configured) as hub:
        done = await hub.call_tool("s__media")
        assert done.text_for_user == "LISTEN:"
        first, *others = done.text_for_model.splitlines()
        assert first == "LISTEN:"
        assert [line.partition(",")[0] for line in others] == ["[audio", "[image", '[audio "song.wav"']
        assert done.turn.decision == "stop"  # it plays
        assert len(done.media) == 2
        assert done.handler_response is not None
        assert done.handler_response.raw_content == "listen:"
        assert done.result.text == "listen:"
        assert [output.mime for output in done.saved] == ["text/plain", "audio/wav", "image/png"]


async def test_a_handlers_text_is_kept_from_the_model_where_the_result_is(tmp_path: Path) -> None:
    async with hub_with(tmp_path, config("words", response_handler=shout)) as hub:
        done = await hub.call_tool("s__words")
        assert (done.text_for_user, done.text_for_model) == ("SOME WORDS", DELIVERED)


async def test_a_handler_sees_the_call_and_may_be_async(tmp_path: Path) -> None:
    async def tell(content: ToolContent) -> ToolResponse:
        await trio.lowlevel.checkpoint()
        said = content.raw["content"][0]["text"]
        return ToolResponse(f"{content.server} {content.tool} {content.arguments} {said}")

    async with hub_with(tmp_path, config("words", response_handler=tell, send_result_to_ai=True)) as hub:
        done = await hub.call_tool("s__words", {})
        assert done.text_for_model == "s words {} some words"


@pytest.mark.requirement("CF-23")
async def test_a_handler_that_raises_is_reported_and_the_result_goes_its_way(tmp_path: Path) -> None:
    def burn(_content: ToolContent) -> ToolResponse:
        raise KeyError("fire")

    configured = config("words", response_handler=burn, send_result_to_ai=True)
    async with hub_with(tmp_path, configured) as hub:
        done = await hub.call_tool("s__words")
        assert isinstance(done.handler_error, HandlerError)
        assert "KeyError: 'fire'" in str(done.handler_error)
        assert (done.text_for_model, done.result.text) == ("some words", "some words")
        assert len(done.saved) == 1


async def test_a_handler_that_cant_be_loaded_is_reported_too(tmp_path: Path) -> None:
    nowhere = HandlerReference(module="no_such_module", function="f", where="tools.toml: x")
    async with hub_with(tmp_path, config("words", response_handler=nowhere)) as hub:
        done = await hub.call_tool("s__words")
        assert isinstance(done.handler_error, ConfigError)
        assert (done.text_for_user, done.text_for_model) == ("some words", DELIVERED)


@pytest.mark.parametrize("delivery", [True, False])
async def test_an_error_goes_to_the_model_whatever_is_configured_and_is_no_output(
    tmp_path: Path, delivery: bool
) -> None:
    configured = config("fails", response_handler=shout, send_result_to_ai=delivery)
    async with hub_with(tmp_path, configured) as hub:
        done = await hub.call_tool("s__fails")
        assert done.is_error
        assert done.text_for_model == "Error: it is on fire"
        assert done.turn.decision == "continue"
        assert (done.saved, done.handler_response, done.handler_error) == ((), None, None)


@pytest.mark.requirement("CF-08")
async def test_results_are_saved_decoded_with_configured_metadata_and_tags(tmp_path: Path) -> None:
    configured = config("media", metadata={"tags": ["music", "test"], "owner": "me"})
    async with hub_with(tmp_path, configured) as hub:
        done = await hub.call_tool("s__media", {})
        assert done.saving_error is None
        assert [output.path.suffix for output in done.saved] == [".txt", ".wav", ".png"]
        assert [output.path.read_bytes() for output in done.saved] == [b"listen:", SOUND, PICTURE]
        sidecar = json.loads(done.saved[1].sidecar_path.read_text("utf-8"))
        assert (sidecar["tool_id"], sidecar["tags"]) == ("s__media", ["music", "test"])
        assert sidecar["metadata"]["owner"] == "me"


@pytest.mark.requirement("OUT-06")
async def test_a_link_is_saved_while_it_is_read(tmp_path: Path) -> None:
    async with hub_with(tmp_path, config("media")) as hub:
        done = await hub.call_tool("s__media")
        _, link = done.media
        assert isinstance(link, TeeMedia)
        async with link.open() as reader:
            buffer = bytearray(10_000)

            def read() -> int:
                total = 0
                while count := reader.readinto(memoryview(buffer)[total:], timeout=20):
                    total += count
                return total

            assert await trio.to_thread.run_sync(read) == len(SOUND)
        outcome = await link.saved()
        assert isinstance(outcome, Saved)
        assert outcome.output.path.read_bytes() == SOUND


async def test_cancelling_ends_the_saving_of_many_blocks_between_two_of_them(tmp_path: Path) -> None:
    class Cancelling(OutputStore):
        def save(self, *args: Any, **settings: Any) -> SavedOutput:
            trio.from_thread.run_sync(scope.cancel)
            return super().save(*args, **settings)

    server: MCPServer = MCPServer("many", log_level="CRITICAL")

    @server.tool(structured_output=False)
    async def words() -> list[str]:
        return ["one", "two", "three"]

    store = Cancelling(tmp_path)
    configs = ToolConfigs([config("words")])
    async with open_hub({"s": server}, tool_configs=configs, outputs=store) as hub:
        await hub.connect_all()
        with trio.CancelScope() as scope:
            await hub.call_tool("s__words")
    assert scope.cancelled_caught
    listing = store.list()
    assert [output.path.read_text() for output in listing.outputs] == ["one"]
    assert not listing.problems


async def test_the_record_holds_the_arguments_of_the_call_whoever_changes_them_later(tmp_path: Path) -> None:
    def change(content: ToolContent) -> ToolResponse:
        content.arguments["of"].append("the handler's")
        return ToolResponse("", "")

    async with hub_with(tmp_path, config("media", response_handler=change)) as hub:
        arguments = {"of": ["the call"]}
        done = await hub.call_tool("s__media", arguments)
        arguments["of"].append("the next call")
        assert [output.arguments for output in done.saved] == [{"of": ["the call"]}] * len(done.saved)
        (song,) = (item for item in done.media if isinstance(item, TeeMedia))
        async with song.open() as reader:
            while await trio.to_thread.run_sync(reader.readinto, bytearray(1024)):
                pass
        saved = await song.saved()
    assert isinstance(saved, Saved)
    assert saved.output.arguments == {"of": ["the call"]}


async def test_a_block_that_cannot_be_saved_does_not_stop_the_others(tmp_path: Path) -> None:
    async with hub_with(tmp_path, config("broken")) as hub:
        done = await hub.call_tool("s__broken")
        assert [output.path.read_text("utf-8") for output in done.saved] == ["after it"]
        assert "base64" in str(done.saving_error)


async def test_a_failed_save_affects_only_the_copy(tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("a file where the folder should be")
    async with hub_with(tmp_path, config("words", send_result_to_ai=True)) as hub:
        done = await hub.call_tool("s__words")
        assert isinstance(done.saving_error, SavingError)
        assert (done.saved, done.text_for_model) == ((), "some words")


async def test_shortened_text_names_the_file_with_the_whole(tmp_path: Path) -> None:
    configured = config("long", send_result_to_ai=True)
    async with hub_with(tmp_path, configured, limits=Limits(model_text_chars=400)) as hub:
        done = await hub.call_tool("s__long")
        assert len(done.text_for_model) <= 400
        assert f"saved as {done.saved[0].path.name}" in done.text_for_model


@pytest.mark.requirement("CF-24")
async def test_the_transcript_example_gives_the_user_a_line_and_the_model_the_text(tmp_path: Path) -> None:
    configured = config("long", response_handler=summarise, send_result_to_ai=True, metadata={"tags": ["t"]})
    async with hub_with(tmp_path, configured) as hub:
        done = await hub.call_tool("s__long")
        assert done.text_for_user.startswith("Transcript of 1,000 words: word word")
        assert done.text_for_model == LONG
        assert done.saved[0].path.read_text("utf-8") == LONG
