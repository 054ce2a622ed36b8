"""Limits and defaults that bound what a peer can cause.

A value is checked before the bytes are decoded, and the error names the limit (`errors.LimitError.limit`
is the field's name). Pass your own `Limits(...)` to `playhead.connect` to change one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from playhead.errors import LimitError, UsageError

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a session for its server. Sizes are bytes, times are seconds. Raises `UsageError` for what is
    not a number of 0 or more."""

    message_bytes: int = 64 * MIB
    """One JSON-RPC message: a line, a frame, an HTTP body or one SSE event."""

    block_bytes: int = 48 * MIB
    """Decoded bytes of one content block or page: the content of 64 MiB of base64."""

    stream_bytes: int = 16 * GIB
    """Bytes of one stream: 100 hours of CD audio. An endless resource ends here, with an error."""

    streams_bytes: int = 256 * MIB
    """The rings of all streams of this process: 32 full ones of 4 MiB, and 256 more of 512 KiB."""

    saved_bytes: int = 2 * GIB
    """One saved output. A longer stream continues to play, and is not saved: an endless one must not fill the
    disk."""

    record_bytes: int = 256 * KIB
    """The record of a saved output. Arguments that make it longer are left out."""

    json_depth: int = 128
    """The deepest nesting of one message."""

    json_values: int = 250_000
    """Values of one message: 64 MiB of `[[],[],…` would become more than a gigabyte of Python lists."""

    server_requests: int = 1024
    """Requests of a server that wait for our answer; each takes a task."""

    input_rounds: int = 10
    """Requests for the user's input in one call; the other SDKs allow as many."""

    result_items: int = 10_000
    """Content blocks of one result."""

    model_text_chars: int = 100_000
    """Text for the model from one result: its head and tail. About 25,000 tokens of English."""

    candidates: int = 16
    """Links, URLs and files of one result, and lists among them, whose first bytes are read because nothing
    else proves that they are audio."""

    candidates_at_once: int = 2
    """Those reads at a time: a server that ignores ranges answers each with its whole resource."""

    sniff_seconds: float = 5.0
    """Time that a result waits for those bytes."""

    playlist_bytes: int = MIB
    """One playlist: 1,000 entries of a thousand characters."""

    playlist_entries: int = 1_000
    """Entries of one playlist, and of all that it names."""

    playlist_depth: int = 3
    """Levels of playlists inside playlists, the first one included."""

    listed_items: int = 10_000
    """Tools, resources or templates of one listing."""

    listing_pages: int = 200
    """Pages of one listing: an endless one is cut off here."""

    stagnant_pages: int = 8
    """Successful answers in a row without a new byte, each to a read sent after the previous one arrived."""

    stderr_bytes: int = 64 * KIB
    """The newest bytes of a stdio server's stderr, saved for error messages."""

    idle_session_seconds: float = 300.0
    """A session of our HTTP servers without a request in flight or an open stream ends after this time."""

    connect_seconds: float = 10.0
    handshake_seconds: float = 10.0
    authorization_seconds: float = 300.0
    """Time for a person to allow the access in a browser: enough to find a password."""

    page_seconds: float = 30.0
    """A page's deadline, from the last byte received if the transport sees bytes."""

    page_total_seconds: float = 600.0
    """One answer, however steadily it drips: at the default, 48 MiB still arrive over 0.7 Mbit/s. The reads
    of a stream are bounded by its patience (`StreamOptions.patience_seconds`) alone."""

    tool_seconds: float = 60.0
    """A tool call's deadline; each progress notification restarts it."""

    tool_total_seconds: float = 600.0
    """A tool call's deadline, whatever progress it reports."""

    tool_use_chars: int = MIB
    """One call that a model writes into its text (prompt mode), including its tags: enough for a long
    file."""

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and value >= 0):
                raise UsageError(f"Limits.{name}: expected a number of 0 or more, got {value!r:.80}")


DEFAULT_LIMITS = Limits()


def check_block(n_bytes: int, *, allowed: int, what: str) -> None:
    """Raise `LimitError` for bytes in one piece that are more than `Limits.block_bytes`."""
    if n_bytes > allowed:
        raise LimitError(
            f"{what}: expected at most {allowed} bytes in one block (Limits.block_bytes), got {n_bytes}",
            limit="block_bytes",
            allowed=allowed,
            got=n_bytes,
        )
