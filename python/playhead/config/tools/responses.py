"""What a response handler is given and what it gives back, and how a file names one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mcp_types import TextContent

from playhead.content import Block
from playhead.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContent:
    """What a tool gave back, as its response handler sees it. All of it is the server's: judge it."""

    server: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What the tool was called with."""
    blocks: tuple[Block, ...] = ()
    """Every content block in its order; `block.raw` is the object as it came."""
    raw: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The whole result as it came."""
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text blocks, one a line."""
        return "\n".join(
            block.content.text for block in self.blocks if isinstance(block.content, TextContent)
        )

    @property
    def structured(self) -> Any:
        """The result's `structuredContent`; None without one."""
        return self.raw.get("structuredContent")


@dataclass(frozen=True, slots=True)
class ToolResponse:
    """What a response handler makes of a result. Raises `UsageError` for a value of the wrong type."""

    message: str
    """For the user, and for the model where `send_result_to_ai` is set."""
    raw_content: object = None
    """What the message was made of, for whoever processes the result further."""
    _: KW_ONLY
    paths: Mapping[str, Path] = field(default_factory=dict, hash=False)
    """Files that the handler wrote, by format: `{"srt": Path("talk.srt")}`."""
    text_for_model: str | None = None
    """For the model in place of `message`, where `send_result_to_ai` is set: a person wants one line of a
    transcript, the model all of it."""

    def __post_init__(self) -> None:
        if not isinstance(self.message, str):
            raise UsageError(
                f"ToolResponse.message: expected a text, came {type(self.message).__name__}; make it one with"
                " str() or json.dumps()"
            )
        if not isinstance(self.text_for_model, str | None):
            raise UsageError(
                f"ToolResponse.text_for_model: expected a text, came {type(self.text_for_model).__name__}"
            )
        paths: object = self.paths
        if not isinstance(paths, Mapping):
            raise UsageError(
                f"ToolResponse.paths: expected a mapping of formats to paths, came {type(paths).__name__}"
            )
        for name, path in paths.items():
            if not isinstance(name, str) or not isinstance(path, str | Path):
                raise UsageError(f"ToolResponse.paths: expected a text and a path, came {name!r}: {path!r}")
        settled = {name: Path(path) for name, path in paths.items()}
        object.__setattr__(self, "paths", MappingProxyType(settled))


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerReference:
    """A handler as a file names it: `package.module:function`, or `file.py:function` beside that file.

    Nothing is imported before the first result that needs it.
    """

    module: str
    """A module's dotted name, or a path that ends in `.py`."""
    function: str
    """Its name in the module; dots lead into a class."""
    where: str
    """The file and key path that name it."""
    folder: Path | None = None
    """Where a `.py` path begins: the folder of the file that names it."""

    def __str__(self) -> str:
        return f"{self.module}:{self.function}"
