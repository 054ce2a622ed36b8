"""The errors that answer valid arguments: refusals, crashes, and lacks outside the server. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from playhead.check.probes.asking import error_words
from playhead.check.results import TestDraft
from playhead.protocol.messages import RpcError

_CHARS: Final = 4_000
REFUSED: Final = "the tool refused arguments that its schema allows"
_INTERNAL: Final = -32603
_NO_CODE: Final = 0
"""Some frameworks use this code for the exception of a handler. Another check judges the code."""

_OUTSIDE: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (what, re.compile(words, re.IGNORECASE))
    for what, words in (
        (
            "a network",
            r"\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|EHOSTUNREACH|ETIMEDOUT)\b|getaddrinfo"
            r"|fetch failed|failed to fetch|network (?:error|is unreachable)|name or service not known|name"
            r" resolution"
            r"|connection (?:refused|reset|error|attempts failed)|no such host|dial tcp|max retries exceeded"
            r"|ConnectError|ConnectTimeout|net::ERR_|proxy error|nodename nor servname|network request"
            r"|unable to connect|could not connect|service unavailable|URLError",
        ),
        (
            "a key or a login",
            r"api[ _-]?(?:key|token)|\bunauthori[sz]ed\b|\b40[13]\b|bad credentials|credentials|not"
            r" authenticated"
            r"|authentication|access[ _-]token|\btoken is (?:missing|required|invalid)|log ?in\b|forbidden"
            r"|_(?:KEY|TOKEN)\b",
        ),
        (
            "a program or a browser",
            r"executable doesn't exist|browser|chrom(?:e|ium)\b|command not found|spawn \S+ ENOENT|not"
            r" installed"
            r"|is not available on this|failed to launch|install (?:it|the)|docker|display|no module named"
            r"|No such file or directory: '[\w.-]+'$|which is required|not found in \$?PATH|Missing"
            r" dependenc",
        ),
        ("memory or disk space", r"\bENOSPC\b|no space left|\bENOMEM\b|EROFS|read-only file system"),
    )
)
"""Maps each lack outside a server to the words of errors that name it."""

_PROGRAMMING: Final = re.compile(
    r"traceback \(most recent call last\)|'?NoneType'? (?:object|has no)|\bnil pointer|invalid memory"
    r" address|^panic:"
    r"|cannot read propert(?:y|ies) of (?:undefined|null)|is not a function\b|is not iterable|undefined is"
    r" not"
    r"|(?<![\w.])(?:Type|Attribute|Name|UnboundLocal|Index|Assertion|Recursion|Reference|Range|NotImplemented|Zero"
    r"Division)Error\b|NullPointerException|NullReferenceException|IndexOutOfRange|index out of range"
    r"|unexpected keyword argument|missing \d+ required positional|local variable .{1,60} referenced before"
    r"|object has no attribute|object is not (?:subscriptable|callable|iterable)|goroutine \d+ \["
    r"|\bsegfault|SIGSEGV"
    r"|unhandled (?:exception|rejection)|unsupported operand type|\bat [\w.<>$ ]{1,80} \(\S{1,200}:\d+:\d+\)",
    re.IGNORECASE | re.MULTILINE,
)
"""Matches words that only a defect of a program has."""

_EXCEPTION: Final = re.compile(
    r"\b[A-Z]\w{2,60}(?:Error|Exception)\b|\bnil\b|\bundefined\b|\bNoneType\b|\bNaN\b"
)
"""Matches the name of an exception or a missing value, which show a crash in an internal error."""

_UNKNOWN_TOOL: Final = (
    r"\b(?:unknown|unrecognized|no such|undefined|unsupported) tool\b"
    r"|\btool[\s:'\"`]{{1,3}}{name}[\s'\"`]{{1,3}}(?:is |was |has )?(?:been )?(?:not|unknown|does not exist"
    r"|unavailable)"
)
"""Matches errors that call the tool `name` unknown."""


def missing_outside(text: str) -> str | None:
    """Return what a server lacks outside itself, if the text of its error says so."""
    return next((what for what, words in _OUTSIDE if words.search(text[:_CHARS])), None)


def shows_crash(text: str) -> bool:
    """Return True if the text of an error has words that only a defect of a program has."""
    return _PROGRAMMING.search(text[:_CHARS]) is not None


_EVALUATED: Final = re.compile(
    r"code|script|expression|formula|sql|query|command|program|regex", re.IGNORECASE
)
"""Matches the names of arguments that a tool may run. An exception is then the answer to the argument."""


def judge_error(draft: TestDraft, error: RpcError | None, text: str, *, tool: str, arguments: object) -> None:
    """Judge an error in answer to arguments that the schema allows: `error`, or the text of a result with
    isError.

    A refusal leaves the test undecided, since a schema can't say which city exists.
    """
    words = error_words(error) if error is not None else text[:300] or "an error without text"
    whole = f"{error.message}\n{_data_text(error.data)}" if error is not None else text
    if (lack := missing_outside(whole)) is not None:
        draft.undecided = f"the server lacks {lack}: {words}"
        return
    is_unknown = (
        re.search(_UNKNOWN_TOOL.format(name=re.escape(tool)), whole[:_CHARS], re.IGNORECASE) is not None
    )
    is_internal = error is not None and (error.code == _INTERNAL or "internal error" in error.message.lower())
    is_exception = is_internal or (error is not None and error.code == _NO_CODE)
    names = arguments if isinstance(arguments, Mapping) else ()
    is_evaluated = not is_exception and any(_EVALUATED.search(str(name)) for name in names)
    crash = (
        None
        if is_evaluated
        else _PROGRAMMING.search(whole[:_CHARS]) or (is_exception and _EXCEPTION.search(whole[:_CHARS]))
    )
    if is_unknown:
        why = f"expected a result of the listed tool {tool!r}, got that it is unknown: {words}"
        draft.failed("tools.crashed", why)
    elif crash:
        why = (
            f"expected a result, or an error about the arguments, got a crash ({crash[0][:60].strip()}):"
            f" {words}"
        )
        draft.failed("tools.crashed", why)
    elif is_internal:
        why = (
            "expected a result, a result with isError, or -32602, for arguments that the schema allows; got"
            f" {words}: a model learns nothing from an internal error"
        )
        draft.failed("tools.error-form", why)
    else:
        draft.undecided = f"{REFUSED}: {words}"


def _data_text(data: object) -> str:
    return str(data)[:_CHARS] if isinstance(data, str | Mapping | list) else ""
