"""Resolution of a tool's configuration: the first layer with a match decides.

call-time override > exact id > pattern > the server's own entry > dynamic default > none

The layer that decides does so as a whole, without merging fields from lower layers. Two settings apply field
by
field: a call's `ToolOverride`, and the server's `trust_structured`, for tools that do not set their own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from playhead.config.servers import ServerConfig
from playhead.config.tools.config import (
    SEPARATOR,
    WILDCARDS,
    Kind,
    ToolConfig,
    ToolOverride,
    create_tool_id,
)
from playhead.errors import ConfigError
from playhead.results.plan import DEFAULT_POLICY, Policy


class Layer(enum.StrEnum):
    """Layers that can decide, in order of precedence."""

    CALL = "call"
    EXACT = "exact"
    PATTERN = "pattern"
    SERVER = "server"
    DYNAMIC = "dynamic"
    NONE = "none"


class Delivery(enum.StrEnum):
    """The recipient of a result's text."""

    MODEL = "model"
    """The model gets the text: `send_result_to_ai = true`."""
    USER = "user"
    """The user gets the text; the model learns only that, and its turn ends: `send_result_to_ai = false`."""
    PLAN = "plan"
    """The classifier decides, because nothing is configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A layer that was consulted."""

    layer: Layer
    found: bool
    """True if the layer has a configuration for the tool."""
    decided: bool
    said: str
    """A description of the layer's configuration, or of its absence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The configuration that applies to one tool, and why."""

    server: str
    tool: str
    config: ToolConfig | None
    """The configuration with the call's override; None if nothing is configured, and then the call runs,
    too."""
    layer: Layer
    """The layer that decided."""
    looked_at: tuple[Step, ...]
    """Every layer in order, including those after the one that decided."""
    decided_by: Mapping[str, Layer] = field(default_factory=dict, hash=False)
    """The layer that set each field; unset fields are missing."""
    trust_structured: bool | None = None
    """The tool's own setting, else the server's; None if neither is set."""

    @property
    def tool_id(self) -> str:
        return create_tool_id(self.server, self.tool)

    @property
    def delivery(self) -> Delivery:
        """The recipient of the text."""
        if self.config is None or "send_result_to_ai" not in self.decided_by:
            return Delivery.PLAN
        return Delivery.MODEL if self.config.send_result_to_ai else Delivery.USER

    @property
    def save_output(self) -> bool:
        """False if nothing is configured."""
        return self.config is not None and self.config.save_output

    def policy(self, base: Policy = DEFAULT_POLICY) -> Policy:
        """Return `base` with the tool's own settings applied."""
        config = self.config
        return replace(
            base,
            trust_structured=(
                base.trust_structured if self.trust_structured is None else self.trust_structured
            ),
            turn=base.turn if config is None or config.turn is None else config.turn,
            stops=base.stops if config is None or config.stops is None else frozenset(config.stops),
        )

    def explain(self) -> str:
        """Describe the decision, one line per layer; the layer that decided is marked with `>`."""
        return "\n".join(
            f"{'>' if step.decided else ' '} {step.layer:<8}{step.said}" for step in self.looked_at
        )


POLICY_FIELDS: Final = ("trust_structured", "turn", "stops")
SETTINGS: Final = (
    "description",
    "system_prompt",
    "save_output",
    "send_result_to_ai",
    "response_handler",
    "metadata",
    *POLICY_FIELDS,
)
"""Settings of a configuration, in the order of reports."""


class ToolConfigs:
    """An immutable set of tool configurations. `ToolConfigs()` is empty.

    Raises `ConfigError` if two are for the same tool or pattern.
    """

    __slots__ = ("_tiers",)

    def __init__(self, configs: Iterable[ToolConfig] = ()) -> None:
        tier: dict[object, ToolConfig] = {}
        for config in configs:
            other = tier.setdefault(_identity(config), config)
            if other is not config:
                raise ConfigError(
                    f"{config.source or 'tool configuration'}: {config.tool_id} is configured already"
                    f" ({other.source or 'before'}); keep one"
                )
        self._tiers: tuple[Mapping[object, ToolConfig], ...] = (tier,)
        """Sets with one configuration per key each. For a key in several tiers, the first tier wins."""

    def __iter__(self) -> Iterator[ToolConfig]:
        return iter({key: config for tier in reversed(self._tiers) for key, config in tier.items()}.values())

    def __len__(self) -> int:
        return len(set().union(*self._tiers))

    def __repr__(self) -> str:
        return f"ToolConfigs({', '.join(config.tool_id for config in self)})"

    def over(self, other: ToolConfigs) -> ToolConfigs:
        """Combine both sets; for the same tool or pattern, the configuration in this one wins.

        The order of precedence does not change: an exact configuration in `other` comes before a pattern in
        this set, and so does a more specific pattern.
        """
        merged = ToolConfigs()
        merged._tiers = self._tiers + other._tiers
        return merged

    def resolve(
        self,
        server: str,
        tool: str,
        *,
        override: ToolConfig | ToolOverride | None = None,
        server_config: ServerConfig | None = None,
    ) -> Resolution:
        """Find the configuration that applies to the tool `tool` of `server`.

        `override` is for one call: a `ToolConfig` replaces every other configuration, a `ToolOverride` only
        the fields that it sets. `server_config` is the server's entry in the servers file. Never raises.
        """
        layers = (
            self._call_layer(override),
            self._exact_layer(server, tool),
            self._pattern_layer(server, tool),
            _server_layer(server, tool, server_config),
            self._dynamic_layer(server),
        )
        deciding = next((each for each in layers if each.config is not None), None)
        config, decided_by = None, dict[str, Layer]()
        if deciding is not None and deciding.config is not None:
            config = deciding.config
            decided_by = dict.fromkeys(_decided_fields(deciding), deciding.layer)
        fields = override.given() if isinstance(override, ToolOverride) else {}
        if fields:
            config = replace(config or _empty_config(server, tool), **fields)  # type: ignore[arg-type] # by its names
            decided_by |= dict.fromkeys(fields, Layer.CALL)
        trust = None if config is None else config.trust_structured
        server_trust = None if server_config is None else server_config.trust_structured
        if trust is None and server_trust is not None:
            trust = server_trust
            decided_by["trust_structured"] = Layer.SERVER
        deciding_layer = Layer.NONE if deciding is None else deciding.layer
        return Resolution(
            server=server,
            tool=tool,
            config=config,
            layer=Layer.CALL if fields else deciding_layer,
            looked_at=_steps(layers, deciding_layer, has_override=bool(fields)),
            decided_by=decided_by,
            trust_structured=trust,
        )

    def find(self, tool_id: str, servers: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return the (server, tool) pairs that `tool_id` can stand for, if these are the `servers`.

        There are several if one server's name is another's followed by `__` and more.
        """
        return tuple(
            (server, tool_id.removeprefix(prefix))
            for server in servers
            if tool_id.startswith(prefix := server + SEPARATOR) and tool_id != prefix
        )

    def _call_layer(self, override: ToolConfig | ToolOverride | None) -> _Consulted:
        match override:
            case ToolConfig():
                return _Consulted(Layer.CALL, override, "a whole configuration")
            case ToolOverride() if names := override.given():
                return _Consulted(Layer.CALL, None, f"sets {', '.join(names)}; the rest is as below")
            case _:
                return _Consulted(Layer.CALL, None, "no override")

    def _exact_layer(self, server: str, tool: str) -> _Consulted:
        tool_id = create_tool_id(server, tool)
        keys = ((Kind.EXACT, server, tool, tool_id), (Kind.EXACT, None, None, tool_id))
        config = self._first_match(*keys)
        return _Consulted(Layer.EXACT, config, _place(config) if config else f"nothing for {tool_id}")

    def _first_match(self, *keys: object) -> ToolConfig | None:
        """Return the configuration for the first of `keys` in the first tier that has any of them."""
        return next((tier[key] for tier in self._tiers for key in keys if key in tier), None)

    def _pattern_layer(self, server: str, tool: str) -> _Consulted:
        ranked: dict[object, tuple[tuple[object, ...], ToolConfig]] = {}
        for number, tier in reversed(list(enumerate(self._tiers))):  # a higher tier replaces a lower one
            for config in tier.values():
                if config.kind is Kind.PATTERN and config.fits(server, tool):
                    ranked[_identity(config)] = _pattern_rank(config, number), config
        fitting = [config for _, config in sorted(ranked.values(), key=lambda pair: pair[0])]
        if not fitting:
            return _Consulted(Layer.PATTERN, None, "no pattern fits")
        others = ", ".join(config.tool_id for config in fitting[1:])
        description = _place(fitting[0]) + (f"; less specific: {others}" if others else "")
        return _Consulted(Layer.PATTERN, fitting[0], description)

    def _dynamic_layer(self, server: str) -> _Consulted:
        config = self._first_match((Kind.DYNAMIC, server, None, create_tool_id(server, "*")))
        place = f" in {config.source}" if config and config.source else ""
        description = f"{server} is listed{place}" if config else f"{server} is not listed"
        return _Consulted(Layer.DYNAMIC, config, description)


class _Consulted(NamedTuple):
    """A layer, and its configuration for the tool, if any."""

    layer: Layer
    config: ToolConfig | None
    description: str


_NO_CONFIG: Final = "no handler, nothing saved, the classifier decides who gets the text"


def _steps(layers: Iterable[_Consulted], deciding_layer: Layer, *, has_override: bool) -> tuple[Step, ...]:
    """Describe each layer. With a `ToolOverride` both the call and the first layer with a match decide."""
    steps = []
    for each in layers:
        overrides = each.layer is Layer.CALL and has_override
        found = each.config is not None or overrides
        decided = each.layer is deciding_layer or overrides
        steps.append(Step(layer=each.layer, found=found, decided=decided, said=each.description))
    is_none = deciding_layer is Layer.NONE
    decided = is_none and not has_override
    return (*steps, Step(layer=Layer.NONE, found=is_none, decided=decided, said=_NO_CONFIG))


def _server_layer(server: str, tool: str, entry: ServerConfig | None) -> _Consulted:
    """Consult the server's own entry, which can only decide who gets the text."""
    if entry is None:
        return _Consulted(Layer.SERVER, None, f"{server} has no entry in a servers file")
    if entry.send_result_to_ai is None:
        return _Consulted(Layer.SERVER, None, f"the entry of {server} has no send_result_to_ai")
    description = f"the entry of {server} says send_result_to_ai = {str(entry.send_result_to_ai).lower()}"
    config = replace(_empty_config(server, tool), send_result_to_ai=entry.send_result_to_ai)
    return _Consulted(Layer.SERVER, config, description)


def _empty_config(server: str, tool: str) -> ToolConfig:
    """Return a configuration that an override can change. It saves nothing."""
    # `create_tool_config` would refuse a tool called "" and take "*" for a pattern.
    tool_id = create_tool_id(server, tool)
    return ToolConfig(kind=Kind.EXACT, tool_id=tool_id, server=server, tool=tool, save_output=False)


def _decided_fields(consulted: _Consulted) -> tuple[str, ...]:
    """Name the fields that a layer decides."""
    if consulted.layer is Layer.SERVER:
        return ("send_result_to_ai",)
    return tuple(name for name in SETTINGS if getattr(consulted.config, name) is not None)


def _place(config: ToolConfig) -> str:
    return f"{config.tool_id} in {config.source}" if config.source else config.tool_id


def _pattern_rank(config: ToolConfig, tier: int) -> tuple[int, int, int, bool, str]:
    """Return the sort key of a pattern: first the one with the most literal characters, then the fewest `*`,
    then the highest tier, then one with a separate server name, then alphabetically."""
    pattern = config.tool_id if config.tool is None else config.tool
    n_wildcards = sum(1 for char in pattern if char in WILDCARDS)
    return (n_wildcards - len(config.tool_id), pattern.count("*"), tier, config.tool is None, config.tool_id)


def _identity(config: ToolConfig) -> object:
    return (config.kind, config.server, config.tool, config.tool_id)
