"""Approval of tool calls: ordered rules that match the names of servers and tools, and nothing else.

    [approvals]
    default = "ask"                                    # if no rule matches; default: "allow"

    [[approvals.rules]]                                # the first rule that matches decides
    server = "files"
    tool = "delete*"
    action = "deny"

Patterns match the server's name (from the user's servers file) and the tool's own name separately, because an
id like `a__b__c` could be split in two ways. A server's annotations can make the default stricter, and change
no rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, get_args

from playhead.config.document import Table, place
from playhead.errors import ConfigError

Action = Literal["allow", "ask", "deny"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
"""From most permissive to strictest."""


def fits(name: str, pattern: str) -> bool:
    """Match `name` against `pattern`, in which `*` matches any characters and `?` one; case matters.

    There are no character classes, so a server called `my[x]` needs no escaping. fnmatch's expression doesn't
    backtrack past a star, so long names are cheap.
    """
    return fnmatchcase(name, pattern.replace("[", "[[]"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRule:
    """The action for the tools that match."""

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
    """Rules in order; the first that matches decides. Raises `ConfigError` for an invalid `default`."""

    rules: tuple[ApprovalRule, ...] = ()
    default: Action = "allow"
    """For a tool that no rule fits. The servers are the user's own choice, so their tools run; one that says
    itself that it destroys (`destructiveHint: true`) is asked about all the same."""

    also: tuple[ApprovalPolicy, ...] = ()
    """Policies that can make a decision stricter."""

    approved: tuple[ApprovalRule, ...] = ()
    """Tools that run without asking, whatever the rest says, unless it denies them: for one program run
    (`--allow`). Raises `ConfigError` for another action than `allow`."""

    def __post_init__(self) -> None:
        _check_action(self.default, "approval policy: default")
        if wrong := [rule.action for rule in self.approved if rule.action != "allow"]:
            raise ConfigError(f"approval policy: approved: expected rules that allow, got {wrong[0]!r}")

    def tightened(self, other: ApprovalPolicy) -> ApprovalPolicy:
        """This policy combined with `other`: for each tool the stricter decision applies."""
        return replace(self, also=(*self.also, other))

    def action(self, server: str, tool: str, *, destructive: bool) -> Action:
        """The action for a tool. `destructive`: it has an explicit `destructiveHint: true`.

        The hint turns a default of `allow` into `ask`. It changes nothing where a rule fits: the rule is the
        user's. (The protocol's default for an absent hint is true too; only the explicit one counts.)
        """
        found = self._strictest(server, tool, destructive=destructive)
        is_approved = any(rule.fits(server, tool) for rule in self.approved)
        return "allow" if found == "ask" and is_approved else found

    def _strictest(self, server: str, tool: str, *, destructive: bool) -> Action:
        ours = next((rule.action for rule in self.rules if rule.fits(server, tool)), None)
        if ours is None:
            ours = "ask" if destructive and self.default == "allow" else self.default
        theirs = (other.action(server, tool, destructive=destructive) for other in self.also)
        return max(ours, *theirs, key=ACTIONS.index) if self.also else ours


class _Rule(Table):
    action: Action
    server: str | None = None
    tool: str | None = None


class ApprovalsTable(Table):
    """The `approvals` table of a configuration file."""

    default: Action | None = None
    rules: tuple[_Rule, ...] = ()

    def policy(self, path: Path) -> ApprovalPolicy:
        """The policy that the table of the file at `path` describes. Raises `ConfigError`."""
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


def _check_action(action: object, where: str) -> None:
    if action not in ACTIONS:
        raise ConfigError(f"{where}: expected one of {', '.join(ACTIONS)}, got {action!r}")


def _check_pattern(pattern: object, where: str) -> None:
    if not isinstance(pattern, str) or not pattern:
        raise ConfigError(f"{where}: expected a name or a pattern like '*', got {pattern!r}")
