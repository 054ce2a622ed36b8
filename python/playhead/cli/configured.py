"""What a tool's configuration makes of a call on the command line: as in a hub, for one server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from playhead.cli.terminal import Terminal
from playhead.client import TeeMedia
from playhead.client.processing import ProcessedResult, process
from playhead.client.spool import NotSaved, Saved
from playhead.config.outputs import OutputStore, default_output_folder
from playhead.config.tools import ToolOverride, default_sources
from playhead.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from playhead.client import CallResult
    from playhead.config.outputs import SavedOutput
    from playhead.config.servers import ServerConfig


class Configured:
    """One tool with what is configured for it. Raises `ConfigError` for a file that can't be understood."""

    def __init__(self, server: ServerConfig, tool: str, *, file: Path | None, unsaved: bool) -> None:
        self._tool = tool
        configs = default_sources(file).load()
        resolution = configs.resolve(server.name, tool, server_config=server)
        if unsaved and resolution.save_output:
            override = ToolOverride(save_output=False)
            resolution = configs.resolve(server.name, tool, override=override, server_config=server)
        self.resolution = resolution

    async def process(self, arguments: Mapping[str, Any], result: CallResult) -> ProcessedResult:
        """Handler, saving, routing; see `Hub.process_tool_response`."""
        return await process(
            self._tool,
            arguments,
            result,
            resolution=self.resolution,
            outputs=OutputStore(default_output_folder()),
            limits=DEFAULT_LIMITS,
        )

    def message(self, processed: ProcessedResult) -> str | None:
        """What the handler says to the user in place of the result's texts."""
        return None if processed.handler_response is None else processed.handler_response.message

    def raise_errors(self, processed: ProcessedResult) -> None:
        """End with what went wrong after the answer: a handler that failed, or a disk that refused."""
        for error in (processed.handler_error, processed.saving_error):
            if error is not None:
                raise error


async def saved_report(
    processed: ProcessedResult, terminal: Terminal, *, played: bool
) -> list[dict[str, object]]:
    """What was saved, told and for `--json`; streams that were `played` are asked what became of them."""
    found: list[dict[str, object]] = [_about(output, terminal) for output in processed.saved]
    for media in processed.media if played else ():
        if not isinstance(media, TeeMedia):
            continue
        with trio.CancelScope(shield=True):  # an interrupted play has its outcome at once
            outcome = await media.saved()
        match outcome:
            case Saved(output=output):
                found.append(_about(output, terminal))
            case NotSaved(reason=reason):
                terminal.say(f"{media.title}: {reason}", style="yellow")
                found.append({"path": None, "title": media.title, "reason": reason})
    return found


def _about(output: SavedOutput, terminal: Terminal) -> dict[str, object]:
    terminal.say(f"saved as {output.path}", whole=True)
    return {"path": str(output.path), "mime_type": output.mime, "sha256": output.sha256}
