"""Which tools may run: ordered rules over the names of servers and tools, and nothing else.

    [approvals]
    default = "ask"                                    # for what no rule fits; else "allow"

    [[approvals.rules]]                                # the first rule that fits decides
    server = "files"
    tool = "delete*"
    action = "deny"

Patterns hold for the server's name (the user's, from the servers file) and the tool's own name apart: an id
like `a__b__c` could be split in two ways. What a server says about its tools can make the default stricter,
and changes no rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, cast, get_args

from playhead.config.fields import Fields
from playhead.errors import ConfigError

Action = Literal["allow", "ask", "deny"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)


def fits(name: str, pattern: str) -> bool:
    """Whether `name` is `pattern`, in which `*` stands for any characters and `?` for one; case matters.

    Classes of characters are left out, so that a server called `my[x]` needs no escaping. fnmatch's
    expression doesn't backtrack past a star: a long name costs nothing.
    """
    return fnmatchcase(name, pattern.replace("[", "[[]"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRule:
    """What holds for the tools that fit."""

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
    """The rules in their order; the first that fits decides. Raises `ConfigError` for another `default`."""

    rules: tuple[ApprovalRule, ...] = ()
    default: Action = "allow"
    """For a tool that no rule fits. The servers are the user's own choice, so their tools run; one that says
    itself that it destroys (`destructiveHint: true`) is asked about all the same."""

    def __post_init__(self) -> None:
        _check_action(self.default, "approval policy: default")

    def action(self, server: str, tool: str, *, destructive: bool) -> Action:
        """What holds for a tool. `destructive`: it has an explicit `destructiveHint: true`.

        The hint turns a default of `allow` into `ask`. It changes nothing where a rule fits: the rule is the
        user's. (The protocol's default for an absent hint is true too; only the explicit one counts.)
        """
        for rule in self.rules:
            if rule.fits(server, tool):
                return rule.action
        return "ask" if destructive and self.default == "allow" else self.default


def approval_policy(top: Fields) -> ApprovalPolicy:
    """The `approvals` table of a configuration file, or the default policy where there is none.

    Raises `ConfigError`, naming the file and the key path.
    """
    table = top.table("approvals")
    table.only("default", "rules")
    default = table.choice("default", ACTIONS)
    return ApprovalPolicy(
        rules=tuple(_rule(entry) for entry in table.tables("rules")),
        default="allow" if default is None else cast("Action", default),
    )


def _rule(entry: Fields) -> ApprovalRule:
    entry.only("server", "tool", "action")
    server, tool = entry.text("server"), entry.text("tool")
    action = entry.choice("action", ACTIONS)
    if action is None:
        raise ConfigError(f"{entry.where}.action: is missing; expected one of {', '.join(ACTIONS)}")
    if server is None and tool is None:
        # Most likely a slip, and one that would allow everything.
        raise ConfigError(
            f"{entry.where}: expected `server` or `tool` (or both); for every tool, server = '*'"
        )
    if server == "" or tool == "":
        raise ConfigError(f"{entry.where}: `server` and `tool` can't be empty; '*' fits every name")
    return ApprovalRule(
        action=cast("Action", action),
        server="*" if server is None else server,
        tool="*" if tool is None else tool,
    )


def _check_action(action: object, where: str) -> None:
    if action not in ACTIONS:
        raise ConfigError(f"{where}: expected one of {', '.join(ACTIONS)}, came {action!r}")


def _check_pattern(pattern: object, where: str) -> None:
    if not isinstance(pattern, str) or not pattern:
        raise ConfigError(f"{where}: expected a name or a pattern like '*', came {pattern!r}")
