"""What a tool result means, decided without doing anything: no I/O, no clock, no state.

| block | goes |
|---|---|
| text | to the model, and to the user where its audience says so |
| text that is a structured response, of a trusted tool | in its place: what it stands for |
| audio, blob with an audio type | to the player |
| link with an audio type: by MIME, else by suffix, else by its first bytes | to the player, in ranges |
| other link or blob | nowhere: kept to be read |
| image | to the user, and to a model that can see |
| embedded text | to the model |
| anything else | reported |

In an error result nothing plays. A block whose base64 is broken or too large is kept, with a finding, so that
nobody waits for sound that cannot come. Findings never stop a block from being classified.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from playhead.content import ABSENT, Block
from playhead.content.blocks import UnknownBlock
from playhead.content.findings import Finding, kind_of
from playhead.errors import ResponseError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.results.parts import PartMaker
from playhead.results.plan import Disposition, Plan, ReportUnknown, Respond, SendText
from playhead.results.policy import DEFAULT_POLICY, Policy
from playhead.results.recognition import recognise
from playhead.results.responses import DEFAULT_REGISTRY, ResponseRegistry, StructuredResponse
from playhead.results.turn import decide

STRUCTURED_INDEX: Final = -1
"""The index of the disposition of `structuredContent`."""
_NOTHING: Final[Mapping[int, bool]] = MappingProxyType({})


def classify(
    blocks: Sequence[Block],
    *,
    is_error: bool,
    structured: object = ABSENT,
    policy: Policy = DEFAULT_POLICY,
    registry: ResponseRegistry = DEFAULT_REGISTRY,
    sniffed: Mapping[int, bool] = _NOTHING,
    limits: Limits = DEFAULT_LIMITS,
) -> Plan:
    """The plan for a result. Never raises for what a server sent.

    Args:
        blocks: Of the result, in order (`playhead.content.parse_blocks`).
        is_error: The result's `isError`.
        structured: Its `structuredContent`, `playhead.content.ABSENT` where it has none (null is a value);
            goes to the model as compact JSON where no block gives it text.
        policy: What is trusted and what ends the turn.
        registry: Which types of structured response there are.
        sniffed: Whether a link's first bytes are sound, by block index: what was found out about the links in
            `Plan.unsettled` of an earlier plan. Until then such a link is kept as a reference.
        limits: `block_bytes` bounds what may be played or shown, `message_bytes` and `json_values` which
            texts are looked at as structured responses.
    """
    maker = PartMaker(is_error=is_error, policy=policy, sniffed=sniffed, limits=limits)
    dispositions: list[Disposition] = []
    findings: list[Finding] = []
    for index, block in enumerate(blocks):
        if block.findings:
            findings += (
                replace(each, path=f"$.content[{index}]{each.path.removeprefix('$')}")
                for each in block.findings
            )
        content = block.content
        if isinstance(content, UnknownBlock):
            dispositions.append(ReportUnknown(index=index, block=block, reason=content.reason))
            continue
        if content.type == "text" and policy.trust_structured:
            response = recognise(content.text, registry, limits)
            if isinstance(response, ResponseError):
                findings.append(_finding(index, response))
            elif response is not None:
                dispositions.append(_respond(index, block, response, maker))
                continue
        dispositions.append(maker.part(index, block, content))
    if structured is not ABSENT and not any(isinstance(each, SendText | Respond) for each in dispositions):
        dispositions.append(_structured(structured, maker))
    return Plan(
        dispositions=tuple(dispositions),
        turn=decide(dispositions, is_error=is_error, policy=policy),
        is_error=is_error,
        findings=(*findings, *maker.findings),
        unsettled=tuple(maker.unsettled),
    )


def _respond(index: int, block: Block, response: StructuredResponse, maker: PartMaker) -> Respond:
    failed = not response.success
    return Respond(
        index=index,
        block=block,
        reason=f"a structured response of type {response.type!r}, of a tool that is trusted",
        response=response,
        parts=tuple(maker.part(index, None, each, failed=failed) for each in response.content()),
    )


def _finding(index: int, error: ResponseError) -> Finding:
    path = f"$.content[{index}].text{error.path.removeprefix('$')}"
    return Finding(path=path, expected=f"{error.expected}, as in a structured response", came=error.came)


def _structured(structured: object, maker: PartMaker) -> SendText:
    try:
        text = json.dumps(structured, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        came = kind_of(structured)
        maker.findings.append(
            Finding(path="$.structuredContent", expected="what JSON can hold", came=f"{came} that it can't")
        )
        text = "[structuredContent that can't be written as JSON]"
    return SendText(
        index=STRUCTURED_INDEX,
        block=None,
        reason="structuredContent, as no block gives the model text",
        text=text,
        to_user=False,
        is_error=maker.is_error,
    )
