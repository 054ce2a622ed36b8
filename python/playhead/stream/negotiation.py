"""Negotiation of the form of a stream's requests.

The forms are tried in order until one delivers a byte at offset 0; from then on the form stays. If the server
refuses all of them, all are tried once more, because it may have been starting up. The refusals are collected
for the error that lists the tried forms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from playhead.content.formats import Base64Text
from playhead.content.playlists import WEB_URL
from playhead.errors import (
    ContradictionError,
    HttpRefusedError,
    HttpStatusError,
    PlayheadError,
    ProtocolError,
    ServerError,
    TextContentError,
    ToolFailedError,
    TransportError,
)
from playhead.escaping import shortened
from playhead.retry import was_not_begun
from playhead.stream.answer import EndedBy, ReadRange
from playhead.stream.live_source import LiveSource
from playhead.stream.result_pages import SHOWN_CHARS

ROUNDS = 2
ROUND_SECONDS = 1.0
"""Pause between the two rounds: a mistyped URI fails in about two seconds."""
NOT_FOUND_CODE = -32002
"""MCP's code for a resource that does not exist."""
_NOT_FOUND = re.compile(
    r"\bnot found\b|\bno such\b|\bunknown resource\b|\bdoes(?: not|n't) exist\b|\b404\b", re.IGNORECASE
)

_AMBIGUOUS = re.compile(r"\bambiguous\b.{0,40}\bservers\b", re.IGNORECASE)
ONE_SERVER = (
    "; the gateway does not name its servers in URIs: set the server's url to the endpoint that the gateway"
    " has for one of them"
)
"""Completes ContextForge's error (`Resource URI 'x:' is ambiguous across multiple servers; use
/servers/{id}/mcp.`) with the setting that takes that address."""


class GrowthListener(Protocol):
    """Receives what a server notifies about a resource that grows."""

    def set_notifies(self, notifies: bool, /) -> None:
        """Record that the server notifies from now on, or no longer."""
        ...

    def on_notified(self) -> None:
        """Record that the resource has grown."""
        ...


class FormChangedError(TransportError):
    """A read before the first byte found that the resource needs another form, which `RangeForm.late`
    finds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeForm:
    """A form of requests for ranges, such as a URI template; see `strategies`."""

    name: str
    read: ReadRange
    reason: str = ""
    """Why this form was chosen, as a clause."""
    is_queue: bool = False
    """True if each answer is the next piece, whatever the range: no seek is possible, and no repetition."""
    live: LiveSource | None = None
    """Set for a queue without a foreseeable end, whose bytes are in parts with titles."""
    on_delivered: Callable[[], None] = lambda: None
    """Called once, when the form has delivered its first byte."""
    on_stored: Callable[[int, Base64Text | bytes], None] | None = None
    """Called with each piece of an answer that the stream has accepted, and its offset."""
    on_end: Callable[[int], None] | None = None
    """Called with the size of the resource when the stream has reached its end."""
    page_bytes: int | None = None
    """The page size, if the server has only one."""
    follow_growth: Callable[[GrowthListener], Awaitable[None]] | None = None
    """Subscribes to the growth of the resource, until cancelled; None if the server does not notify."""
    start_soon: Callable[..., None] | None = None
    """Starts the task of each read, if a read may outlive the stream because another stream waits for it."""
    late: LateForm | None = None
    """Finds the form anew after `FormChangedError`."""
    waits_for_others: Callable[[], bool] = lambda: False
    """True while reads may be queued behind another process's reads, so that the measured rate does not
    predict their answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Refusal of a form: an error, or an answer without a byte at offset 0."""

    error: PlayheadError | None = None
    claims_end: EndedBy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LateForm:
    """A form whose details take a request to find out. It is sent when the form's turn comes."""

    name: str
    find: Callable[[], Awaitable[Sequence[RangeForm | LateForm] | Refusal]]
    """Returns the forms that replace this one, none if it does not apply. After a `Refusal` the form is tried
    again in the next round, after a `PlayheadError` never."""


def is_refusal(error: PlayheadError) -> bool:
    """Return whether an error at offset 0 means that the server does not take this form."""
    refusals = (
        ServerError,
        TextContentError,
        HttpRefusedError,
        HttpStatusError,
        ToolFailedError,
        ProtocolError,
        FormChangedError,
    )
    return isinstance(error, refusals) and not was_not_begun(error)


@dataclass(slots=True, eq=False)
class FormNegotiation:
    """The form that a stream uses now, and the refusals of the forms before it."""

    forms: list[RangeForm | LateForm]
    """The last is a `RangeForm`."""
    server_name: str
    remark: Callable[[bool], str]
    """Returns the end of the error message if all forms are refused. The argument is True if the server says
    that the resource does not exist."""
    resumes_at: float = -math.inf
    """The time before which no read may be sent."""
    _index: int = 0
    _round: int = 1
    _refusals: list[tuple[str, Refusal]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the current form."""
        return self.forms[self._index].name

    @property
    def form(self) -> RangeForm:
        """The current form. Call `settle` first."""
        form = self.forms[self._index]
        assert isinstance(form, RangeForm)
        return form

    @property
    def is_queue(self) -> bool:
        form = self.forms[self._index]
        return isinstance(form, RangeForm) and form.is_queue

    @property
    def live(self) -> LiveSource | None:
        form = self.forms[self._index]
        return form.live if isinstance(form, RangeForm) else None

    @property
    def reason(self) -> str:
        """The reason why the current form is used, with the refusals before it."""
        form = self.forms[self._index]
        chosen = form.reason if isinstance(form, RangeForm) else ""
        tried = self._tried() if self._refusals else ""
        return f"{chosen}; refused before: {tried}" if tried and chosen else chosen or tried

    async def settle(self) -> None:
        """Resolve the current form if it is a `LateForm`, and skip forms that do not apply."""
        while isinstance(late := self.forms[self._index], LateForm):
            try:
                outcome = await late.find()
            except PlayheadError as error:
                self._refusals.append((late.name, Refusal(error=error.with_traceback(None))))
                outcome = ()
            if isinstance(outcome, Refusal):
                self._refusals.append((late.name, outcome))
                self._index += 1
            else:
                self.forms[self._index : self._index + 1] = outcome

    def refuse(self, refusal: Refusal, *, now: float, has_bytes_past_0: bool) -> EndedBy | None:
        """Move on from the current form, which was refused before its first byte.

        Returns None if another form is current now; `settle` it. If none is left and the answer to one of
        them claimed the end at byte 0, returns that claim: the resource is empty.

        If none is left and none claimed the end, raises the error of the first refusal; of the last one, if
        it says that the resource does not exist. Raises `ContradictionError` if a form claimed the end
        although bytes past offset 0 were served.
        """
        if isinstance(refusal.error, FormChangedError) and (late := self.form.late) is not None:
            self.forms[self._index] = late
            return None
        self._refusals.append((self.name, refusal))
        self._index += 1
        if self._index < len(self.forms):
            return None
        self._index = 0
        if self._round < ROUNDS:
            self._round += 1
            self.resumes_at = now + ROUND_SECONDS
            return None
        claims = [refusal.claims_end for _, refusal in self._refusals if refusal.claims_end is not None]
        if not claims:
            raise self._all_refused()
        if has_bytes_past_0:
            raise ContradictionError(
                f"{self.server_name}: claimed repeatedly that the resource ends at byte 0, and served bytes "
                "past it; the server contradicts itself: try again, or report it to its author",
                offset=0,
            )
        return claims[0]

    def _tried(self) -> str:
        """Return the refused forms, each with its newest refusal: `uri-template (-32602: …), arguments
        (…)`."""
        return ", ".join(f"{name} ({_summary(refusal)})" for name, refusal in dict(self._refusals).items())

    def _all_refused(self) -> PlayheadError:
        errors = [refusal.error for _, refusal in self._refusals if refusal.error is not None]
        is_one = len(dict(self._refusals)) == 1
        if is_one and isinstance(errors[-1], HttpRefusedError) and WEB_URL.match(self.server_name):
            return errors[-1]  # of a URL without a server, which is read in one form: it says all
        # Unless another form is forced, the last one is `whole`, which requests the resource's own URI.
        is_missing = says_not_found(errors[-1])
        problem = "has no such resource" if is_missing else "refused every form of a ranged read"
        remedy = ONE_SERVER if any(_AMBIGUOUS.search(str(each)) for each in errors) else ""
        remedy += self.remark(is_missing)
        message = f"{self.server_name} {problem}; tried {self._tried()}{remedy}"
        return _with_message(errors[-1] if is_missing else errors[0], message)


def _with_message(error: PlayheadError, message: str) -> PlayheadError:
    """Return a copy of `error`, with its code and data, that has another message."""
    copy = type(error).__new__(type(error))
    copy.__dict__.update(error.__dict__)
    copy.args = (message,)
    return copy


def says_not_found(error: PlayheadError) -> bool:
    """Return whether an error answer says that the resource does not exist."""
    if isinstance(error, HttpRefusedError):
        return error.status in {404, 410}
    if isinstance(error, ServerError):
        return (
            error.code == NOT_FOUND_CODE or _NOT_FOUND.search(error.server_message or str(error)) is not None
        )
    return False


def _summary(refusal: Refusal) -> str:
    error = refusal.error
    if error is None:
        return f"no byte: {refusal.claims_end}"
    if isinstance(error, ServerError):
        return f"{error.code}: {_brief(error.server_message or str(error))}"
    return _brief(str(error))


def _brief(text: str) -> str:
    return shortened(" ".join(text.split()), SHOWN_CHARS)
