"""Errors, in one tree ordered by fault.

* `UsageError`: you. The call, the argument or the configuration has to change.
* `RemoteError`: the peer. Its answer is an error or invalid. Never retried.
* `TransportError`: the connection. Not all of the answer arrived; reads are retried.
* `PlaybackError`: the audio. The bytes arrived and cannot be decoded or played.
* `DescriptorLimitError`: this process. No file descriptor is free.
* `SavingError`: the disk. A result arrived and could not be saved.

Every message says what was expected, what arrived instead, where, and what to do. The precedent for naming
errors by fault is h11 (`LocalProtocolError`, `RemoteProtocolError`); Closed, Broken and Busy are trio's
words.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final


class PlayheadError(Exception):
    """Base of all errors that this package raises.

    Attributes: `message`, and `advice`, which names a setting of this library that would help (empty if
    none). The exception's text is both. A program with its own settings can show its own advice after the
    message.
    """

    def __init__(self, message: str = "", *, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice

    @property
    def message(self) -> str:
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.message}; {self.advice}" if self.advice else self.message


# --- you ---------------------------------------------------------------------------------------------


class UsageError(PlayheadError):
    """The call or its arguments are invalid."""


class ConfigError(UsageError):
    """A configuration file or option is wrong; the message names the file and the key path."""


class HandlerError(UsageError):
    """A tool's response handler raised (the cause), or returned something other than a `ToolResponse`.

    Attributes: `handler` (its name), `tool_id`.
    """

    def __init__(self, message: str, *, handler: str, tool_id: str) -> None:
        super().__init__(message)
        self.handler = handler
        self.tool_id = tool_id


class HandlerLoadError(HandlerError, ConfigError):
    """A response handler that a file names can't be imported; the message names the file and the key path."""


class RecordingError(UsageError):
    """A recording, or one line of it, can't be read.

    Attributes: `line` (its number, from 1; None for a single line), `key` (`result.status`; empty if the
    whole line is invalid).
    """

    def __init__(self, message: str, *, line: int | None = None, key: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.key = key


class UnknownToolError(UsageError):
    """No tool has this name. Attributes: `name` (as asked for), `near` (similar model names)."""

    def __init__(self, message: str, *, name: str, near: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.name = name
        self.near = near


class ClosedError(UsageError):
    """The object was already closed by its owner."""


class BusyError(UsageError):
    """Two tasks or threads use something at once that only one may use (a pipe has a single reader)."""


class WindowError(UsageError):
    """A write lies outside the window that a pipe can hold.

    Attributes: `start`, `end` (the half-open range written), `low`, `high` (the window, in bytes).
    """

    def __init__(self, message: str, *, start: int, end: int, low: int, high: int) -> None:
        super().__init__(message)
        self.start = start
        self.end = end
        self.low = low
        self.high = high


class BlockedAddressError(UsageError):
    """A URL or a path may not be read (its address is not global, or it is not below an allowed directory).

    Attribute: `permission`, the name of the server's setting that allows it and the value to add, such as
    `("allow_origins", "http://127.0.0.1:8000")`; None if no setting does.
    """

    def __init__(self, message: str, *, permission: tuple[str, str] | None = None) -> None:
        super().__init__(message)
        self.permission = permission


# --- the peer ----------------------------------------------------------------------------------------


class RemoteError(PlayheadError):
    """The peer's answer is an error or invalid."""


class ServerError(RemoteError):
    """A JSON-RPC error answer.

    Attributes: `code`, `data` (as the server sent it), `server_message` (the server's whole message; the
    exception's own text quotes the beginning).
    """

    def __init__(self, message: str, *, code: int, data: object = None, server_message: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.server_message = server_message


class RangePastEndError(ServerError):
    """The server says that the range starts past the end of the resource (HTTP 416)."""


class ToolFailedError(RemoteError):
    """A tool returned `isError`, with the message as its text. Also: none of the requested calls was
    allowed."""


class HttpRefusedError(RemoteError):
    """An HTTP status of 300 to 499 in place of an answer, except those for which a retry may help (408, 425,
    429). Attribute: `status`."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class AccessDeniedError(HttpRefusedError):
    """HTTP 401 or 403: the server requires credentials, or does not accept those that were sent."""


class AuthorizationNeededError(AccessDeniedError):
    """A person has to allow the access (again) in a browser. They are asked only when a session is opened."""


class ProtocolError(RemoteError):
    """A message that is not what the protocol allows at this point."""


class ResponseError(ProtocolError):
    """A structured response that cannot be read.

    Attributes: `code` (`"INVALID_JSON"`, `"INVALID_TYPE"` or `"INVALID_FIELD"`), `path` (in JSON:
    `$.message`), `expected`, `got`.
    """

    def __init__(self, message: str, *, code: str, path: str, expected: str, got: str) -> None:
        super().__init__(message)
        self.code = code
        self.path = path
        self.expected = expected
        self.got = got


class ResponseTypeError(ResponseError):
    """A structured response of a type that the registry doesn't have; the message names it."""


class LimitError(RemoteError):
    """The peer sent more than a limit allows. Attributes: `limit` (its name), `allowed`, `got`."""

    def __init__(self, message: str, *, limit: str, allowed: float, got: float, advice: str = "") -> None:
        super().__init__(message, advice=advice)
        self.limit = limit
        self.allowed = allowed
        self.got = got


class ContentError(RemoteError):
    """The bytes of a resource are invalid. Attribute: `offset`, in bytes of the resource."""

    def __init__(self, message: str, *, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class Base64Error(ContentError):
    """Base64 text that does not decode strictly (RFC 4648, section 4, padded).

    Attributes: `kind` (`"byte"`, `"length"`, `"padding"` or `"last_symbol"`), `index` (in the text), `offset`
    (of the text's first byte in the resource; 0 without a resource).
    """

    def __init__(self, message: str, *, kind: str, index: int, offset: int = 0) -> None:
        super().__init__(message, offset=offset)
        self.kind = kind
        self.index = index


class ContradictionError(ContentError):
    """The server contradicts itself: about the bytes at `offset`, or by serving bytes past the end that it
    claims there."""


class ChunkGapError(ContentError):
    """Chunks of a queue are missing: each is handed out once, so they are lost.

    Attributes: `expected` (the index of the first missing chunk), `got` (the index that arrived).
    """

    def __init__(self, message: str, *, offset: int, expected: int, got: int) -> None:
        super().__init__(message, offset=offset)
        self.expected = expected
        self.got = got


class TextContentError(ContentError):
    """Text contents arrived where bytes were expected."""


class RangeNotHonouredError(ContentError):
    """A server's answers to ranges cannot be combined into one resource without guessing."""


class ResourceChangedError(ContentError):
    """The resource changed while it was read: bytes of two versions are never joined. Read it again."""


class DigestError(ContentError):
    """All bytes arrived, but they do not have the digest that the server announced.

    Attributes: `expected`, `got` (SHA-256, in hexadecimal); `offset` is the end of the resource.
    """

    def __init__(self, message: str, *, offset: int, expected: str, got: str) -> None:
        super().__init__(message, offset=offset)
        self.expected = expected
        self.got = got


class ModelError(RemoteError):
    """A model's provider refused a request, or its answer is invalid. Its messages contain no keys.

    Attributes: `provider`; `status` (HTTP; None if the fault is in the stream); `retry_after_seconds` (the
    wait that the provider asks for, if any).
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str,
        status: int | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status
        self.retry_after_seconds = retry_after_seconds


# --- the connection ----------------------------------------------------------------------------------


class TransportError(PlayheadError):
    """Not all of the answer arrived. Reads are retried; `tools/call` is not, unless it is idempotent.

    Attribute: `retry_after_seconds`, the wait that the server asked for before the next try, if any (HTTP's
    `Retry-After`).
    """

    def __init__(
        self, message: str = "", *, retry_after_seconds: float | None = None, advice: str = ""
    ) -> None:
        super().__init__(message, advice=advice)
        self.retry_after_seconds = retry_after_seconds


class ConnectError(TransportError):
    """No connection could be made, or the handshake failed."""


class UpgradeRefusedError(ConnectError):
    """An HTTP answer in place of a WebSocket (401 and 403 are `AccessDeniedError`). Attribute: `status`."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class ConnectionLostError(TransportError):
    """The connection, or the server's process, ended while an answer was awaited."""


class WebSocketClosedError(ConnectionLostError):
    """The WebSocket was closed.

    Attributes: `code` (RFC 6455, section 7.4.1; 1005 if the peer gave none, 1006 if it ended without a close
    frame, 1002 and 1007 if the peer broke the protocol and we closed), `reason` (the text of the closing
    side, at most 123 bytes; not trusted).
    """

    def __init__(self, message: str, *, code: int, reason: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class ServerEndedError(ConnectionLostError):
    """The server's process has ended, and `restart` does not allow another start, so a retry does not
    help."""


class SessionLostError(ConnectionLostError):
    """The server no longer knows the session: HTTP 404, HTTP 400 that names the session, or JSON-RPC -32600
    "Session not found". The next request opens a new session."""


class DeadlineError(TransportError):
    """No byte arrived within the time allowed."""


class HttpStatusError(TransportError):
    """An HTTP answer without the answer to the request: the status 408, 425, 429, or 500 and above, or a body
    such as HTTP 202's, a page of HTML, or the answer to another request. A retry may help.

    Attributes: `status`, `retry_after_seconds`.
    """

    def __init__(self, message: str, *, status: int, retry_after_seconds: float | None = None) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds)
        self.status = status


class StreamBrokenError(TransportError):
    """A stream has waited for `StreamOptions.patience_seconds`, or a read that must not be repeated has
    failed. `__cause__` is the error of the last failed read, if any.

    Attribute: `offset` (first missing byte).
    """

    def __init__(self, message: str, *, offset: int, advice: str = "") -> None:
        super().__init__(message, advice=advice)
        self.offset = offset


# --- the audio ---------------------------------------------------------------------------------------


class PlaybackError(PlayheadError):
    """The audio cannot be decoded or played."""


class UnsupportedFormatError(PlaybackError):
    """A format without a decoder; the message names it and the extra to install, if any."""


class DecodeError(PlaybackError):
    """The decoder failed on damaged bytes."""


class SeekError(PlaybackError):
    """The audio cannot be moved to another time, and plays on.

    The source hands out its bytes only once or only as a whole, or the decoder cannot seek.
    """


class NoDeviceError(PlaybackError):
    """No sound device is available."""


# --- this process ------------------------------------------------------------------------------------


NO_DESCRIPTOR: Final = (
    "no file descriptor is free: the limit RLIMIT_NOFILE is reached; raise it (ulimit -n), or close streams"
    " and connections"
)


class DescriptorLimitError(PlayheadError):
    """The process has no free file descriptor; the message names the limit, `RLIMIT_NOFILE`."""


def is_descriptor_limit(error: OSError) -> bool:
    """Return whether `error` says that no file descriptor is free, in this process or in the system."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


@contextmanager
def naming_descriptor_limit() -> Iterator[None]:
    """Raise `DescriptorLimitError` in place of an `OSError` that says that no file descriptor is free."""
    try:
        yield
    except OSError as error:
        if is_descriptor_limit(error):
            raise DescriptorLimitError(NO_DESCRIPTOR) from error
        raise


# --- the disk ----------------------------------------------------------------------------------------


class SavingError(PlayheadError):
    """A result could not be saved; no partial file is left. Attribute: `path` (the file or directory)."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class DiskFullError(SavingError):
    """There is no room: the disk, the quota or the largest allowed file is full."""
