"""Test any MCP server: its handshake, its listings, and its tools' answers to valid and invalid input."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playhead.check.baseline import Baseline, IgnoredCheck, baseline_of, load_baseline
    from playhead.check.catalogue import CheckKind
    from playhead.check.options import (
        CheckOptions,
        Expectations,
        ExpectedCall,
        LoadPlan,
        draft_expectations,
        load_expectations,
    )
    from playhead.check.report import to_html, to_json, to_junit, to_markdown, write_report
    from playhead.check.results import Check, LoadFigures, Report, Sample, TestResult
    from playhead.check.run import check_server

__all__ = [
    "Baseline",
    "Check",
    "CheckKind",
    "CheckOptions",
    "Expectations",
    "ExpectedCall",
    "IgnoredCheck",
    "LoadFigures",
    "LoadPlan",
    "Report",
    "Sample",
    "TestResult",
    "baseline_of",
    "check_server",
    "draft_expectations",
    "load_baseline",
    "load_expectations",
    "to_html",
    "to_json",
    "to_junit",
    "to_markdown",
    "write_report",
]

_HOMES: Final = {
    "Baseline": "baseline",
    "IgnoredCheck": "baseline",
    "baseline_of": "baseline",
    "load_baseline": "baseline",
    "CheckOptions": "options",
    "Expectations": "options",
    "ExpectedCall": "options",
    "LoadPlan": "options",
    "draft_expectations": "options",
    "load_expectations": "options",
    "Check": "results",
    "CheckKind": "catalogue",
    "LoadFigures": "results",
    "Report": "results",
    "Sample": "results",
    "TestResult": "results",
    "check_server": "run",
    "to_html": "report",
    "to_json": "report",
    "to_junit": "report",
    "to_markdown": "report",
    "write_report": "report",
}
"""Imported on first use: the command line shows its help without them."""


if not TYPE_CHECKING:  # a misspelt name is an error for a type checker

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            return getattr(import_module(f"playhead.check.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
