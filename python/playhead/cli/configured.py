"""Apply a tool's configuration to a command-line call, as a hub does, for one server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from playhead.cli.terminal import Terminal
from playhead.client import TeeMedia
from playhead.client.call_results.processing import ProcessedResult, process
from playhead.client.call_results.tee import NotSaved, Saved
from playhead.config.outputs import OutputStore, default_output_folder
from playhead.config.tools import ToolOverride, default_sources
from playhead.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from playhead.client import CallResult
    from playhead.config.outputs import SavedOutput
    from playhead.config.servers import ServerConfig
    from playhead.config.trust import Trust


class Configured:
    """One tool and its configuration. Raises `ConfigError` for an invalid file."""

    def __init__(
        self, server: ServerConfig, tool: str, *, file: Path | None, unsaved: bool, trust: Trust
    ) -> None:
        self._tool = tool
        configs = default_sources(file, trust=trust).load()
        resolution = configs.resolve(server.name, tool, server_config=server)
        if unsaved and resolution.save_output:
            override = ToolOverride(save_output=False)
            resolution = configs.resolve(server.name, tool, override=override, server_config=server)
        self.resolution = resolution

    async def process(self, arguments: Mapping[str, Any], result: CallResult) -> ProcessedResult:
        """Run the handler, save and route the result; see `Hub.process_tool_response`."""
        return await process(
            self._tool,
            arguments,
            result,
            resolution=self.resolution,
            outputs=OutputStore(default_output_folder()),
            limits=DEFAULT_LIMITS,
        )

    def message(self, processed: ProcessedResult) -> str | None:
        """Return the handler's message to the user, which replaces the result's text, or None."""
        return None if processed.handler_response is None else processed.handler_response.message

    def raise_errors(self, processed: ProcessedResult) -> None:
        """Raise the error of a failed handler or of a failed save, if any."""
        for error in (processed.handler_error, processed.saving_error):
            if error is not None:
                raise error


async def saved_report(
    processed: ProcessedResult, terminal: Terminal, *, played: bool
) -> list[dict[str, object]]:
    """Report what was saved, on the terminal and for `--json`, including streams that were `played`."""
    found: list[dict[str, object]] = [_about(output, terminal) for output in processed.saved]
    for media in processed.media if played else ():
        if not isinstance(media, TeeMedia):
            continue
        with trio.CancelScope(shield=True):  # after an interrupt the outcome is available at once
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
