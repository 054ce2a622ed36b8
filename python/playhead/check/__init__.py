"""Test any MCP server: its handshake, its listings, and its tools' answers to valid and invalid input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from playhead.lazy_names import lazy_names

if TYPE_CHECKING:
    from playhead.check.baseline import Baseline, IgnoredCheck, baseline_of, load_baseline
    from playhead.check.catalogue import CheckKind
    from playhead.check.expectations import Expectations, ExpectedCall, draft_expectations, load_expectations
    from playhead.check.options import CheckOptions, LoadPlan
    from playhead.check.plugins import CheckPlugin, server_check
    from playhead.check.report import to_html, to_json, to_junit, to_markdown, write_report
    from playhead.check.results import Check, LoadFigures, Report, Sample, TestResult
    from playhead.check.run import check_server

__all__ = [
    "Baseline",
    "Check",
    "CheckKind",
    "CheckOptions",
    "CheckPlugin",
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
    "server_check",
    "to_html",
    "to_json",
    "to_junit",
    "to_markdown",
    "write_report",
]

_MODULES: Final = {
    "baseline": ("Baseline", "IgnoredCheck", "baseline_of", "load_baseline"),
    "catalogue": ("CheckKind",),
    "expectations": ("Expectations", "ExpectedCall", "draft_expectations", "load_expectations"),
    "plugins": ("CheckPlugin", "server_check"),
    "options": ("CheckOptions", "LoadPlan"),
    "report": ("to_html", "to_json", "to_junit", "to_markdown", "write_report"),
    "results": ("Check", "LoadFigures", "Report", "Sample", "TestResult"),
    "run": ("check_server",),
}
"""Maps each module to its public names. They are imported on first use, so that the command line shows its
help without them."""


if not TYPE_CHECKING:  # a misspelt name is an error for a type checker
    __getattr__ = lazy_names(__name__, _MODULES)
