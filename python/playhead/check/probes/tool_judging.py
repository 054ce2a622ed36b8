"""What is judged of one answer to a `tools/call`. No I/O."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

from playhead.check.probes import tool_kinds as kinds
from playhead.check.probes.asking import fault_of, said
from playhead.check.results import CheckKind, TestDraft
from playhead.check.target import Answer
from playhead.content.findings import Finding, kind_of
from playhead.content.revisions import REVISIONS
from playhead.content.validation import validate_tool_response
from playhead.errors import DeadlineError, HttpStatusError, LimitError, TransportError, UsageError

MISTAKEN_CODES: Final = {
    -32700: "parse error",
    -32600: "invalid request",
    -32601: "method not found",
}
"""Codes of JSON-RPC that say something else is wrong than the arguments or the tool."""
_SHOWN_FINDINGS: Final = 5
_SIGNATURES: Final[Mapping[str, tuple[bytes, ...]]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
    "image/bmp": (b"BM",),
}


def judge_answered(draft: TestDraft, answer: Answer, *, seconds: float, excused: str | None = None) -> bool:
    """Whether there is a result or an error to look at. `excused` is why a silent server proves nothing."""
    match answer.failure:
        case None:
            draft.passed(kinds.ANSWERED)
            return True
        case DeadlineError():
            why = (
                f"expected an answer, or progress, within {seconds:g} s, came none; the call was cancelled"
                " (--timeout gives a slow tool more)"
            )
            if excused is None:
                draft.failed(kinds.DEADLINE, why)
            else:
                draft.undecided = f"{why} ({excused})"
        case LimitError() as error:
            draft.failed(kinds.SIZE, str(error))
        case HttpStatusError() as error:
            draft.failed(kinds.ANSWERED, f"expected a result or a JSON-RPC error, came: {error}")
        case TransportError() as error:
            draft.failed(kinds.SURVIVES, f"expected an answer, but the connection ended: {error}")
        case UsageError() as error:
            draft.undecided = f"the call could not be sent: {error}"
        case error:
            draft.failed(fault_of(error, kinds.ANSWERED), f"expected an answer that can be used: {error}")
    return False


def judge_result(
    draft: TestDraft, result: Mapping[str, Any], *, revision: str, output_schema: object
) -> None:
    """Hold a result against the revision and the tool's outputSchema. May take a second for hostile ones."""
    found = findings_of(result, revision, output_schema)
    shape = [it for it in found if _part(it) == "shape"]
    content = [it for it in found if _part(it) == "content"]
    output = [it for it in found if _part(it) == "output"]
    _require(draft, kinds.RESULT, shape)
    blocks = result.get("content")
    if isinstance(blocks, list):
        _require(draft, kinds.CONTENT, content)
        _judge_images(draft, blocks)
    if output_schema is not None or output:
        _judge_output(draft, output)
    if _says_something(result) and isinstance(blocks, list):
        has_text = any(isinstance(it, dict) and it.get("type") == "text" for it in blocks)
        draft.require(
            kinds.STRUCTURED_TEXT,
            has_text,
            "expected a text block with the structured content's JSON in `content`, came none",
        )


def _judge_output(draft: TestDraft, output: Sequence[Finding]) -> None:
    certain = [it for it in output if not it.path.startswith("outputSchema") and not _is_format(it)]
    if certain or not output:
        _require(draft, kinds.OUTPUT, certain)
    elif _is_format(output[0]):
        draft.undecided = (
            f"{output[0]}: JSON Schema leaves open whether a format is more than a note; many clients"
            " refuse it"
        )
    else:
        # A schema that is none was judged where it is listed; one too large to be checked proves nothing.
        draft.skipped(kinds.OUTPUT, str(output[0]))


def _is_format(finding: Finding) -> bool:
    return finding.expected.startswith("outputSchema format ")


def _says_something(result: Mapping[str, Any]) -> bool:
    """Whether there is structured content whose text would be missed: an empty list says nothing in words."""
    structured = result.get("structuredContent")
    if result.get("isError") is True or structured is None:
        return False
    values = structured.values() if isinstance(structured, dict) else [structured]
    return any(value not in ([], {}, "", None) for value in values)


def findings_of(result: Mapping[str, Any], revision: str, output_schema: object) -> list[Finding]:
    """What is wrong with a result, without what an older revision's open objects may hold."""
    known = revision if revision in REVISIONS else REVISIONS[-1]
    return [
        finding
        for finding in validate_tool_response(result, known, output_schema=output_schema)
        # Fields that a revision doesn't have are fields nobody reads there: its objects are open.
        if not finding.expected.startswith(("no ", "_meta on the result only"))
    ]


def asks_for_input(result: Mapping[str, Any]) -> bool:
    """Whether a result is a question to the user (2026-07-28), or a task: no tool result yet."""
    return result.get("resultType", "complete") != "complete" or (
        "task" in result and "content" not in result
    )


def texts_of(result: Mapping[str, Any]) -> str:
    """The texts of a result, one a line."""
    blocks = result.get("content")
    found = []
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            found.append(block["text"])
        elif isinstance(block, dict) and isinstance(inner := block.get("resource"), dict):
            found += [inner["text"]] if isinstance(inner.get("text"), str) else []
    return "\n".join(found)


def judge_valid(draft: TestDraft, answer: Answer) -> None:
    """Generated arguments prove nothing when they are refused; but for what."""
    if answer.error is not None:
        mistaken = MISTAKEN_CODES.get(answer.error.code)
        draft.require(
            kinds.ERROR_CODE,
            mistaken is None,
            f"expected a result, or an error about the tool or its arguments; came {said(answer.error)},"
            f" which means {mistaken}",
        )
        draft.undecided = f"the schema allows the arguments, and the tool refused them: {said(answer.error)}"
    elif answer.result is not None and answer.result.get("isError") is True:
        text = texts_of(answer.result)[:300] or "an error without a text"
        draft.undecided = f"the schema allows the arguments, and the tool refused them: {text}"


def judge_invalid(draft: TestDraft, answer: Answer, *, title: str, certain: bool) -> None:
    """Arguments that break the schema are answered with an error of either kind."""
    if answer.error is not None:
        draft.passed(kinds.REFUSED)
        mistaken = MISTAKEN_CODES.get(answer.error.code)
        draft.require(
            kinds.ERROR_CODE,
            mistaken is None,
            f"expected -32602 (invalid params) or a result with isError; came {said(answer.error)}, which"
            f" means {mistaken}",
        )
    elif answer.result is not None and answer.result.get("isError") is True:
        draft.passed(kinds.REFUSED)
    elif not isinstance((answer.result or {}).get("isError", False), bool):
        draft.skipped(kinds.REFUSED, "isError is no boolean")
    elif certain:
        draft.failed(
            kinds.REFUSED,
            f"expected error -32602 or a result with isError for arguments that break the inputSchema"
            f" ({title}), came a result without isError; validate the arguments, and set isError where a"
            " result says what is wrong",
        )
    else:
        draft.undecided = f"the tool accepted arguments that its inputSchema doesn't allow ({title})"


def _part(finding: Finding) -> str:
    if finding.path.startswith("$.content["):
        return "content"
    return "output" if finding.path.startswith(("$.structuredContent", "outputSchema")) else "shape"


def _require(draft: TestDraft, kind: CheckKind, found: Sequence[Finding]) -> None:
    shown = "; ".join(str(it) for it in found[:_SHOWN_FINDINGS])
    more = f"; and {len(found) - _SHOWN_FINDINGS} more" if len(found) > _SHOWN_FINDINGS else ""
    draft.require(kind, not found, shown + more)


def _judge_images(draft: TestDraft, blocks: Sequence[Any]) -> None:
    for index, block in enumerate(blocks):
        if not isinstance(block, dict) or block.get("type") != "image":
            continue
        mime_type, data = block.get("mimeType"), block.get("data")
        signatures = _SIGNATURES.get(mime_type.lower()) if isinstance(mime_type, str) else None
        if signatures is None or not isinstance(data, str):
            continue
        try:
            head = base64.b64decode(data[:64], validate=True)
        except (binascii.Error, ValueError):
            continue  # said already, of the content
        draft.require(
            kinds.IMAGE,
            head.startswith(signatures),
            f"$.content[{index}].data: expected {mime_type} by its MIME type, came bytes that begin with"
            f" {head[:12].hex(' ')}",
        )


def kind_of_content(result: Mapping[str, Any]) -> list[str]:
    """The types of the blocks, in order."""
    blocks = result.get("content")
    return [
        str(it.get("type")) if isinstance(it, dict) else kind_of(it)
        for it in (blocks if isinstance(blocks, list) else ())
    ]
