"""One plain read of a resource: is what came what the specification and the listing say?"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import trio
from mcp_types import METHOD_NOT_FOUND

from playhead._core import decode_base64
from playhead.check.probes.asking import SPECIFICATION, ask, require_answered, said
from playhead.check.probes.audio import judge_sound, sounds_like
from playhead.check.probes.shapes import contents_findings, told
from playhead.check.results import CheckKind, TestDraft, TestResult
from playhead.check.target import Target
from playhead.content import Finding
from playhead.content.audio import split_mime
from playhead.content.findings import kind_of
from playhead.errors import Base64Error

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
    title="Contents are an array of objects with a URI, and either a text or a valid base64 blob",
    level="must",
    source=f"{PAGE}#resource-contents",
)
URI: Final = CheckKind(
    name="resources.contents-uri",
    title="Contents name the resource that was read, or what lies below it",
    level="should",
    source=f"{PAGE}#resource-contents",
)
TYPE: Final = CheckKind(
    name="resources.mime-type",
    title="Contents are of the MIME type that was announced",
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
    """Read `item` (of a listing, or a link, as it came) plainly and judge what came. False where no answer
    came in time: the next one hardly will."""
    uri: str = item["uri"]
    draft = TestDraft(subject=subject, title="a plain read", tool=tool, method="resources/read")
    answer = await ask(target, draft, {"uri": uri})
    if not require_answered(draft, ANSWERED, answer, target):
        found(draft.done())
        return False
    if answer.error is not None:
        # -32602 says "not found" since 2026-07-28, and as well that a read of this one takes more than a URI.
        if listed and answer.error.code in (METHOD_NOT_FOUND, RESOURCE_NOT_FOUND):
            draft.checks.clear()
            draft.failed(ANSWERED, f"expected the contents of a listed resource, came {said(answer.error)}")
        else:
            draft.undecided = f"could not be read: {said(answer.error)}"
    elif answer.result is not None and _judge_shape(draft, answer.result, target.protocol_version):
        contents: list[Mapping[str, Any]] = answer.result["contents"]
        _judge_uri(draft, contents, uri)
        _judge_types(draft, contents, item)
        await _judge_size(target, draft, contents, item)
        await _judge_sound(draft, contents, item)
    found(draft.done())
    return True


def shape_findings(result: Mapping[str, Any], revision: str) -> list[Finding]:
    """What is wrong with the result of a `resources/read`."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        came = kind_of(contents) if "contents" in result else "nothing"
        return [Finding(path="$.contents", expected="an array", came=came)]
    findings: list[Finding] = []
    for index, part in enumerate(contents[:MOST_CONTENTS]):
        findings += contents_findings(f"$.contents[{index}]", part, revision)
    return findings


def blobs_of(result: Mapping[str, Any]) -> tuple[bytes | None, str]:
    """The bytes of all blobs, in order; None, and why, where there is none to be had."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        return None, "no array of contents"
    whole = bytearray()
    for index, part in enumerate(contents):
        blob = part.get("blob") if isinstance(part, dict) else None
        if not isinstance(blob, str):
            return None, f"contents[{index}] holds no blob"
        try:
            whole += decode_base64(blob)
        except Base64Error as error:
            return None, f"contents[{index}].blob is no base64: {error}"
    return bytes(whole), ""


def _judge_shape(draft: TestDraft, result: Mapping[str, Any], revision: str) -> bool:
    findings = shape_findings(result, revision)
    return draft.require(SHAPE, not findings, told(findings))


def _judge_uri(draft: TestDraft, contents: list[Mapping[str, Any]], uri: str) -> None:
    if not contents:
        return
    asked = _plain(uri)
    came = [_plain(part["uri"]) for part in contents]
    draft.require(
        URI,
        asked in came or all(name.startswith(asked) for name in came),
        f"expected contents of {uri!r}, came those of {contents[0]['uri']!r:.200}",
    )


def _plain(uri: str) -> str:
    """A URI as it is compared: however it is coded or its scheme is written, with or without a slash."""
    scheme, colon, rest = uri.partition(":")
    return unquote(f"{scheme.lower()}{colon}{rest}").rstrip("/")


def _judge_types(draft: TestDraft, contents: list[Mapping[str, Any]], item: Mapping[str, Any]) -> None:
    announced = item.get("mimeType")
    came = [part.get("mimeType") for part in contents if _plain(part["uri"]) == _plain(item["uri"])]
    named = [name for name in came if isinstance(name, str)]
    if isinstance(announced, str) and named:
        expected = split_mime(announced)[0]
        draft.require(
            TYPE,
            all(split_mime(name)[0] == expected for name in named),
            f"expected {announced!r:.100} as announced, came {named[0]!r:.100}",
        )


async def _judge_size(
    target: Target, draft: TestDraft, contents: list[Mapping[str, Any]], item: Mapping[str, Any]
) -> None:
    size = item.get("size")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0 or not contents:
        return
    came = _sizes(contents)
    if size in came:
        draft.passed(SIZE)
        return
    # A resource that changes may have another size by now: only one that stays is wrong.
    again = await target.request("resources/read", {"uri": item["uri"]})
    if again.result is None or again.result.get("contents") != contents:
        draft.skipped(SIZE, "the resource changed while it was read: its size can't be judged")
        return
    draft.failed(SIZE, f"expected {size} bytes as announced, came {min(came)}")


def _sizes(contents: list[Mapping[str, Any]]) -> set[int]:
    """How many bytes the raw content may have: a text says neither its encoding nor its line ends."""
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


async def _judge_sound(draft: TestDraft, contents: list[Mapping[str, Any]], item: Mapping[str, Any]) -> None:
    for part in contents[:1]:
        blob, uri = part.get("blob"), item["uri"]
        mime_type = part.get("mimeType", item.get("mimeType"))
        if isinstance(blob, str) and blob and sounds_like({"mimeType": mime_type}, uri):
            data = await trio.to_thread.run_sync(binascii.a2b_base64, blob)
            await judge_sound(draft, data, mime_type=mime_type, uri=uri, whole=len(contents) == 1)
