"""Resources: the listings, reads of listed and linked resources, and refusals of unknown ones.

The contents of a read are compared with the specification and the listing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import trio
from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

from playhead._core import decode_base64
from playhead.check.probes.asking import ask, block_findings, error_words, require_answered, summarize
from playhead.check.probes.crashes import missing_outside, shows_crash
from playhead.check.probes.listing import may_have, probe_listing
from playhead.check.probes.media import judge_audio, judge_image, looks_like_audio
from playhead.check.probes.reads import probe_ranges
from playhead.check.probes.utilities import probe_completions, probe_subscriptions, template_references
from playhead.check.results import TestDraft
from playhead.check.target import Target
from playhead.content.audio import split_mime
from playhead.content.block_types import BLOCK_TYPES, COMMON, Field
from playhead.content.findings import Finding, Notes, kind_of
from playhead.content.formats import number, quoted
from playhead.content.validation import check_annotations, check_fields
from playhead.stream.strategies import is_url
from playhead.stream.templates import RANGE_PAIRS

RESOURCE_NOT_FOUND: Final = -32002
MOST_CONTENTS: Final = 100
MOST_READS: Final = 16
"""Limits the resources read from one server. The others are reported as skipped."""
MOST_TEMPLATES: Final = 5
UNKNOWN_URI: Final = "playhead-check://no/such/resource"
"""No server knows this URI. Its scheme is unused, so a server that reads any URL does not know it
either."""
VARIABLE_VALUE: Final = "1"
"""Fills the variables of a template. It is valid as a number, a name and an index."""
NEWEST: Final = "2026-07-28"
_UNKNOWN: Final = re.compile(r"not found|no such|unknown|does not exist|doesn't exist", re.IGNORECASE)


async def probe_resources(target: Target) -> None:
    """List the resources and templates, read the listed ones, and request an unknown one."""
    if not may_have(target, "resources"):
        with target.test("resources", "all") as draft:
            draft.skipped("resources.list-answered", "the server declares no resources")
        return
    resources = await probe_listing(
        target,
        method="resources/list",
        key="resources",
        identity="uri",
        judge=_resource_findings,
        checks="resources.list",
        optional=target.session.capabilities.resources is None,
    )
    templates = await probe_listing(
        target,
        method="resources/templates/list",
        key="resourceTemplates",
        identity="uriTemplate",
        judge=_template_findings,
        checks="resources.templates",
        optional=True,
    )
    target.templates = {
        text: UriTemplate.parse(text).variable_names
        for text in (template["uriTemplate"] for template in templates[:MOST_TEMPLATES])
        if _URI_TEMPLATE.fullmatch(text) and _is_parsable(text)
    }
    await probe_completions(target, template_references(target))
    if resources:
        await probe_subscriptions(target, resources[0]["uri"])
    await _probe_listed(target, resources)
    for text, names in target.templates.items():
        await _probe_template(target, text, names)
    if resources or templates:
        await _probe_unknown(target)


async def _probe_listed(target: Target, resources: Sequence[Mapping[str, Any]]) -> None:
    for count, resource in enumerate(resources):
        subject = f"resource {resource['uri']}"
        if count == MOST_READS:
            why = f"at most {MOST_READS} resources of one server are read"
            with target.test("resources", f"the other {len(resources) - count}") as draft:
                draft.skipped("resources.read-answered", why)
            return
        if await probe_read(target, resource, listed=True, subject=subject):
            await probe_ranges(target, resource, subject=subject)


def _is_parsable(text: str) -> bool:
    try:
        UriTemplate.parse(text)
    except InvalidUriTemplate:
        return False  # it can't be expanded; the test of the listing judges its form
    return True


async def _probe_template(target: Target, text: str, names: Sequence[str]) -> None:
    """Expand a template, and read it: with values that the server completes or names, else with generated
    ones.

    A value that the server completes exists. Another may not, so an error is then a valid answer, but not a
    crash.
    """
    if any(set(names) >= set(pair) for pair in RANGE_PAIRS):
        return  # a template for ranges is probed with the links to its resource
    offers = {name: target.mine.values_for(name) for name in names}
    completed = {
        name: [each for each in values if each.source.method == "completion/complete"]
        for name, values in offers.items()
    }
    is_completed = bool(names) and all(completed.values())
    title = (
        "completed values" if is_completed else "mined values" if any(offers.values()) else "generated values"
    )
    values = {
        name: str((completed[name] or offers[name])[0].value) if offers[name] else VARIABLE_VALUE
        for name in names
    }
    uri = UriTemplate.parse(text).expand(values)
    with target.test(f"template {text}", title, method="resources/read") as draft:
        answer = await ask(target, draft, {"uri": uri})
        if not require_answered(draft, "resources.read-answered", answer, target):
            return
        if answer.result is not None:
            draft.passed("resources.template-read")
            _judge_shape(draft, answer.result, target.protocol_version)
        elif answer.error is not None and (lack := missing_outside(answer.error.message)) is not None:
            draft.undecided = f"the server lacks {lack}: {error_words(answer.error)}"
        elif answer.error is not None and (
            is_completed or answer.error.code == METHOD_NOT_FOUND or shows_crash(answer.error.message)
        ):
            why = f"expected the contents of {uri}, from a listed template with {title}; got "
            draft.failed("resources.template-read", why + error_words(answer.error))


async def _probe_unknown(target: Target) -> None:
    is_newest = target.protocol_version >= NEWEST
    codes = (INVALID_PARAMS,) if is_newest else (RESOURCE_NOT_FOUND, INVALID_PARAMS)
    expected = f"expected error {' or '.join(map(str, codes))} ({target.protocol_version or 'no revision'})"
    with target.test("resources", "an unknown resource", method="resources/read") as draft:
        answer = await ask(target, draft, {"uri": UNKNOWN_URI})
        if require_answered(draft, "resources.read-answered", answer, target):
            draft.require("resources.unknown", answer.error is not None, f"{expected}, got a result")
        if answer.error is not None:
            why = f"{expected}, got {error_words(answer.error)}"
            draft.require("resources.error-code", answer.error.code in codes, why)


# A link in a tool's result and a listed resource have the same fields.
_RESOURCE: Final = (*BLOCK_TYPES["resource_link"].fields, *COMMON)
_TEMPLATE: Final = (
    Field(name="uriTemplate", required=True),
    *(field for field in _RESOURCE if field.name not in ("uri", "size")),
)
_VARIABLE: Final = r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+(?:\.(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+)*"
_SPEC: Final = rf"{_VARIABLE}(?::[1-9][0-9]{{0,3}}|\*)?"
_URI_TEMPLATE: Final = re.compile(rf"(?:[^{{}}]|\{{[+#./;?&=,!@|]?{_SPEC}(?:,{_SPEC})*\}})*")
"""Matches a URI template (RFC 6570, section 2)."""


def _resource_findings(path: str, raw: Mapping[str, object]) -> list[Finding]:
    """Validate one item of `resources/list`."""
    notes = Notes()
    check_fields(notes, path, raw, _RESOURCE)
    size = raw.get("size")
    if isinstance(size, int | float) and size < 0:
        notes.add(f"{path}.size", expected="0 or more", got=number(size))
    _judge_annotations(notes, path, raw)
    return notes.all()


def _template_findings(path: str, raw: Mapping[str, object]) -> list[Finding]:
    """Validate one item of `resources/templates/list`."""
    notes = Notes()
    check_fields(notes, path, raw, _TEMPLATE)
    _judge_annotations(notes, path, raw)
    text = raw.get("uriTemplate")
    if isinstance(text, str) and not _URI_TEMPLATE.fullmatch(text):
        notes.add(f"{path}.uriTemplate", expected="a URI template (RFC 6570)", got=quoted(text))
    return notes.all()


def _judge_annotations(notes: Notes, path: str, item: Mapping[str, object]) -> None:
    if isinstance(annotations := item.get("annotations"), dict):
        check_annotations(notes, f"{path}.annotations", annotations)


# --- one read -----------------------------------------------------------------------------------------------


async def probe_link(target: Target, link: Mapping[str, Any], *, tool: str | None = None) -> None:
    """Read the resource of `link` (an unvalidated `resource_link`), in ranges if offered, else as a whole."""
    uri = link.get("uri")
    if not isinstance(uri, str):
        return  # the checks of the result have judged this
    subject = f"tool {tool}" if tool is not None else f"resource {uri}"
    if uri.startswith("data:"):
        return
    if not may_have(target, "resources") and not is_url(link.get("description")):
        return
    if await probe_ranges(target, link, subject=subject, tool=tool):
        return
    if is_url(uri):
        with target.test(subject, f"its link {uri}", tool=tool) as draft:
            draft.skipped("reads.answered", "the link points to the web, not to this server")
        return
    await probe_read(target, link, listed=False, subject=subject, tool=tool)


async def probe_read(
    target: Target, item: Mapping[str, Any], *, listed: bool, subject: str, tool: str | None = None
) -> bool:
    """Read `item` (from a listing, or an unvalidated link) and judge its contents.

    Return False if there was no answer in time: further reads are unlikely to get one.
    """
    uri: str = item["uri"]
    with target.test(subject, "a plain read", tool=tool, method="resources/read") as draft:
        answer = await ask(target, draft, {"uri": uri})
        if not require_answered(draft, "resources.read-answered", answer, target):
            return False
        if answer.error is not None:
            lack = missing_outside(answer.error.message)
            # -32602 means "not found" since 2026-07-28, but also that reading takes more than a URI.
            needs_more = answer.error.code == INVALID_PARAMS and not _UNKNOWN.search(answer.error.message)
            if listed and lack is None and not needs_more:
                draft.checks.clear()
                why = f"expected the contents of a listed resource, got {error_words(answer.error)}"
                draft.failed("resources.read-answered", why)
            else:
                why = f"the server lacks {lack}" if lack is not None else "could not be read"
                draft.undecided = f"{why}: {error_words(answer.error)}"
        elif answer.result is not None and _judge_shape(draft, answer.result, target.protocol_version):
            contents: list[Mapping[str, Any]] = answer.result["contents"]
            _judge_uri(draft, contents, uri)
            _judge_types(draft, contents, item)
            await _judge_size(target, draft, contents, item)
            await _judge_media(draft, contents, item)
    return True


def _judge_shape(draft: TestDraft, result: Mapping[str, Any], revision: str) -> bool:
    contents = result.get("contents")
    findings: list[Finding] = []
    if isinstance(contents, list):
        for index, part in enumerate(contents[:MOST_CONTENTS]):
            block = {"type": "resource", "resource": part}
            findings += block_findings(f"$.contents[{index}]", block, revision, inner=".resource")
    else:
        got = kind_of(contents) if "contents" in result else "nothing"
        findings.append(Finding(path="$.contents", expected="an array", got=got))
    return draft.require("resources.contents", not findings, summarize(findings))


def _judge_uri(draft: TestDraft, contents: list[Mapping[str, Any]], uri: str) -> None:
    if not contents:
        return
    expected = _plain(uri)
    got = [_plain(part["uri"]) for part in contents]
    draft.require(
        "resources.contents-uri",
        expected in got or all(name.startswith(expected) for name in got),
        f"expected contents of {uri!r}, got those of {contents[0]['uri']!r:.200}",
    )


def _plain(uri: str) -> str:
    """Normalize a URI for comparison: percent-encoding, case of the scheme, and a trailing slash."""
    scheme, colon, rest = uri.partition(":")
    return unquote(f"{scheme.lower()}{colon}{rest}").rstrip("/")


def _judge_types(draft: TestDraft, contents: list[Mapping[str, Any]], item: Mapping[str, Any]) -> None:
    announced = item.get("mimeType")
    got = [part.get("mimeType") for part in contents if _plain(part["uri"]) == _plain(item["uri"])]
    named = [name for name in got if isinstance(name, str)]
    if isinstance(announced, str) and named:
        expected = split_mime(announced)[0]
        draft.require(
            "resources.mime-type",
            all(split_mime(name)[0] == expected for name in named),
            f"expected {announced!r:.100} as announced, got {named[0]!r:.100}",
        )


async def _judge_size(
    target: Target, draft: TestDraft, contents: list[Mapping[str, Any]], item: Mapping[str, Any]
) -> None:
    size = item.get("size")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0 or not contents:
        return
    got = _sizes(contents)
    if size in got:
        draft.passed("resources.size")
        return
    # The size of a changing resource may differ by now. Only that of an unchanged one is wrong.
    again = await target.request("resources/read", {"uri": item["uri"]})
    if again.result is None or again.result.get("contents") != contents:
        draft.skipped("resources.size", "the resource changed during the check: its size can't be judged")
        return
    draft.failed("resources.size", f"expected {size} bytes as announced, got {min(got)}")


def _sizes(contents: list[Mapping[str, Any]]) -> set[int]:
    """Return the possible sizes of the raw content. For text, neither the encoding nor the line ends are
    known."""
    if all(isinstance(part.get("blob"), str) for part in contents):
        return {sum(len(decode_base64(part["blob"])) for part in contents)}
    texts = [str(part.get("text", "")) for part in contents]
    lines = sum(text.count("\n") - text.count("\r\n") for text in texts)
    sizes: set[int] = set()
    for encoding, mark in (("utf-8", 3), ("utf-16-le", 2), ("latin-1", 0)):
        bare = sum(len(text.encode(encoding, "replace")) for text in texts)
        width = 2 if encoding == "utf-16-le" else 1
        sizes |= {bare, bare + mark, bare + lines * width, bare + mark + lines * width}
    return sizes


async def _judge_media(draft: TestDraft, contents: list[Mapping[str, Any]], item: Mapping[str, Any]) -> None:
    if not contents or not isinstance(blob := contents[0].get("blob"), str) or not blob:
        return
    uri, mime_type = item["uri"], contents[0].get("mimeType", item.get("mimeType"))
    is_image = isinstance(mime_type, str) and mime_type.lower().startswith("image/")
    if not is_image and not looks_like_audio({"mimeType": mime_type}, uri):
        return
    data = await trio.to_thread.run_sync(decode_base64, blob)
    if is_image:
        await trio.to_thread.run_sync(judge_image, draft, data)
    else:
        await judge_audio(draft, data, mime_type=mime_type, uri=uri, whole=len(contents) == 1)
