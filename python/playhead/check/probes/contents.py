"""A plain read of a resource: do the contents match the specification and the listing?"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import trio
from mcp_types import METHOD_NOT_FOUND

from playhead._core import decode_base64
from playhead.check.probes.asking import SPECIFICATION, ask, require_answered, said
from playhead.check.probes.findings import contents_findings, summarize
from playhead.check.probes.media import judge_audio, judge_image, looks_like_audio
from playhead.check.results import CheckKind, TestDraft, TestResult
from playhead.check.target import Target
from playhead.content import Finding
from playhead.content.audio import split_mime
from playhead.content.findings import kind_of

PAGE: Final = f"{SPECIFICATION}/server/resources"
RESOURCE_NOT_FOUND: Final = -32002
MOST_CONTENTS: Final = 100

ANSWERED: Final = CheckKind(
    name="resources.read-answered",
    title="A read is answered, with contents or an error, in time; a listed resource is not unknown",
    level="must",
    source=PAGE,
)
SHAPE: Final = CheckKind(
    name="resources.contents",
    title="Contents are an array of objects with a URI, and either text or a valid base64 blob",
    level="must",
    source=f"{PAGE}#resource-contents",
)
URI: Final = CheckKind(
    name="resources.contents-uri",
    title="Contents name the resource that was read, or resources below it",
    level="should",
    source=f"{PAGE}#resource-contents",
)
TYPE: Final = CheckKind(
    name="resources.mime-type",
    title="Contents have the announced MIME type",
    level="should",
    source=f"{SPECIFICATION}/schema#resource",
)
SIZE: Final = CheckKind(
    name="resources.size",
    title="The announced size is the number of bytes of the content, before base64",
    level="must",
    source=f"{SPECIFICATION}/schema#resource",
)
KINDS: Final = (ANSWERED, SHAPE, URI, TYPE, SIZE)


async def probe_read(
    target: Target,
    item: Mapping[str, Any],
    found: Callable[[TestResult], None],
    *,
    listed: bool,
    subject: str,
    tool: str | None = None,
) -> bool:
    """Read `item` (from a listing, or an unvalidated link) and judge its contents.

    False if there was no answer in time: further reads are unlikely to get one.
    """
    uri: str = item["uri"]
    draft = TestDraft(subject=subject, title="a plain read", tool=tool, method="resources/read")
    answer = await ask(target, draft, {"uri": uri})
    if not require_answered(draft, ANSWERED, answer, target):
        found(draft.done())
        return False
    if answer.error is not None:
        # -32602 means "not found" since 2026-07-28, but also that reading this one takes more than a URI.
        if listed and answer.error.code in (METHOD_NOT_FOUND, RESOURCE_NOT_FOUND):
            draft.checks.clear()
            draft.failed(ANSWERED, f"expected the contents of a listed resource, got {said(answer.error)}")
        else:
            draft.undecided = f"could not be read: {said(answer.error)}"
    elif answer.result is not None and _judge_shape(draft, answer.result, target.protocol_version):
        contents: list[Mapping[str, Any]] = answer.result["contents"]
        _judge_uri(draft, contents, uri)
        _judge_types(draft, contents, item)
        await _judge_size(target, draft, contents, item)
        await _judge_media(draft, contents, item)
    found(draft.done())
    return True


def shape_findings(result: Mapping[str, Any], revision: str) -> list[Finding]:
    """Validate the result of a `resources/read`."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        got = kind_of(contents) if "contents" in result else "nothing"
        return [Finding(path="$.contents", expected="an array", came=got)]
    findings: list[Finding] = []
    for index, part in enumerate(contents[:MOST_CONTENTS]):
        findings += contents_findings(f"$.contents[{index}]", part, revision)
    return findings


def _judge_shape(draft: TestDraft, result: Mapping[str, Any], revision: str) -> bool:
    findings = shape_findings(result, revision)
    return draft.require(SHAPE, not findings, summarize(findings))


def _judge_uri(draft: TestDraft, contents: list[Mapping[str, Any]], uri: str) -> None:
    if not contents:
        return
    asked = _plain(uri)
    got = [_plain(part["uri"]) for part in contents]
    draft.require(
        URI,
        asked in got or all(name.startswith(asked) for name in got),
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
            TYPE,
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
        draft.passed(SIZE)
        return
    # A changing resource may have another size by now: only an unchanged one is wrong.
    again = await target.request("resources/read", {"uri": item["uri"]})
    if again.result is None or again.result.get("contents") != contents:
        draft.skipped(SIZE, "the resource changed during the check: its size can't be judged")
        return
    draft.failed(SIZE, f"expected {size} bytes as announced, got {min(got)}")


def _sizes(contents: list[Mapping[str, Any]]) -> set[int]:
    """Return the possible sizes of the raw content: text has neither an encoding nor known line ends."""
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
    for part in contents[:1]:
        blob, uri = part.get("blob"), item["uri"]
        mime_type = part.get("mimeType", item.get("mimeType"))
        is_image = isinstance(mime_type, str) and mime_type.lower().startswith("image/")
        is_media = is_image or looks_like_audio({"mimeType": mime_type}, uri)
        if not isinstance(blob, str) or not blob or not is_media:
            continue
        data = await trio.to_thread.run_sync(binascii.a2b_base64, blob)
        if is_image:
            await trio.to_thread.run_sync(judge_image, draft, data)
        else:
            await judge_audio(draft, data, mime_type=mime_type, uri=uri, whole=len(contents) == 1)
