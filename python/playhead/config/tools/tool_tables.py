"""The tables of a tool configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from playhead.config.document import place
from playhead.config.tables import Table
from playhead.config.tools.config import Action, ApprovalPolicy, ApprovalRule, not_json
from playhead.errors import ConfigError
from playhead.results.plan import Decision, Stopper


def _metadata(values: dict[str, object]) -> dict[str, object]:
    if problem := not_json(values):
        raise ValueError(problem)
    return values


_Metadata = Annotated[dict[str, object], AfterValidator(_metadata)]


class ToolTable(Table):
    server: str | None = None
    tool: str | None = None
    description: str | None = None
    system_prompt: str | None = None
    save_output: bool | None = None
    send_result_to_ai: bool | None = None
    response_handler: str | None = None
    metadata: _Metadata = Field(default_factory=dict)
    trust_structured: bool | None = None
    turn: Decision | None = None
    stops: frozenset[Stopper] | None = None


class DynamicTable(Table):
    servers: tuple[str, ...] | None = None
    save_output: bool | None = None
    send_result_to_ai: bool | None = None
    metadata: _Metadata = Field(default_factory=dict)


class RuleTable(Table):
    action: Action
    server: str | None = None
    tool: str | None = None


class ApprovalsTable(Table):
    """The `approvals` table of a configuration file."""

    default: Action | None = None
    rules: tuple[RuleTable, ...] = ()

    def policy(self, path: Path) -> ApprovalPolicy:
        """Return the policy that this table of the file at `path` describes. Raises `ConfigError`."""
        for index, rule in enumerate(self.rules):
            where = place(path, ("approvals", "rules", index))
            if rule.server is None and rule.tool is None:
                # Most likely a mistake, and one that would allow everything.
                raise ConfigError(
                    f"{where}: expected `server` or `tool` (or both); for every tool, use server = '*'"
                )
            if "" in (rule.server, rule.tool):
                raise ConfigError(f"{where}: `server` and `tool` cannot be empty; '*' fits every name")
        return ApprovalPolicy(
            rules=tuple(
                ApprovalRule(action=rule.action, server=rule.server or "*", tool=rule.tool or "*")
                for rule in self.rules
            ),
            default=self.default or "allow",
        )


class ToolFile(Table):
    tools: dict[str, ToolTable] = Field(default_factory=dict)
    dynamic: DynamicTable = DynamicTable()
    modules: tuple[str, ...] | None = None
    approvals: ApprovalsTable = ApprovalsTable()
