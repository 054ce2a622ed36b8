"""What came over the wire during the whole check that no single request shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from playhead.check.connecting import SessionTarget
from playhead.check.probes.asking import MESSAGES, SPECIFICATION
from playhead.check.results import CheckKind, TestDraft, TestResult

REPEATED: Final = CheckKind(
    name="wire.answered-once",
    title="No request is answered twice",
    level="must",
    source="https://www.jsonrpc.org/specification#response_object",
)
UNASKED: Final = CheckKind(
    name="wire.known-ids",
    title="Every answer has the id of a request",
    level="must",
    source=f"{SPECIFICATION}/basic#responses",
)
RETYPED: Final = CheckKind(
    name="wire.same-ids",
    title="An answer's id is the request's, of the same type: 7 is not \"7\"",
    level="must",
    source="https://www.jsonrpc.org/specification#response_object",
)
KINDS: Final = (MESSAGES, REPEATED, UNASKED, RETYPED)


def judge_wire(target: SessionTarget, found: Callable[[TestResult], None]) -> None:
    """Judge what was noticed up to now: to be called last."""
    faults = target.session.wire_faults()
    draft = TestDraft(subject="connection", title="what came beside the answers")
    where = "lines on stdout" if target.is_process else "messages"
    hint = "; logs belong to stderr" if target.is_process else ""
    draft.require(
        MESSAGES,
        faults.not_messages == 0,
        f"expected nothing but messages, came {faults.not_messages} {where} that are none, the first:"
        f" {faults.first}{hint}",
    )
    draft.require(
        REPEATED,
        faults.repeated == 0,
        f"expected one answer a request, came {faults.repeated} answers to requests that had been answered",
    )
    draft.require(
        UNASKED,
        faults.unasked == 0,
        f"expected answers to requests, came {faults.unasked} with an id that no request had",
    )
    draft.require(
        RETYPED,
        faults.retyped == 0,
        f"expected the ids of requests as they were sent, came {faults.retyped} answers whose id is of"
        " another type: a client that compares ids awaits them for ever",
    )
    found(draft.done())
