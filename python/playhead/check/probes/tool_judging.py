"""The judgement of one answer to `tools/call`. No I/O."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from playhead.check.catalogue import CATALOGUE
from playhead.check.error_text import error_text, texts_of
from playhead.check.probes.asking import error_words, fault_of, summarize
from playhead.check.probes.crashes import REFUSED, judge_error, missing_outside
from playhead.check.probes.media import judge_image
from playhead.check.results import Check, TestDraft, TestResult
from playhead.check.target import RequestOutcome
from playhead.content.findings import Finding, kind_of
from playhead.content.image_files import IMAGE_TYPES, image_type
from playhead.content.revisions import REVISION_NAMES
from playhead.content.validation import validate_tool_response
from playhead.errors import DeadlineError, HttpStatusError, LimitError, TransportError, UsageError
from playhead.protocol.messages import RpcError

MISTAKEN_CODES: Final = {
    -32700: "parse error",
    -32600: "invalid request",
    -32601: "method not found",
}
"""Lists the codes of errors that are not about the arguments or the tool."""


def judge_answered(
    draft: TestDraft, answer: RequestOutcome, *, seconds: float, undecided_because: str | None = None
) -> bool:
    """Require a result or an error. If `undecided_because` is a reason, a missed deadline proves nothing."""
    match answer.failure:
        case None:
            draft.passed("tools.call-answered")
            return True
        case DeadlineError():
            why = (
                f"expected an answer or progress within {seconds:g} s, got none; cancelled the call"
                " (--timeout allows a slow tool more time)"
            )
            if undecided_because is None:
                draft.failed("tools.deadline", why)
            else:
                draft.undecided = f"{why} ({undecided_because})"
        case LimitError() as error:
            draft.failed("tools.size", str(error))
        case HttpStatusError() as error:
            draft.failed("tools.call-answered", f"expected a result or a JSON-RPC error, got: {error}")
        case TransportError() as error:
            draft.failed("tools.survives", f"expected an answer, but the connection ended: {error}")
        case UsageError() as error:
            draft.undecided = f"the call could not be sent: {error}"
        case error:
            draft.failed(fault_of(error, "tools.call-answered"), f"expected a usable answer: {error}")
    return False


def judge_result(
    draft: TestDraft, result: Mapping[str, Any], *, revision: str, output_schema: object
) -> None:
    """Validate a result against the revision and the outputSchema. Blocks: hostile results take a second."""
    findings = findings_of(result, revision, output_schema)
    shape, content, output = (
        [it for it in findings if _part(it) == part] for part in ("shape", "content", "output")
    )
    draft.require("tools.result", not shape, summarize(shape))
    blocks = result.get("content")
    if isinstance(blocks, list):
        draft.require("tools.content", not content, summarize(content))
        _judge_images(draft, blocks)
    if output_schema is not None or output:
        _judge_output(draft, output)
    if _has_structured_values(result) and isinstance(blocks, list):
        has_text = any(isinstance(it, dict) and it.get("type") == "text" for it in blocks)
        draft.require(
            "tools.structured-text",
            has_text,
            "expected a text block with the structured content as JSON in `content`, got none",
        )


def _judge_output(draft: TestDraft, output: Sequence[Finding]) -> None:
    certain = [it for it in output if not it.path.startswith("outputSchema") and not _is_format(it)]
    if certain or not output:
        draft.require("tools.structured-content", not certain, summarize(certain))
    elif _is_format(output[0]):
        draft.undecided = (
            f"{output[0]}: in JSON Schema a format may be an annotation only, but many clients enforce it"
        )
    else:
        # An invalid schema was judged in the listing; one that is too large to check proves nothing.
        draft.skipped("tools.structured-content", str(output[0]))


def _is_format(finding: Finding) -> bool:
    return finding.expected.startswith("outputSchema format ")


def _has_structured_values(result: Mapping[str, Any]) -> bool:
    """Return True if there is structured content to repeat in a text block. Empty values need no
    repetition."""
    structured = result.get("structuredContent")
    if result.get("isError") is True or structured is None:
        return False
    values = structured.values() if isinstance(structured, dict) else [structured]
    return any(value not in ([], {}, "", None) for value in values)


def findings_of(result: Mapping[str, Any], revision: str, output_schema: object) -> list[Finding]:
    """Validate a result, except for unknown fields, which are allowed: objects are open."""
    known = revision if revision in REVISION_NAMES else REVISION_NAMES[-1]
    return [
        finding
        for finding in validate_tool_response(result, known, output_schema=output_schema)
        if not finding.expected.startswith(("no ", "_meta on the result only"))
    ]


def asks_for_input(result: Mapping[str, Any]) -> bool:
    """True if a result asks for user input (2026-07-28) or is a task, and so is not final."""
    return result.get("resultType", "complete") != "complete" or (
        "task" in result and "content" not in result
    )


def judge_valid(draft: TestDraft, answer: RequestOutcome, arguments: object, *, tool: str) -> None:
    """Judge the answer to valid generated arguments. A refusal proves nothing, but a crash does."""
    if answer.error is not None:
        _judge_code(draft, answer.error, "a result, or an error about the tool or its arguments")
        judge_error(draft, answer.error, "", tool=tool, arguments=arguments)
    elif answer.result is not None and answer.result.get("isError") is True:
        judge_error(draft, None, texts_of(answer.result), tool=tool, arguments=arguments)
    elif answer.result is not None and (unmarked := error_text(answer.result, arguments)) is not None:
        lack = missing_outside(unmarked)
        draft.undecided = (
            f"a result without isError reads like an error; if it is one, set isError: {unmarked[:300]}"
            if lack is None
            else f"the server lacks {lack}: {unmarked[:300]}"
        )


def _judge_code(draft: TestDraft, error: RpcError, expected: str) -> None:
    mistaken = MISTAKEN_CODES.get(error.code)
    why = f"expected {expected}; got {error_words(error)}, which means {mistaken}"
    draft.require("tools.error-code", mistaken is None, why)


def settled(tests: Sequence[TestResult], proven: Collection[str]) -> list[TestResult]:
    """Pass the refusals of unusual arguments by tools that are proven to work otherwise.

    A tool may refuse what its schema allows, and these errors are marked. For a tool that never worked, they
    leave the tests undecided.
    """
    return [
        replace(test, status="success", error=None, checks=(*test.checks, _MARKED))
        if test.status == "error"
        and test.tool in proven
        and test.title.startswith(("boundary", "random"))
        and (test.error or "").startswith(REFUSED)
        else test
        for test in tests
    ]


_MARKED: Final = Check(kind=CATALOGUE["tools.error-form"], verdict="passed")


def judge_invalid(
    draft: TestDraft, answer: RequestOutcome, arguments: object, *, title: str, certain: bool
) -> None:
    """Judge the answer to invalid arguments: an error of either kind is expected."""
    if answer.error is not None:
        draft.passed("tools.invalid-refused")
        _judge_code(draft, answer.error, "-32602 (invalid params) or a result with isError")
        return
    result = answer.result or {}
    expected = (
        f"expected error -32602 or a result with isError for arguments that violate the inputSchema ({title})"
    )
    if result.get("isError") is True:
        draft.passed("tools.invalid-refused")
    elif not isinstance(result.get("isError", False), bool):
        draft.skipped("tools.invalid-refused", "isError is not a boolean")
    elif (text := error_text(result, arguments)) is not None:
        why = f"{expected}, got an error that is not marked as one; set isError: {text[:300]}"
        draft.failed("tools.invalid-refused", why)
    elif certain:
        why = (
            f"{expected}, got a result without isError; validate the arguments, and set isError if the result"
            " reports an error"
        )
        draft.failed("tools.invalid-refused", why)
    else:
        draft.undecided = f"the tool accepted arguments that violate its inputSchema ({title})"


def _part(finding: Finding) -> str:
    if finding.path.startswith("$.content["):
        return "content"
    return "output" if finding.path.startswith(("$.structuredContent", "outputSchema")) else "shape"


def _judge_images(draft: TestDraft, blocks: Sequence[Any]) -> None:
    for index, block in enumerate(blocks):
        place, item, key = f"$.content[{index}].data", block, "data"
        if isinstance(block, dict) and block.get("type") == "resource":
            place, item, key = f"$.content[{index}].resource.blob", block.get("resource"), "blob"
        elif not isinstance(block, dict) or block.get("type") != "image":
            continue
        mime_type = item.get("mimeType") if isinstance(item, dict) else None
        if not isinstance(mime_type, str) or not mime_type.lower().startswith("image/"):
            continue
        try:
            data = base64.b64decode(item[key], validate=True)
        except (KeyError, TypeError, ValueError):
            continue  # the content's check has this finding
        draft.sample(mime_type, data)
        if mime_type.lower() not in IMAGE_TYPES or draft.require(
            "tools.image",
            image_type(data) == mime_type.lower(),
            f"{place}: expected {mime_type} by its MIME type, got bytes that start with {data[:12].hex(' ')}",
        ):
            judge_image(draft, data, place=f"{place}: ")


def kind_of_content(result: Mapping[str, Any]) -> list[str]:
    """Return the types of the blocks, in order."""
    blocks = result.get("content")
    return [
        str(it.get("type")) if isinstance(it, dict) else kind_of(it)
        for it in (blocks if isinstance(blocks, list) else ())
    ]
