"""Triage of findings: which failures count, by their level, the ignored checks, and a baseline.

A *finding* is a check that fails on a subject, however many calls show it. A baseline file records the
findings of a server and the definitions of its tools. Later checks fail for findings that the baseline lacks,
and for *drift*: a tool's description or schemas differ from the baseline. Models read definitions, so a
changed definition changes their behaviour, and a malicious one may replace it long after the review.

Nothing here does I/O, except for `load_baseline`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from playhead.check.catalogue import Level
from playhead.check.results import Check, Json, Report, TestDraft, TestResult, status_of
from playhead.errors import ConfigError, UsageError
from playhead.escaping import did_you_mean, shortened
from playhead.redaction import redacted

_COMPARED: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("drift.description", ("title", "description")),
    ("drift.input-schema", ("inputSchema",)),
    ("drift.output-schema", ("outputSchema",)),
    ("drift.annotations", ("annotations",)),
)
FIELDS: Final = tuple(name for _, names in _COMPARED for name in names)
"""Lists the fields of a tool's definition that a baseline records."""
_DIFFERENCES: Final = 5
"""Limits the differences shown per check."""
_SHOWN_CHARS: Final = 80
_MESSAGE_CHARS: Final = 300
_FORMAT: Final = 1
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredCheck:
    """A check whose failures don't count: on one tool or other subject, or everywhere."""

    check: str
    tool: str | None = None
    """The name of a tool, or a subject as reports show it (`resource file:///a`); None means everywhere."""

    @classmethod
    def parse(cls, text: str, known: Iterable[str]) -> IgnoredCheck:
        """Parse `CHECK` or `CHECK=TOOL`. Raises `UsageError` if CHECK is not one of `known`."""
        check, separator, tool = text.partition("=")
        names = tuple(known)
        if check not in names:
            hint = did_you_mean(check, names, f"the checks are {', '.join(names)}")
            raise UsageError(f"--ignore {text}: expected the name of a check, got {check!r}; {hint}")
        if separator and not tool:
            raise UsageError(f"--ignore {text}: expected the name of a tool after '=', got nothing")
        return cls(check=check, tool=tool or None)

    def __str__(self) -> str:
        return self.check if self.tool is None else f"{self.check}={self.tool}"

    def covers(self, check: Check, test: TestResult) -> bool:
        """True if `check`, a failure in `test`, is to be ignored."""
        return check.kind.name == self.check and self.tool in (None, test.tool, test.subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFinding:
    """A finding that a baseline records."""

    __pydantic_config__: ClassVar = {"extra": "forbid", "strict": True}

    check: str
    subject: str
    message: str = ""
    """The failure's message when it was recorded, for readers of the file. It is not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The content of a baseline file."""

    __pydantic_config__: ClassVar = {"extra": "forbid", "strict": True}

    playhead_baseline: Literal[1] = 1
    """The version of the file format."""
    server: str = ""
    """The server's name and version when the file was written. They are not compared."""
    depth: Literal["quick", "full"] = "full"
    """The depth of the check that wrote the file. A quick check finds less, so it can't show which findings
    are fixed."""
    findings: tuple[KnownFinding, ...] = ()
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The tools' definitions by name, each with those of `FIELDS` that the server listed."""

    def has(self, check: Check, test: TestResult) -> bool:
        """True if the baseline records the finding of `check` in `test`."""
        return any(
            known.check == check.kind.name and known.subject == test.subject for known in self.findings
        )

    def to_json(self) -> str:
        """Format the file: the same findings and definitions yield the same text."""
        return json.dumps(asdict(self), indent=2) + "\n"


def load_baseline(path: Path) -> Baseline:
    """Read the baseline file at `path`. Raises `ConfigError`, with the file and the key path."""
    from playhead.config.document import parse_document, read_file
    from playhead.config.tables import validate

    data = read_file(path, advice="record the current findings with --write-baseline")
    raw = parse_document(data, path.with_suffix(".json"))
    if not isinstance(raw, dict) or raw.get("playhead_baseline") != _FORMAT:
        raise ConfigError(
            f"{path}: expected a baseline with playhead_baseline: {_FORMAT}; write one with --write-baseline"
        )
    return validate(Baseline, raw, path=path)


def baseline_of(report: Report) -> Baseline:
    """Return the baseline with the findings and definitions of `report`.

    Ignored checks are omitted, because otherwise they would stay accepted without `--ignore`.
    """
    findings: dict[tuple[str, str], KnownFinding] = {}
    for test in report.tests:
        for check in test.checks:
            is_finding = check.verdict == "failed" or check.accepted in ("known", "level")
            if is_finding and not check.kind.name.startswith("drift."):  # new definitions end a drift
                key = (test.subject, check.kind.name)
                message = check.message[:_MESSAGE_CHARS]
                findings.setdefault(
                    key, KnownFinding(check=check.kind.name, subject=test.subject, message=message)
                )
    return Baseline(
        server=" ".join(text for text in (report.server_name, report.server_version) if text),
        depth=report.depth,
        findings=tuple(findings[key] for key in sorted(findings)),
        tools={name: report.definitions[name] for name in sorted(report.definitions)},
    )


def definition_of(listed: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the compared fields of a listed tool."""
    return {name: listed[name] for name in FIELDS if listed.get(name) is not None}


# --- what counts ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Triage:
    """Decides which failures count."""

    level: Level = "should"
    ignored: tuple[IgnoredCheck, ...] = ()
    baseline: Baseline | None = None
    secrets: frozenset[str] = frozenset()
    """The secrets to redact in a subject before it is compared, because a baseline file has none of them."""

    def apply(self, test: TestResult) -> TestResult:
        """Return `test` with the failures that don't count marked as accepted."""
        if test.status != "failed":
            return test
        checks = tuple(self._accepted(check, test) for check in test.checks)
        if not any(check.verdict == "accepted" for check in checks):
            return test
        status, error = status_of(checks)
        return replace(test, checks=checks, status=status, error=error)

    def _accepted(self, check: Check, test: TestResult) -> Check:
        if check.verdict != "failed":
            return check
        if any(ignored.covers(check, test) for ignored in self.ignored):
            return replace(check, verdict="accepted", accepted="ignored")
        if self.baseline is not None and self.baseline.has(check, self._redacted(test)):
            return replace(check, verdict="accepted", accepted="known")
        if self.level == "must" and check.kind.level == "should":
            return replace(check, verdict="accepted", accepted="level")
        return check

    def remarks(self, report: Report) -> Iterator[str]:
        """Name the ignored checks that didn't fail, and the findings of the baseline that are gone."""
        failures = [
            (test, check) for test in report.tests for check in test.checks if check.accepted is not None
        ]
        for ignored in self.ignored:
            if not any(ignored.covers(check, test) for test, check in failures):
                yield f"the ignored check {ignored} did not fail"
        if self.baseline is None or self.baseline.depth != report.depth:
            return
        seen = {(self._redacted(test).subject, check.kind.name) for test, check in failures}
        gone = [known for known in self.baseline.findings if (known.subject, known.check) not in seen]
        if gone:
            names = ", ".join(f"{known.check} ({known.subject})" for known in gone[:_DIFFERENCES])
            more = f" and {len(gone) - _DIFFERENCES} more" if len(gone) > _DIFFERENCES else ""
            yield f"no longer found, though in the baseline: {names}{more}; write it anew to keep them out"

    def _redacted(self, test: TestResult) -> TestResult:
        return replace(test, subject=redacted(test.subject, self.secrets))


def accept_recorded(report: Report, baseline: Baseline) -> Report:
    """Return `report` with every finding that `baseline` has marked as accepted."""
    triage = Triage(baseline=baseline)
    return replace(report, tests=tuple(triage.apply(test) for test in report.tests))


# --- drift ---------------------------------------------------------------------------------------------


def drift_tests(baseline: Baseline, definitions: Mapping[str, Mapping[str, Json]]) -> Iterator[TestResult]:
    """Compare each tool with its definition in `baseline`: one test per tool. A new tool has none."""
    for name, before in baseline.tools.items():
        draft = TestDraft(subject=f"tool {name}", title="compared with the baseline", tool=name)
        now = definitions.get(name)
        if now is None:
            draft.failed("drift.listed", f"expected the tool {name!r} of the baseline to be listed, got none")
        else:
            draft.passed("drift.listed")
            for kind, fields in _COMPARED:
                changes = [it for name in fields for it in _changes(name, before, now)]
                draft.require(kind, not changes, "; ".join(changes))
        yield draft.done()


def _changes(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    differences = list(_differences(name, before.get(name, _ABSENT), now.get(name, _ABSENT)))
    more = [f"and {len(differences) - _DIFFERENCES} more"] if len(differences) > _DIFFERENCES else []
    return differences[:_DIFFERENCES] + more


def _differences(path: str, before: object, now: object) -> Iterator[str]:
    """Name each place where two JSON values differ."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*before, *now)):
            yield from _differences(f"{path}.{key}", before.get(key, _ABSENT), now.get(key, _ABSENT))
    elif _canonical(before) == _canonical(now):
        return
    elif before is _ABSENT:
        yield f"{path} is new: {_quoted(now)}"
    elif now is _ABSENT:
        yield f"{path} is gone: it was {_quoted(before)}"
    elif isinstance(before, str) and isinstance(now, str):
        yield _changed_text(path, before, now)
    else:
        yield f"expected {path} {_quoted(before)}, got {_quoted(now)}"


def _changed_text(path: str, before: str, now: str) -> str:
    """Quote two strings from shortly before their first difference, which may be far into a description."""
    shorter = min(len(before), len(now))
    differs_at = next((at for at in range(shorter) if before[at] != now[at]), shorter)
    start = max(0, differs_at - _SHOWN_CHARS // 4)
    if len(before) <= _SHOWN_CHARS and len(now) <= _SHOWN_CHARS:
        start = 0
    lead = "…" if start else ""
    return f"expected {path} {_quoted(lead + before[start:])}, got {_quoted(lead + now[start:])}"


def _canonical(value: object) -> str | None:
    """Write JSON in one form, in which 1 and 1.0 are equal, but true and 1 are not."""
    if value is _ABSENT:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{','.join(str(_canonical(item)) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key!r}:{_canonical(value[key])}' for key in sorted(value))}}}"
    return json.dumps(value)


def _quoted(value: object) -> str:
    return shortened(json.dumps(value, ensure_ascii=False), _SHOWN_CHARS)
