"""Detection of how a server handles ranges, answer by answer, for the life of a stream. Pure.

A server, or a cache in front of it, may ignore ranges or have its own page size, always or sometimes. Four
things show it:

* The fingerprint, which is the beginning of the resource. An answer for a later offset that begins with it,
  or is at least 64 bytes of it, is suspect: the server may have sent the whole resource.
* The length of an answer. One that is longer than its range is clipped, read again, or examined.
* One more read (`Ask`), if bytes and lengths have two explanations.
* The offset that an answer declares, as playhead's own servers do. Bytes of another offset are never used.

A fingerprint with a period of 1 KiB or less (silence, a test pattern) identifies nothing. Then only lengths
are judged, and a read far past any end exposes a server that ignores ranges. If it stays ambiguous,
`RangeNotHonouredError` is raised: nothing is guessed.

A server may stop honouring ranges after it has sent every byte. Then an answer at the announced size or past
it that is as long as the announced size is the whole resource again, and means the end.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from enum import Enum

from playhead.errors import RangeNotHonouredError
from playhead.limits import KIB
from playhead.stream.answer import Answer, leading

FINGERPRINT_BYTES = 4 * KIB
"""The length of the fingerprint. Two different pages of music never begin with so many equal bytes."""
SUSPECT_BYTES = 64
"""The shortest answer that may be suspect. A shorter one may equal the beginning by chance: a header, or a
few equal bytes."""
PERIOD_BYTES = KIB
"""The longest period with which a fingerprint does not identify its offset."""
FIRST_KEPT_BYTES = 64 * KIB
"""The longest answer at offset 0 that is saved for comparison: several times a first page."""
DISCARDS = 3
"""The discarded answers at one offset that break the stream. A cache that is being filled may cause one or
two."""
REMEMBERED_OFFSETS = 256
"""Limits the offsets for which discarded answers are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """Bytes `[start, stop)` of `answer` belong to the resource."""

    answer: Answer
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """The answer is not the requested range: read it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPage:
    """The server honours the start of a range, and has its own page size."""

    page_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """The server ignores ranges: `whole` is the resource."""

    whole: Answer


class Reason(Enum):
    """The purpose of one more read about an answer."""

    NEXT = "next"
    """Read the bytes after an answer that is longer than its range."""
    LAST = "last"
    """Read the last byte of the answer, at its offset. If the answer is the whole resource, nothing is
    there."""
    SIZE = "size"
    """Read the last byte, as for `LAST`, of an answer that is as long as the announced size and one byte
    longer than its range. The server may have sent the whole resource, or taken the end of the range as
    inclusive."""
    SHIFTED = "shifted"
    """Read from one byte later, to tell a resource that repeats its beginning from a server that always sends
    the beginning."""
    PAST = "past"
    """Find out whether an answer at the announced size, and as long as that, is the whole resource again."""
    FAR = "far"
    """Find out whether the server has bytes past the end of any resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Read `[start, end)`, and pass the answer to `RangeSupport.resolve`."""

    reason: Reason
    start: int
    end: int


Verdict = Accept | Discard | OwnPage | Ignored | Ask


class RangeSupport:
    """Judges the answers of one stream by its earlier ones.

    `far` is an offset past the end of any resource. `server_name` is for messages.
    """

    def __init__(self, *, far: int, server_name: str) -> None:
        self._far = far
        self._server_name = server_name
        self._fingerprint: bytes | None = None
        self._first: Answer | None = None
        self._first_bytes = 0
        self._own_page_bytes: int | None = None
        self._excess_bytes: int | None = None
        """The bytes by which answers exceed their ranges, once a read has shown that this is harmless."""
        self._rest_end: int | None = None
        """The end of all answers, if the server sends the rest of the resource whatever the end of the
        range."""
        self._repeats = False
        """True if the resource, not the server, repeats its beginning."""
        self._far_is_empty = False
        """True if the server has no bytes past the end of any resource."""
        self._misplaced: tuple[int, int, bytes] | None = None
        """The offset, length and beginning of the last answer whose bytes are not at its offset."""
        self._discards: OrderedDict[int, int] = OrderedDict()
        self.knows_first = False
        """True once the answer at offset 0 has arrived."""
        self.end_is_inclusive = False
        """True if the server takes the end of a range as its last byte: request one byte less."""
        self.ignored_from: int | None = None
        """The first offset whose answer was the whole resource, after other ranges were honoured."""

    def judge(self, answer: Answer, *, end: int, total_bytes: int | None) -> Verdict:
        """Judge a non-empty answer to a read of `[answer.offset, end)`, or an empty one that declares another
        offset; `total_bytes` is the announced or known size.

        Raises `RangeNotHonouredError` if answers to one offset were discarded too often.
        """
        want = end - answer.offset
        is_whole = answer.declared_offset == 0 and answer.n_bytes == total_bytes
        if answer.declared_offset not in (None, answer.offset) and not is_whole:
            return self._discard(answer, f"those from {answer.declared_offset} on")
        if answer.offset == 0 and not self.knows_first:
            self._learn(answer)
        is_suspect = answer.offset > 0 and self._is_suspect(answer)
        if self._first_bytes < answer.n_bytes == total_bytes and answer.offset >= total_bytes:
            # The length proves nothing if the server's own pages happen to be as long.
            is_longer = answer.n_bytes > want and answer.n_bytes != self._own_page_bytes
            if is_suspect or (self._has_no_fingerprint and is_longer):
                return self._ask(Reason.PAST, answer.offset + 1 if is_suspect else self._far)
        if is_suspect:
            return self._judge_suspect(answer, end=end, total_bytes=total_bytes)
        if answer.n_bytes > want:
            return self._judge_longer(answer, want=want, total_bytes=total_bytes)
        if self._own_page_bytes is not None:
            self.check_own_page(answer, want=want, total_bytes=total_bytes)
        if self.end_is_inclusive and answer.n_bytes == want - 1:
            self.end_is_inclusive = False  # disproved; the missing byte is requested next
        if self._fingerprint is None and answer.n_bytes == total_bytes and 0 < answer.offset < total_bytes:
            return self._slice_of_whole(answer, end=end, total_bytes=total_bytes)
        # The first answer of a stream that starts past 0 may also be the whole resource.
        starts_past_0 = not self.knows_first and not self._far_is_empty and answer.offset > 0
        if starts_past_0 or (self._fingerprint is None and self._is_first_again(answer)):
            return self._ask(Reason.FAR, self._far)
        is_short = answer.n_bytes < want or not self.knows_first
        if is_short and self._could_be_whole(answer) and answer.end != self._rest_end:
            return self._ask_last(answer)
        return Accept(answer=answer, start=answer.offset, stop=answer.end)

    def resolve(self, ask: Ask, answer: Answer, reply: Answer | None, *, end: int) -> Verdict:
        """Judge `answer`, to a read up to `end`, with the help of `reply`, the answer to `ask`. `reply` is
        None if that read failed.

        Raises `RangeNotHonouredError` if it is still ambiguous.
        """
        keep = Accept(answer=answer, start=answer.offset, stop=min(answer.end, end))
        if reply is not None and not reply.n_bytes:
            reply = None
        match ask.reason:
            case Reason.NEXT:
                return self._resolve_next(answer, reply, end=end)
            case Reason.LAST:
                return self._resolve_last(answer, reply, keep)
            case Reason.SIZE:
                if reply is None or _are_equal(answer, reply):
                    return self._slice_of_whole(answer, end=end, total_bytes=answer.n_bytes)
                return keep
            case Reason.SHIFTED:
                return self._resolve_shifted(answer, reply, keep)
            case Reason.PAST:
                return self._resolve_past(answer, reply, keep, end=end)
            case Reason.FAR:
                if reply is None:
                    self._far_is_empty = True
                    is_clear = answer.end <= end and not self._could_be_whole(answer)
                    return keep if is_clear else self._ask_last(answer)
                is_whole = not self.knows_first or answer.n_bytes == self._first_bytes
                if is_whole and answer.n_bytes == reply.n_bytes:
                    return Ignored(whole=_at_zero(answer))
                raise self._unclear(answer, f"{reply.n_bytes} bytes at {reply.offset}, past any end")

    # --- evidence ----------------------------------------------------------------------------------------

    def _learn(self, answer: Answer) -> None:
        self.knows_first = True
        self._first_bytes = answer.n_bytes
        self._first = answer if answer.n_bytes <= FIRST_KEPT_BYTES else None
        fingerprint = leading(answer, min(FINGERPRINT_BYTES, answer.n_bytes))
        if not repeats_within(fingerprint, PERIOD_BYTES):
            self._fingerprint = fingerprint

    def _is_suspect(self, answer: Answer) -> bool:
        fingerprint = self._fingerprint
        if fingerprint is None or self._repeats:
            return False
        if answer.n_bytes >= len(fingerprint):
            return leading(answer, len(fingerprint)) == fingerprint
        beginning = leading(answer, answer.n_bytes) if answer.n_bytes >= SUSPECT_BYTES else b""
        return fingerprint.startswith(beginning) and not repeats_within(beginning, PERIOD_BYTES)

    def _has_fingerprint(self, answer: Answer) -> bool:
        fingerprint = self._fingerprint
        return fingerprint is not None and answer.n_bytes >= len(fingerprint) and self._is_suspect(answer)

    def _is_first_again(self, answer: Answer) -> bool:
        """Return whether the answer equals the one at offset 0, and no fingerprint tells what that means."""
        return (
            self._fingerprint is None
            and not self._far_is_empty
            and answer.offset >= self._first_bytes
            and self._first is not None
            and _are_equal(answer, self._first)
        )

    def _is_misplaced_again(self, answer: Answer) -> bool:
        """Return whether the previous misplaced answer was the same, for another offset. Save this one."""
        before = self._misplaced
        self._misplaced = (answer.offset, answer.n_bytes, leading(answer, FINGERPRINT_BYTES))
        return before is not None and before[0] != answer.offset and before[1:] == self._misplaced[1:]

    def _begins_twice(self, answer: Answer) -> bool:
        """Return whether the answer contains the fingerprint a second time: the resource repeats itself."""
        fingerprint = self._fingerprint
        return fingerprint is not None and leading(answer, FIRST_KEPT_BYTES).find(fingerprint, 1) > 0

    def _could_be_whole(self, answer: Answer) -> bool:
        """Return whether the answer, judged by its length alone, may be the whole resource: a resource of
        this length reaches past its offset."""
        return self._has_no_fingerprint and 0 < answer.offset < answer.n_bytes

    @property
    def _has_no_fingerprint(self) -> bool:
        """True if only lengths can be judged, because the resource's beginning identifies nothing."""
        return self._fingerprint is None or self._repeats

    def check_own_page(self, answer: Answer, *, want: int, total_bytes: int | None) -> None:
        """Raise `RangeNotHonouredError` if the answer ends with its range, although the server seemed to have
        a longer page size. Without a fingerprint, the longer answer may have been the whole resource.
        """
        is_shorter = self._own_page_bytes is not None and answer.n_bytes < self._own_page_bytes
        is_cut = answer.n_bytes == want and answer.end != total_bytes
        # With an inclusive end, one byte less than `want` was requested.
        if self._has_no_fingerprint and is_shorter and is_cut and not self.end_is_inclusive:
            raise self._unclear(
                answer, f"earlier {self._own_page_bytes} for a range that is shorter than that"
            )

    def _judge_suspect(self, answer: Answer, *, end: int, total_bytes: int | None) -> Verdict:
        if answer.n_bytes == total_bytes and answer.offset < total_bytes:
            return self._slice_of_whole(answer, end=end, total_bytes=total_bytes)
        is_past_size = total_bytes is not None and answer.offset >= total_bytes
        if answer.n_bytes > end - answer.offset and not is_past_size:
            return self._discard(answer)
        return self._ask(Reason.SHIFTED, answer.offset + 1)

    def _slice_of_whole(self, answer: Answer, *, end: int, total_bytes: int) -> Verdict:
        if self.ignored_from is None and 0 < self._first_bytes < answer.n_bytes:
            self.ignored_from = answer.offset
        return Accept(answer=_at_zero(answer), start=answer.offset, stop=min(end, total_bytes))

    def _judge_longer(self, answer: Answer, *, want: int, total_bytes: int | None) -> Verdict:
        clipped = Accept(answer=answer, start=answer.offset, stop=answer.offset + want)
        if answer.n_bytes == total_bytes and 0 < answer.offset < total_bytes:
            if answer.n_bytes == want + 1 and not self.knows_first:
                return self._ask_last(answer, Reason.SIZE)
            return self._slice_of_whole(answer, end=answer.offset + want, total_bytes=total_bytes)
        is_settled = (
            answer.n_bytes == self._own_page_bytes
            or answer.n_bytes - want == self._excess_bytes
            or answer.end == self._rest_end
            or (self.ignored_from is not None and answer.end == total_bytes)  # the whole, sent again from 0
        )
        if is_settled:
            return clipped
        if self._is_first_again(answer):
            return self._ask(Reason.FAR, self._far)
        if answer.n_bytes == want + 1 and (self.knows_first or not self._could_be_whole(answer)):
            self.end_is_inclusive = True
            return clipped
        return self._ask(Reason.NEXT, answer.end)

    def _resolve_next(self, answer: Answer, reply: Answer | None, *, end: int) -> Verdict:
        if reply is None:
            if answer.offset == 0:
                return Ignored(whole=answer)
            return self._ask_last(answer)
        if answer.offset == 0 and self._is_suspect(reply) and not self._begins_twice(answer):
            return Ignored(whole=answer)
        compared = min(answer.n_bytes, reply.n_bytes, FINGERPRINT_BYTES)
        if leading(answer, compared) == leading(reply, compared):
            return self._ask(Reason.FAR, self._far)
        return self._adopt(answer, end=end)

    def _adopt(self, answer: Answer, *, end: int) -> OwnPage:
        self._own_page_bytes, self._excess_bytes = answer.n_bytes, answer.end - end
        self._repeats = self._repeats or self._begins_twice(answer)
        return OwnPage(page_bytes=answer.n_bytes)

    def _resolve_last(self, answer: Answer, reply: Answer | None, keep: Accept) -> Verdict:
        if reply is None:
            is_first = self.knows_first and answer.n_bytes == self._first_bytes
            is_whole = is_first or self._is_misplaced_again(answer)
            return Ignored(whole=_at_zero(answer)) if is_whole else self._discard(answer)
        if reply.n_bytes == answer.n_bytes and not self._far_is_empty:
            return self._ask(Reason.FAR, self._far)
        if reply.n_bytes == answer.n_bytes and self.knows_first and answer.n_bytes != self._first_bytes:
            return self._discard(answer)  # the whole resource again, because it is not a page
        self._repeats = self._repeats or self._has_fingerprint(answer)
        if answer.end > keep.stop and self._far_is_empty:
            return self._adopt(answer, end=keep.stop)
        self._rest_end = answer.end
        return keep

    def _resolve_shifted(self, answer: Answer, reply: Answer | None, keep: Accept) -> Verdict:
        if reply is None:
            # The first answer again. The reply shows that the resource ends where this answer would end.
            is_whole = answer.n_bytes == self._first_bytes == answer.offset + 1
            return Ignored(whole=_at_zero(answer)) if is_whole else self._discard(answer)
        compared = min(answer.n_bytes - 1, reply.n_bytes)
        if leading(answer, compared + 1)[1:] == leading(reply, compared):
            if answer.offset < answer.n_bytes:
                return self._ask_last(answer)
            self._repeats = self._has_fingerprint(answer)
            return keep
        if self._is_suspect(reply) and answer.n_bytes == self._first_bytes == reply.n_bytes:
            return Ignored(whole=_at_zero(answer))
        return self._discard(answer)

    def _resolve_past(self, answer: Answer, reply: Answer | None, keep: Accept, *, end: int) -> Verdict:
        is_suspect = self._is_suspect(answer)
        if reply is not None and reply.n_bytes == answer.n_bytes and self._is_suspect(reply) == is_suspect:
            self._slice_of_whole(answer, end=end, total_bytes=answer.n_bytes)
            nothing = Answer(offset=answer.offset, blobs=(), n_bytes=0, claims_end="whole")
            return Accept(answer=nothing, start=answer.offset, stop=answer.offset)
        if is_suspect:
            return self._resolve_shifted(answer, reply, keep)
        self._far_is_empty = self._far_is_empty or reply is None
        return self._judge_longer(answer, want=end - answer.offset, total_bytes=answer.n_bytes)

    def _ask_last(self, answer: Answer, reason: Reason = Reason.LAST) -> Ask:
        return Ask(reason=reason, start=answer.end - 1, end=answer.end)

    def _ask(self, reason: Reason, start: int) -> Ask:
        return Ask(reason=reason, start=start, end=start + FINGERPRINT_BYTES)

    def _discard(self, answer: Answer, actual: str = "the resource's beginning") -> Discard:
        count = self._discards.pop(answer.offset, 0) + 1
        self._discards[answer.offset] = count
        if len(self._discards) > REMEMBERED_OFFSETS:
            self._discards.popitem(last=False)
        if count >= DISCARDS:
            raise self._unclear(answer, f"{actual}, every time")
        return Discard()

    def _unclear(self, answer: Answer, actual: str) -> RangeNotHonouredError:
        return RangeNotHonouredError(
            f"{self._server_name}: expected the bytes from {answer.offset} on, got {answer.n_bytes} bytes, "
            f"and {actual}: its answers cannot be combined without guessing; read it with the strategy "
            "'whole', or pass the resource's size",
            offset=answer.offset,
        )


def repeats_within(data: bytes, period_bytes: int) -> bool:
    """Return whether `data` repeats itself with a period of at most `period_bytes` and at most half its
    length. True for one byte and for none."""
    longest = min(period_bytes, len(data) // 2)
    if not longest:
        return True
    # With a period p, the data from p on equals the data from 0 on.
    beginning = data[: min(16, len(data) - longest)]
    at = data.find(beginning, 1, longest + len(beginning))
    while 0 < at <= longest:
        if data[at:] == data[: len(data) - at]:
            return True
        at = data.find(beginning, at + 1, longest + len(beginning))
    return False


def _at_zero(answer: Answer) -> Answer:
    """Return the answer with the offset 0."""
    return replace(answer, offset=0)


def _are_equal(answer: Answer, other: Answer) -> bool:
    return answer.n_bytes == other.n_bytes and (
        leading(answer, answer.n_bytes) == leading(other, other.n_bytes)
    )
