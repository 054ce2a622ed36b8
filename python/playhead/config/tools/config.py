"""The configuration of tools as frozen values, and the rules for the approval of calls.

The id of a tool is its server's name and its own, written `server__tool`. Both names may contain `__`, so
code compares an id with the known pairs, and never splits it. Approval rules match the two names separately.
A server's annotations can make the default stricter, but change no rule.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from dataclasses import KW_ONLY, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypedDict, Unpack, get_args

from playhead.content import Block
from playhead.errors import ConfigError, UsageError
from playhead.results.plan import Decision, Stopper


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContent:
    """The result of a tool, for its response handler. The server chose all of it: do not trust it."""

    server: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The arguments of the call."""
    blocks: tuple[Block, ...] = ()
    """All content blocks, in order; `block.raw` is the object received."""
    raw: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The complete result, as received."""
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text blocks, one per line."""
        known = (block.fields or {} for block in self.blocks)
        return "\n".join(fields["text"] for fields in known if fields.get("type") == "text")

    @property
    def structured(self) -> Any:
        """The result's `structuredContent`; None without one."""
        return self.raw.get("structuredContent")


@dataclass(frozen=True, slots=True)
class ToolResponse:
    """The answer of a response handler. Raises `UsageError` for a value of the wrong type."""

    message: str
    """Text for the user, and for the model if `send_result_to_ai` is set."""
    raw_content: object = None
    """The source of the message, for further processing."""
    _: KW_ONLY
    paths: Mapping[str, Path] = field(default_factory=dict, hash=False)
    """Files that the handler wrote, by format: `{"srt": Path("talk.srt")}`."""
    text_for_model: str | None = None
    """Text for the model instead of `message`, if `send_result_to_ai` is set: a person wants one line of a
    transcript, the model all of it."""

    def __post_init__(self) -> None:
        if not isinstance(self.message, str):
            raise UsageError(
                f"ToolResponse.message: expected a string, got {type(self.message).__name__};"
                " convert it with str() or json.dumps()"
            )
        if not isinstance(self.text_for_model, str | None):
            raise UsageError(
                f"ToolResponse.text_for_model: expected a string, got {type(self.text_for_model).__name__}"
            )
        paths: object = self.paths
        if not isinstance(paths, Mapping):
            raise UsageError(
                f"ToolResponse.paths: expected a mapping of formats to paths, got {type(paths).__name__}"
            )
        for name, path in paths.items():
            if not isinstance(name, str) or not isinstance(path, str | Path):
                raise UsageError(f"ToolResponse.paths: expected a string and a path, got {name!r}: {path!r}")
        as_paths = {name: Path(path) for name, path in paths.items()}
        object.__setattr__(self, "paths", MappingProxyType(as_paths))


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerReference:
    """A handler named in a file: `package.module:function`, or `file.py:function` relative to that file.

    It is imported for the first result that needs it.
    """

    module: str
    """A module's dotted name, or a path that ends in `.py`."""
    function: str
    """The function's name in the module, or the dotted name of a method."""
    where: str
    """The file and key path that name it."""
    folder: Path | None = None
    """The base of a relative `.py` path: the directory of the file that names it."""

    def __str__(self) -> str:
        return f"{self.module}:{self.function}"


ResponseHandler = Callable[[ToolContent], ToolResponse | Awaitable[ToolResponse]]
"""A function that turns a result into a response. A sync one runs in a thread, an async one under trio."""

SEPARATOR: Final = "__"
WILDCARDS: Final = frozenset("*?")
DECISIONS: Final[tuple[str, ...]] = get_args(Decision)
METADATA_DEPTH: Final = 64
"""Limits the levels of lists and mappings in a configuration's metadata."""
STOPPERS: Final[tuple[str, ...]] = get_args(Stopper)


def create_tool_id(server: str, tool: str) -> str:
    """Return the id `server__tool`. It cannot be split again, because both names may contain `__`."""
    return f"{server}{SEPARATOR}{tool}"


class Kind(enum.StrEnum):
    """Kinds of configurations."""

    EXACT = "exact"
    """A single tool."""
    PATTERN = "pattern"
    """Every tool whose id matches: `*` matches any characters, `?` one; case matters."""
    DYNAMIC = "dynamic"
    """Every tool of a listed server that has no other configuration."""


class Keep(enum.Enum):
    """The one value of `KEEP`."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP
"""The value of a `ToolOverride` that leaves the configured handler. (`None` removes it.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolConfig:
    """The configuration of one tool, of the tools that match a pattern, or of a listed server's tools.

    Usually created by `create_tool_config`, `create_id_config` or `create_dynamic_config`. Raises
    `ConfigError` for a value of the wrong type.
    """

    kind: Kind
    tool_id: str
    """`server__tool`, or a pattern for such ids."""
    server: str | None = None
    """The server's name; None if there is only an id or a pattern of ids, as in a file."""
    tool: str | None = None
    description: str | None = None
    """The description for the model, in place of the server's."""
    system_prompt: str | None = None
    """Text to add to the model's system prompt while the model can call the tool."""
    save_output: bool = True
    send_result_to_ai: bool = False
    """True: the model gets the text (the handler's, if any). False: the model learns only that the user got
    the result, and its turn ends."""
    response_handler: ResponseHandler | HandlerReference | None = None
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Any JSON values, for middleware and the saved sidecar."""
    trust_structured: bool | None = None
    """Overrides the field of `results.Policy`, as do `turn` and `stops`. None overrides nothing."""
    turn: Decision | None = None
    stops: Set[Stopper] | None = None
    source: str = field(default="", compare=False)
    """The file or module that defines it, for messages."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", _frozen(self.metadata))
        object.__setattr__(self, "stops", _as_stops(self.stops))
        _check_types(self, f"tool configuration {self.tool_id}")

    def fits(self, server: str, tool: str) -> bool:
        """Return True if this is for the tool `tool` of `server`. A server's name is taken literally."""
        if self.kind is Kind.DYNAMIC:
            return server == self.server
        if self.server is None or self.tool is None:
            return _matches(create_tool_id(server, tool), self.tool_id, self.kind)
        return server == self.server and _matches(tool, self.tool, self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOverride:
    """Settings of one call. Fields without a value stay as configured.

    Raises `ConfigError` for a value of the wrong type.
    """

    save_output: bool | None = None
    send_result_to_ai: bool | None = None
    response_handler: ResponseHandler | HandlerReference | Keep | None = KEEP
    metadata: Mapping[str, object] | None = None
    """Replaces the configured metadata. The two are not merged."""
    trust_structured: bool | None = None
    turn: Decision | None = None
    stops: frozenset[Stopper] | None = None

    def __post_init__(self) -> None:
        if self.metadata is not None:
            object.__setattr__(self, "metadata", _frozen(self.metadata))
        object.__setattr__(self, "stops", _as_stops(self.stops))
        _check_types(self, "tool override")

    def given(self) -> dict[str, object]:
        """Return the fields that were set, by name."""
        unset = {"response_handler": KEEP}
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value is not unset.get(name)}


class ToolSettings(TypedDict, total=False):
    """The settings of `ToolConfig` that `create_tool_config` and `create_id_config` take."""

    description: str | None
    system_prompt: str | None
    save_output: bool
    send_result_to_ai: bool
    response_handler: ResponseHandler | HandlerReference | None
    metadata: Mapping[str, object]
    trust_structured: bool | None
    turn: Decision | None
    stops: Set[Stopper] | None
    source: str


def create_tool_config(server: str, tool: str, **settings: Unpack[ToolSettings]) -> ToolConfig:
    """Configure one tool, or those of `server` that match if `tool` contains `*` or `?`.

    `settings` are fields of `ToolConfig`, with its defaults. A configuration decides as a whole: even the
    default `send_result_to_ai=False` is a decision. Only without a configuration does the classifier decide.
    Raises `ConfigError` for an empty name and for a value of the wrong type.
    """
    _require_name(server, "server")
    _require_name(tool, "tool")
    kind = Kind.PATTERN if WILDCARDS & set(tool) else Kind.EXACT
    return ToolConfig(kind=kind, tool_id=create_tool_id(server, tool), server=server, tool=tool, **settings)


def create_id_config(tool_id: str, **settings: Unpack[ToolSettings]) -> ToolConfig:
    """Configure the tool with this id, or those that match if it contains `*` or `?`.

    The keys of a file are such ids: `home__play`, `home__*`, `*__search`. Otherwise as `create_tool_config`.
    """
    _require_name(tool_id, "tool id")
    kind = Kind.PATTERN if WILDCARDS & set(tool_id) else Kind.EXACT
    return ToolConfig(kind=kind, tool_id=tool_id, **settings)


def create_dynamic_config(
    server: str,
    *,
    save_output: bool = True,
    send_result_to_ai: bool = True,
    metadata: Mapping[str, object] | None = None,
    source: str = "",
) -> ToolConfig:
    """Configure the tools of `server` that have no other configuration, for servers whose tools are not
    known in advance. Their results go to the model. Raises `ConfigError`."""
    _require_name(server, "server")
    return ToolConfig(
        kind=Kind.DYNAMIC,
        tool_id=create_tool_id(server, "*"),
        server=server,
        save_output=save_output,
        send_result_to_ai=send_result_to_ai,
        metadata=metadata or {},
        source=source,
    )


def fits(name: str, pattern: str) -> bool:
    """Match `name` against `pattern`, in which `*` matches any characters and `?` one; case matters.

    There are no character classes, so a server called `my[x]` needs no escaping. fnmatch's expression doesn't
    backtrack past a star, so long names are cheap.
    """
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def _matches(text: str, pattern: str, kind: Kind) -> bool:
    return text == pattern or (kind is Kind.PATTERN and fits(text, pattern))


def _require_name(text: object, what: str) -> None:
    if not isinstance(text, str) or not text:
        raise ConfigError(f"tool configuration: expected a {what}'s name, got {text!r}")


def _frozen(metadata: Mapping[str, object] | None) -> Mapping[str, object]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise ConfigError(f"tool configuration: metadata: expected a mapping, got {type(metadata).__name__}")
    return MappingProxyType(dict(metadata or {}))


def _as_stops(kinds: Iterable[Stopper] | None) -> frozenset[Stopper] | None:
    if kinds is None:
        return None
    if isinstance(kinds, str):
        raise ConfigError(f"tool configuration: stops: expected a set of kinds, got the string {kinds!r}")
    return frozenset(kinds)


def _check_types(config: ToolConfig | ToolOverride, where: str) -> None:
    """Raise `ConfigError` for a value of the wrong type: not every caller runs a type checker."""

    def check(name: str, expected: str, fits: Callable[[object], bool]) -> None:
        value: object = getattr(config, name, None)
        if value is not None and not fits(value):
            # The type rather than the value: metadata may contain secrets.
            raise ConfigError(f"{where}: {name}: expected {expected}, got {type(value).__name__}")

    for name in ("description", "system_prompt"):
        check(name, "a string", lambda value: isinstance(value, str))
    for name in ("save_output", "send_result_to_ai"):
        if isinstance(config, ToolConfig) and getattr(config, name) is None:
            raise ConfigError(f"{where}: {name}: expected True or False, got None")
    for name in ("save_output", "send_result_to_ai", "trust_structured"):
        check(name, "True or False", lambda value: isinstance(value, bool))
    check(
        "response_handler",
        "a function that takes a ToolContent",
        lambda value: callable(value) or isinstance(value, HandlerReference | Keep),
    )
    if config.turn is not None and config.turn not in DECISIONS:
        raise ConfigError(f"{where}: turn: expected one of {', '.join(DECISIONS)}, got {config.turn!r}")
    for kind in config.stops or ():
        if kind not in STOPPERS:
            raise ConfigError(f"{where}: stops: expected some of {', '.join(STOPPERS)}, got {kind!r}")
    problem = not_json(config.metadata)
    if problem is not None:
        raise ConfigError(f"{where}: metadata{problem}")


def not_json(value: object, where: str = "", depth: int = 0) -> str | None:
    """Describe the first value that JSON cannot represent, with its path; None if all are valid."""
    if depth > METADATA_DEPTH:
        return f": expected at most {METADATA_DEPTH} levels, got more"  # or a list that contains itself
    match value:
        case None | bool() | int() | str():
            return None
        case float():
            return None if math.isfinite(value) else f"{where}: expected a finite number, got {value}"
        case list() | tuple():
            problems = (not_json(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value))
        case Mapping():
            for key in value:
                if not isinstance(key, str):
                    return f"{where}: expected strings for keys, got {key!r}"
            problems = (not_json(item, f"{where}.{key}", depth + 1) for key, item in value.items())
        case _:
            return f"{where}: expected a value that JSON can represent, got a {type(value).__name__}"
    return next((problem for problem in problems if problem is not None), None)


Action = Literal["allow", "ask", "deny"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
"""All actions, from the most permissive to the strictest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRule:
    """An action, and the tools that it is for."""

    action: Action
    server: str = "*"
    """A pattern for the server's name."""
    tool: str = "*"
    """A pattern for the tool's own name."""

    def __post_init__(self) -> None:
        _check_action(self.action, "approval rule: action")
        _check_pattern(self.server, "approval rule: server")
        _check_pattern(self.tool, "approval rule: tool")

    def fits(self, server: str, tool: str) -> bool:
        return fits(server, self.server) and fits(tool, self.tool)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPolicy:
    """Rules for calls, of which the first that matches decides. Raises `ConfigError` for an invalid
    `default`."""

    rules: tuple[ApprovalRule, ...] = ()
    default: Action = "allow"
    """The action for a tool that no rule matches. Such tools run, because the user chose the servers; but a
    tool that declares itself destructive (`destructiveHint: true`) needs the user's approval."""

    also: tuple[ApprovalPolicy, ...] = ()
    """Policies that can make a decision stricter."""

    approved: tuple[ApprovalRule, ...] = ()
    """Tools that run without asking during one run of a program (`--allow`), unless another rule denies them.
    Raises `ConfigError` for any action but `allow`."""

    def __post_init__(self) -> None:
        _check_action(self.default, "approval policy: default")
        if wrong := [rule.action for rule in self.approved if rule.action != "allow"]:
            raise ConfigError(f"approval policy: approved: expected rules that allow, got {wrong[0]!r}")

    def tightened(self, other: ApprovalPolicy) -> ApprovalPolicy:
        """Combine this policy with `other`: the stricter decision applies to each tool."""
        return replace(self, also=(*self.also, other))

    def action(self, server: str, tool: str, *, destructive: bool) -> Action:
        """Return the action for a tool. `destructive`: the tool has an explicit `destructiveHint: true`.

        The hint turns a default of `allow` into `ask`. It does not override the user's rules. (For the
        protocol, an absent hint means true as well, but here only an explicit one counts.)
        """
        action = self._strictest(server, tool, destructive=destructive)
        is_approved = any(rule.fits(server, tool) for rule in self.approved)
        return "allow" if action == "ask" and is_approved else action

    def _strictest(self, server: str, tool: str, *, destructive: bool) -> Action:
        action = next((rule.action for rule in self.rules if rule.fits(server, tool)), None)
        if action is None:
            action = "ask" if destructive and self.default == "allow" else self.default
        others = (other.action(server, tool, destructive=destructive) for other in self.also)
        return max((action, *others), key=ACTIONS.index)


def _check_action(action: object, where: str) -> None:
    if action not in ACTIONS:
        raise ConfigError(f"{where}: expected one of {', '.join(ACTIONS)}, got {action!r}")


def _check_pattern(pattern: object, where: str) -> None:
    if not isinstance(pattern, str) or not pattern:
        raise ConfigError(f"{where}: expected a name or a pattern like '*', got {pattern!r}")
