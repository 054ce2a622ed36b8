"""Resources: the listings, reads of listed resources, and refusals of unknown ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate
from mcp_types import INVALID_PARAMS

from playhead.check.probes.asking import ask, require_answered, said
from playhead.check.probes.contents import (
    ANSWERED,
    PAGE,
    RESOURCE_NOT_FOUND,
    SHAPE,
    probe_read,
    shape_findings,
)
from playhead.check.probes.contents import KINDS as CONTENTS_KINDS
from playhead.check.probes.findings import resource_findings, summarize, template_findings
from playhead.check.probes.listing import listing_kinds, probe_listing
from playhead.check.probes.reads import probe_ranges
from playhead.check.results import CheckKind, TestDraft, TestResult
from playhead.check.target import Target
from playhead.content import Finding
from playhead.content.formats import quoted
from playhead.stream.strategies import RANGE_VARIABLES

MOST_READS: Final = 16
"""Resources read from one server; the rest is reported as skipped."""
MOST_TEMPLATES: Final = 5
UNKNOWN_URI: Final = "playhead-check://no/such/resource"
"""An unused scheme: a server that reads any URL does not know it either."""
FILLING: Final = "1"
"""The value of template variables: valid as a number, a name or an index."""
NEWEST: Final = "2026-07-28"

LISTING: Final = listing_kinds("resources.list", what="resources", identity="uri", source=PAGE)
TEMPLATES: Final = listing_kinds("resources.templates", what="resource templates", identity=None, source=PAGE)
UNKNOWN: Final = CheckKind(
    name="resources.unknown",
    title="An unknown resource is refused with an error, not with (empty) contents",
    level="should",
    source=f"{PAGE}#error-handling",
)
CODE: Final = CheckKind(
    name="resources.error-code",
    title=f"The error code of an unknown resource is {INVALID_PARAMS} since {NEWEST}; {RESOURCE_NOT_FOUND} or"
    f" {INVALID_PARAMS} before",
    level="should",
    source="https://modelcontextprotocol.io/seps/2164-resource-not-found-error",
)
KINDS: Final = (*LISTING.all(), *TEMPLATES.all(), *CONTENTS_KINDS, UNKNOWN, CODE)

_VARIABLE: Final = r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+(?:\.(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+)*"
_SPEC: Final = rf"{_VARIABLE}(?::[1-9][0-9]{{0,3}}|\*)?"
_TEMPLATE: Final = re.compile(rf"(?:[^{{}}]|\{{[+#./;?&=,!@|]?{_SPEC}(?:,{_SPEC})*\}})*")
"""RFC 6570, section 2."""


async def probe_resources(target: Target, found: Callable[[TestResult], None]) -> None:
    """List the resources and templates, read the listed ones, and request an unknown one."""
    capabilities = target.session.capabilities
    if capabilities.resources is None and capabilities.model_fields_set:
        draft = TestDraft(subject="resources", title="all")
        draft.skipped(LISTING.answered, "the server declares no resources")
        found(draft.done())
        return
    resources = await probe_listing(
        target,
        found,
        method="resources/list",
        key="resources",
        identity="uri",
        judge=resource_findings,
        kinds=LISTING,
        optional=capabilities.resources is None,
    )
    templates = await probe_listing(
        target,
        found,
        method="resources/templates/list",
        key="resourceTemplates",
        identity="uriTemplate",
        judge=_template_findings,
        kinds=TEMPLATES,
        optional=True,
    )
    await _probe_listed(target, resources, found)
    for template in templates[:MOST_TEMPLATES]:
        await _probe_template(target, template["uriTemplate"], found)
    if resources or templates:
        await _probe_unknown(target, found)


async def _probe_listed(
    target: Target, resources: Sequence[Mapping[str, Any]], found: Callable[[TestResult], None]
) -> None:
    for count, resource in enumerate(resources):
        subject = f"resource {resource['uri']}"
        if count == MOST_READS:
            draft = TestDraft(subject="resources", title=f"the other {len(resources) - count}")
            draft.skipped(ANSWERED, f"at most {MOST_READS} resources of one server are read")
            found(draft.done())
            return
        if await probe_read(target, resource, found, listed=True, subject=subject):
            await probe_ranges(target, resource, found, subject=subject)


async def _probe_template(target: Target, text: str, found: Callable[[TestResult], None]) -> None:
    """Read a template with generated values. An error is a valid answer: the resource may not exist."""
    try:
        template = UriTemplate.parse(text)
    except InvalidUriTemplate:
        return  # invalid, or a form that can't be expanded here: the listing was judged
    if any(set(template.variable_names) >= set(pair) for pair in RANGE_VARIABLES):
        return  # for ranges of another resource: probed with its links
    uri = template.expand(dict.fromkeys(template.variable_names, FILLING))
    draft = TestDraft(subject=f"template {text}", title="generated values", method="resources/read")
    answer = await ask(target, draft, {"uri": uri})
    if require_answered(draft, ANSWERED, answer, target) and answer.result is not None:
        findings = shape_findings(answer.result, target.protocol_version)
        draft.require(SHAPE, not findings, summarize(findings))
    found(draft.done())


async def _probe_unknown(target: Target, found: Callable[[TestResult], None]) -> None:
    draft = TestDraft(subject="resources", title="an unknown resource", method="resources/read")
    answer = await ask(target, draft, {"uri": UNKNOWN_URI})
    newest = target.protocol_version >= NEWEST
    codes = (INVALID_PARAMS,) if newest else (RESOURCE_NOT_FOUND, INVALID_PARAMS)
    expected = f"expected error {' or '.join(map(str, codes))} ({target.protocol_version or 'no revision'})"
    if require_answered(draft, ANSWERED, answer, target):
        draft.require(UNKNOWN, answer.error is not None, f"{expected}, got a result")
        if answer.error is not None:
            draft.require(CODE, answer.error.code in codes, f"{expected}, got {said(answer.error)}")
    found(draft.done())


def _template_findings(path: str, raw: object) -> list[Finding]:
    findings = template_findings(path, raw)
    text = raw.get("uriTemplate") if isinstance(raw, dict) else None
    if isinstance(text, str) and not _TEMPLATE.fullmatch(text):
        findings.append(
            Finding(path=f"{path}.uriTemplate", expected="a URI template (RFC 6570)", came=quoted(text))
        )
    return findings
