"""The Rust core: base64, messages, a positional pipe, prefetch planner, playout, dither, Ogg and Vorbis."""

from typing import Final, Literal, Self, TypeAlias, final

from typing_extensions import Buffer

__all__ = [
    "DeviceCallback",
    "Dither",
    "Frame",
    "MessageBuffer",
    "OggPage",
    "OggReader",
    "Pipe",
    "PipeStatistics",
    "Planner",
    "PlannerStatistics",
    "Playout",
    "Request",
    "VorbisStream",
    "__version__",
    "check_base64",
    "decode_base64",
]

__version__: Final[str]

def check_base64(text: str | Buffer, /) -> None:
    """Check base64 as `decode_base64` does, in a few KiB of memory. Raises what that raises."""

def decode_base64(text: str | Buffer, /) -> bytes:
    """Decode strict base64 (RFC 4648, section 4, padded, no white space).

    Text of 64 KiB or more is decoded with the GIL released. An object that can change (all but `str`, `bytes`
    and a `memoryview` of `bytes`) is copied first, here and by everything else that takes bytes.

    Raises:
        Base64Error: The text's first fault, by kind and index (the sender's fault).
        BufferError, TypeError: `text` has no contiguous bytes (yours).
    """

@final
class Dither:
    """Converts the 32-bit float samples of one stream to 16 bits, with triangular noise of a fixed seed.

    Equal input gives equal output, in any pieces. A value that 16 bits hold exactly is unchanged.
    """

    def __new__(cls) -> Self: ...
    def convert(self, floats: Buffer, /) -> bytes:
        """Return the next samples as 16-bit integers. Both in the machine's byte order.

        Values beyond -1 to 1 are clamped; NaN is silence.

        Raises:
            UsageError: `floats` is not a multiple of 4 bytes (yours).
            BufferError, TypeError: `floats` has no contiguous bytes (yours).
        """

_Field: TypeAlias = Literal["contents.blob", "content.data", "content.resource.blob"]

@final
class Frame:
    """The structure of a JSON-RPC message, read from its bytes in one pass without parsing it.

    Any bytes have one. For JSON it is what a parser finds; anything else is for a parser to refuse, and the
    counts bound what that builds before it does.
    """

    def __new__(cls, data: Buffer, /) -> Self:
        """Scan `data`, which must not change. Long strings are skipped at the speed of memory.

        Raises:
            BufferError, TypeError: `data` has no contiguous bytes (yours).
        """

    @property
    def kind(self) -> Literal["request", "notification", "result", "error"] | None:
        """The kind by its keys, in this order: `method` (with or without `id`), `result`, `error`."""

    @property
    def id(self) -> int | str | None:
        """The id, if it is written plainly: an integer of 64 bits, or a string of at most 256 bytes without
        escapes. None for any other, and without one.
        """

    @property
    def depth(self) -> int:
        """The deepest nesting of objects and lists."""

    @property
    def values(self) -> int:
        """The number of values: one for each opening bracket and each comma outside strings."""

    def text_bytes(self) -> int:
        """The bytes that the text may take in memory, where the widest character sets the width of all.

        Reads the message once more, but for its blobs: call it only for one that may be too large.
        """

    def envelope(self) -> bytes:
        """The message with an empty string in place of each blob: JSON if and only if the message is."""

    def blobs(self) -> list[tuple[_Field, int, memoryview]]:
        """The long blobs of a result: the field, the index in its list, and a view of the base64 text.

        A blob is the value of exactly `result.contents[i].blob`, `result.content[i].data` or
        `result.content[i].resource.blob`, of 1 KiB or more and only of ASCII characters without escapes. The
        base64 is not checked. There are none if an object on the way repeats a key: parsers disagree about
        those.
        """

@final
class MessageBuffer:
    """Collects a long message, and gives up its `bytes` without a copy.

    Memory is taken as needed up to 4 MiB, then 66 MiB at once, of which only what is written to
    counts. On Linux those are large pages, and collecting 63 MiB takes a third of the time of `io.BytesIO`.
    """

    def __new__(cls, expected_bytes: int = 0, /) -> Self:
        """Take memory for `expected_bytes`, if known; more may be written.

        Raises:
            MemoryError: that much could not be had.
        """
    def write(self, chunk: Buffer, /) -> None:
        """Append `chunk`.

        Raises:
            BufferError, TypeError: it has no contiguous bytes (yours).
            MemoryError: more memory could not be had.
        """

    def __len__(self) -> int:
        """The number of bytes so far."""

    def tail(self, n_bytes: int, /) -> bytes:
        """A copy of the last bytes, at most `n_bytes`."""

    def take(self) -> bytes:
        """All bytes. The buffer is empty afterwards."""

@final
class OggPage:
    """One page of an Ogg stream (RFC 3533), with the right checksum."""

    @property
    def offset(self) -> int:
        """Its place in the stream, in bytes."""

    @property
    def end(self) -> int:
        """Offset of the byte behind it."""

    @property
    def is_continued(self) -> bool:
        """It begins with the rest of a packet of the page before."""

    @property
    def is_first(self) -> bool:
        """The first page of its logical stream."""

    @property
    def is_last(self) -> bool:
        """The last page of its logical stream."""

    @property
    def is_open(self) -> bool:
        """Its last packet continues on the next page."""

    @property
    def granule(self) -> int | None:
        """Time of the end of the last packet that ends here, in the codec's units; None if none does."""

    @property
    def serial(self) -> int:
        """Its logical stream."""

    @property
    def number(self) -> int:
        """Its number in the logical stream."""

    @property
    def packets(self) -> list[bytes]:
        """The packets of the reader's logical stream that end here, whole, whichever page they began on.

        A packet whose beginning or middle is missing is dropped. Packets are cut after 1 MiB: only pictures
        in comments are longer.
        """

@final
class OggReader:
    """Finds the pages of an Ogg stream, and joins their packets, from its bytes in any pieces.

    What is not a page, or damaged, is skipped; the offset of the next page tells how much that was. It holds
    less than a page, the last piece of bytes, and a packet.
    """

    def __new__(cls, *, offset: int = 0, serial: int | None = None) -> Self:
        """Read the bytes from `offset` on. Packets are those of the logical stream `serial`, by default that
        of the first page."""

    @property
    def offset(self) -> int:
        """Offset of the first byte that is not part of a page, nor skipped, so far."""

    def feed(self, data: Buffer, /) -> None:
        """Take the next bytes.

        Raises:
            BufferError, TypeError: `data` has no contiguous bytes (yours).
        """

    def finish(self) -> None:
        """Nothing follows: skip a page that is cut short instead of waiting for its rest."""

    def next_page(self) -> OggPage | None:
        """Return the next page, of any logical stream; None before more bytes are fed."""

@final
class Pipe:
    """A byte pipe from one writer to one reader, in bounded memory.

    Each absolute offset has its place in a ring of `capacity_bytes`, so pages may be written in any order and
    none is moved; the reader sees the bytes up to the first gap. Every method may be called
    from any thread. A negative int raises OverflowError everywhere (yours).
    """

    def __new__(cls, capacity_bytes: int, *, start: int = 0, behind_bytes: int = 0) -> Self:
        """
        Args:
            capacity_bytes: Capacity, 1 byte to 1 TiB, rounded up to a power of two. Memory is used when it is
                first written: an idle pipe costs a few KiB, whatever its capacity.
            start: Absolute offset of the first byte. behind_bytes: Bytes kept behind the reader, so that a
            short seek back reads nothing again. They are part of the capacity and leave that much less room
            ahead. By default none.

        Raises:
            UsageError: A capacity or start out of range, or a `behind_bytes` that is not below the capacity
                (yours).
            MemoryError, OSError: The system has no memory, or no file descriptor (the wake takes one).
        """

    @property
    def capacity_bytes(self) -> int:
        """The capacity: a power of two."""

    @property
    def ahead_bytes(self) -> int:
        """Bytes that fit ahead of the reader: `capacity_bytes` less `behind_bytes`.

        A page fits if it ends at or below `head + ahead_bytes`, and from then on until a `seek` empties the
        pipe.
        """

    @property
    def kept_from(self) -> int:
        """Absolute offset of the oldest byte kept: a `seek` from here to `tail` drops nothing."""

    @property
    def head(self) -> int:
        """Absolute offset of the next byte to be read."""

    @property
    def tail(self) -> int:
        """Absolute end of the readable bytes."""

    @property
    def closed(self) -> bool:
        """`close` or `abort` was called. A `seek` that empties a closed pipe opens it again."""

    def write_base64(self, offset: int, text: str | Buffer) -> int:
        """Decode a page straight to its place, and return its decoded length in bytes.

        Bytes that are no longer kept (below `kept_from`) are skipped; bytes still held are compared, never
        overwritten; missing ones are stored. All of that or, on an error, nothing. Text of 64 KiB or more
        is decoded with the GIL released, and copied first if its object can change.

        Raises:
            Base64Error: The text's first fault; `offset` says which page (the sender's fault).
            ContradictionError: A byte that is held arrived with another value (the sender's fault); `offset`
                is the first such byte.
            WindowError: The page reaches past `kept_from + capacity_bytes` (yours: request it later).
            ClosedError: After `close` or `abort` (yours).
            BufferError, TypeError: `text` has no contiguous bytes (yours).
        """

    def write(self, offset: int, data: Buffer) -> int:
        """As `write_base64`, for plain bytes (PCM); no Base64Error."""

    def wait_room(self, room_bytes: int, timeout: float | None = None) -> bool:
        """Block a writing thread, with the GIL released, until `room_bytes` fit past `tail`.

        It takes the wakes of `fileno`, so a writer waits either here or there, not in both. `timeout` is in
        seconds, by default without limit; 0 does not wait. Returns whether there is room.

        Raises:
            UsageError: More than `ahead_bytes`, or a negative timeout (yours).
            ClosedError: The pipe was closed or aborted, also while waiting (yours).
        """

    def arm(self, low_bytes: int) -> bool:
        """Request one wake for a writing trio task once `tail - head <= low_bytes`, or at the end.

        Returns True if that is already the case; then no wake is requested. There may be a wake too many,
        never one too few, so check again after it:

            pipe.clear_wake()
            while not pipe.arm(low_bytes):
                await trio.lowlevel.wait_readable(pipe.fileno())
                pipe.clear_wake()
        """

    def fileno(self) -> int:
        """The file descriptor that is readable after a wake: an eventfd, or a socket's. The pipe owns it."""

    def clear_wake(self) -> None:
        """Take the pending wakes, so that `fileno` is not readable."""

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        """Read what is available into `buffer`, and return the number of bytes.

        Blocks until there is at least one byte, with the GIL released; a write, `close` and `abort` wake it,
        Ctrl-C does not, so call it from a thread of its own. Never waits to fill the buffer. 0 is the end, or
        an empty buffer. `timeout` is in seconds, by default without limit; 0 does not wait.

        Raises:
            TimeoutError: No byte arrived in time; nothing is lost, read again.
            BusyError: Another thread is reading (yours).
            UsageError: A negative timeout (yours).
            BaseException: The exception passed to `abort`, after the bytes before it.
            BufferError, TypeError: `buffer` has no writable, contiguous bytes (yours).
        """

    def readinto_nowait(self, buffer: Buffer) -> int | None:
        """As `readinto`, without waiting: None if nothing is available yet. For an audio callback.

        Takes no lock, allocates nothing but its result and never blocks. Wakes a writer that waits for room.
        None also while a `seek` is moving the reader.

        Raises:
            BusyError, BaseException, BufferError, TypeError: As `readinto`.
        """

    def readinto_behind(self, offset: int, buffer: Buffer) -> int:
        """Copy bytes that the reader has passed, from `offset` up to `head`, and return their number.

        As many as fit; 0 if `offset` is not below `head`, or no longer kept (below `kept_from`). Waits for a
        write that is running, so it is not for an audio callback.

        Raises:
            BufferError, TypeError: `buffer` has no writable, contiguous bytes (yours).
        """

    def seek(self, offset: int) -> None:
        """Move the reader to an absolute offset.

        From `kept_from` to `tail` nothing is dropped. Elsewhere everything is dropped, the pipe starts again
        at `offset`, and a closed one is open again. A blocked reader gets the bytes from `offset`: at once if
        they are kept, otherwise when they are written. Waits for a running copy.

        Raises:
            ClosedError: After `abort` (yours).
            UsageError: An offset above 2**62 (yours).
        """

    def interrupt(self) -> None:
        """Let the `readinto` that is blocked, or else the next one that would block, raise `TimeoutError`.

        For a thread that has a seek to make: `seek` withdraws it.
        """

    def close(self) -> None:
        """End the stream at `tail`: the reader gets the bytes up to there, and then 0.

        Bytes beyond a gap are dropped. Wakes a blocked reader and a waiting writer. Idempotent;
        does nothing after `abort`.
        """

    def abort(self, error: BaseException) -> None:
        """Break the stream at `tail`: the reader gets the bytes up to there, and then this exception.

        Wakes a blocked reader and a waiting writer. The first of `close` and `abort` wins.
        """

    def statistics(self) -> PipeStatistics:
        """Take a snapshot. From any thread, at any time."""

@final
class PipeStatistics:
    """A snapshot of the counters of a pipe."""

    @property
    def bytes_read(self) -> int:
        """Bytes handed to the reader."""

    @property
    def reader_waits(self) -> int:
        """Blocking reads that found nothing and had to wait."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...

@final
class Playout:
    """Decoded 16-bit audio of one item between a decoder's thread and a sink: the start gate, pause, volume,
    and the counts. Every method may be called from any thread.

    It plays what is written to its pipe. `phase` is one of `playhead.playback.pcm_buffer.BufferPhase`; the
    header of rust/core/playout.rs has its transitions.
    """

    def __new__(
        cls,
        pipe: Pipe,
        *,
        sample: str,
        channels: int,
        rate_hz: int,
        gain: float = 1.0,
        fade_frames: int = 0,
        seek_fade_frames: int = 0,
        spare_bytes: int = 0,
    ) -> Self:
        """
        Args:
            pipe: The pipe that the decoder writes whole frames to; only the playout reads it.
            sample: `s16` or `f32`, in the machine's byte order.
            channels: Samples of one frame.
            rate_hz: Frames per second.
            gain: 0.0 to 1.0, others are clamped; 1.0 changes no sample.
            fade_frames: Frames of the fade before a pause and after it.
            seek_fade_frames: Frames of the fade before a seek and after it.
            spare_bytes: Room that `wait_room` keeps for the first audio after a seek, while the sink has not
                skipped the old.

        Raises:
            UsageError: Another `sample`, or `channels` or `rate_hz` is 0 (yours).
        """

    @property
    def phase(self) -> Literal["filling", "ready", "playing", "draining", "dry", "ended", "closed"]: ...
    @property
    def held(self) -> bool:
        """True while audio is held back, until `release`."""

    @property
    def paused(self) -> bool:
        """The listener paused it, in whatever phase it is."""

    @property
    def frames(self) -> int:
        """Frames that the sink has taken, whatever was skipped or repeated by seeks."""

    @property
    def position_frames(self) -> int:
        """The playhead: number of the next frame to be taken."""

    @property
    def heard_frames(self) -> int:
        """Frames of `frames` that have left the device by now, according to `set_delay`. All of them if the
        sink takes them in a thread of its own. Never decreases."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes in hand that the sink will take."""

    @property
    def followed(self) -> bool:
        """A device plays the playout that follows this one."""

    @property
    def underruns(self) -> int:
        """Times that the audio ran dry and continued, counted when it continues."""

    @property
    def device_underruns(self) -> int:
        """Drop-outs of the device: calls so late that it had played all the audio it held."""

    @property
    def first_audio_age_seconds(self) -> float | None:
        """Seconds since the sink took the first frame; None before that."""

    def fill(self, buffer: Buffer) -> tuple[int, bool]:
        """Fill `buffer` with audio, and the rest with silence; for one caller at a time, in real time.

        Takes no lock and never blocks. Returns the bytes of audio, and whether the phase changed.

        Raises:
            BufferError, TypeError: `buffer` has no writable, contiguous bytes (yours).
        """

    def take(self, buffer: Buffer) -> int | None:
        """Block, with the GIL released, until there is audio, and put it into `buffer`. 0 is the end, None an
        `interrupt_take`.

        Raises:
            ClosedError: `close` was called, also while waiting.
            BusyError: Another thread takes (yours).
            BufferError, TypeError: `buffer` has no writable, contiguous bytes (yours).
        """

    def interrupt_take(self) -> None:
        """Make one `take`, the present one or the next, return None: other audio may come first."""

    def copy_taken(self, offset: int, buffer: Buffer) -> tuple[int, int]:
        """Copy audio that the sink has taken and that is still in the pipe, from `offset` on, into `buffer`.

        Returns its length in bytes, 0 if no more was taken, and the offset at which to go on: audio that a
        seek made void is left out. Look before each write.

        Raises:
            BufferError, TypeError: `buffer` has no writable, contiguous bytes (yours).
        """

    def wait_room(self, room_bytes: int) -> bool:
        """Block, with the GIL released, until `room_bytes` fit. Returns False immediately if there is no room
        before `release`, and after `interrupt`.

        Raises:
            UsageError: More than fits into the pipe (yours).
            ClosedError: The pipe was closed, also while waiting.
        """

    def release(self) -> bool:
        """Open the gate: held audio may be heard. Returns whether the phase changed."""

    def set_paused(self, paused: bool, /) -> None:
        """Hold the playhead, or let it go on."""

    def set_gain(self, gain: float, *, ramp_frames: int) -> None:
        """Change the gain evenly over the next `ramp_frames` frames, from whatever it is then."""

    def seek(self, frame: int) -> bool:
        """Make everything that was written void, and close the gate; what is written from now on begins with
        `frame`. An ended pipe is open again. For the thread that writes.

        Returns False, and changes nothing, after the last frame or `close`.
        """

    def interrupt(self) -> None:
        """Make one `wait_room` return False: the present one, or the next that would block."""

    def set_duck(self, gain: float, *, ramp_frames: int) -> None:
        """Change a second gain, which is multiplied with the first, as `set_gain`."""

    def set_delay(self, seconds: float) -> None:
        """Set how much audio the device, and what follows it, holds after a callback.

        Raises:
            UsageError: `seconds` is negative or not finite (yours).
        """

    def follow_with(self, next: Playout) -> bool:
        """Let a device play `next`, of the same format, after the last frame of this one, in the same period.
        Returns False if another one follows already."""

    def mix(self, over: Playout | None, /) -> bool:
        """Add the audio of `over` to what `fill` and a device's callbacks give, clipped at full scale, until
        it is replaced; `None` adds nothing. A playout that follows this one goes on with it. A closed playout
        fades it out and takes no more of it; `take` takes none. Returns False if `over` has another
        format."""

    def stop(self, *, fade_frames: int) -> None:
        """Fade out over `fade_frames` and close, in a callback; close immediately if none plays it. The phase
        changes then: call `close` after that, or if no callback comes."""

    def withdraw(self) -> None:
        """Close it before its turn: a device goes on with the one that follows it."""

    def close(self) -> bool:
        """Silence it, and close the pipe. Returns whether the phase changed."""

@final
class DeviceCallback:
    """The callbacks of one miniaudio device, in Rust. They take no lock, allocate nothing, call no Python.

    Set `data_callback`, `stop_callback` and `user_data` in the device's configuration before
    `ma_device_init`, and call `free` after `ma_device_uninit` has returned, never before. Without `free` its
    memory is never freed.

    Without a device, a thread calls `run`.
    """

    def __new__(cls, *, frame_bytes: int, user_data_offset: int | None = None) -> Self:
        """
        Args:
            frame_bytes: Bytes of one frame of the device's format.
            user_data_offset: Offset of `pUserData` in `ma_device`, the same in all calls; None for `run`.

        Raises:
            UsageError: Another `user_data_offset` than before (yours).
            OSError: No file descriptor is left.
        """

    @property
    def data_callback(self) -> int:
        """Address of an `ma_device_data_proc`."""

    @property
    def stop_callback(self) -> int:
        """Address of an `ma_stop_proc`."""

    @property
    def user_data(self) -> int:
        """Address for `pUserData`; 0 after `free`, and without a device."""

    def play(self, playout: Playout) -> None:
        """Feed the device from `playout`; before that it gets silence.

        Raises:
            UsageError: It plays one already (yours).
        """

    def set_depth(self, seconds: float) -> None:
        """Set how much audio the device holds after a call. The playout counts the calls that are later.

        Raises:
            UsageError: `seconds` is negative or not finite (yours).
        """

    def run(self, *, period_frames: int, rate_hz: int) -> None:
        """Be the device: take a period now and whenever one has passed, and drop it. Blocks until `stop`.

        The schedule does not drift. A period that is late is made up for, up to three of them; longer than
        that, and the schedule shifts.

        Raises:
            ValueError: `period_frames` or `rate_hz` is 0 (yours).
        """

    def stop(self) -> None:
        """End `run`, also one that begins later."""

    @property
    def calls(self) -> int:
        """Calls of the device. One that is lost stops calling."""

    @property
    def over(self) -> bool:
        """The device has played the last frame, or stopped."""

    @property
    def stopped(self) -> bool:
        """The device stopped, by itself or because it was closed."""

    def fileno(self) -> int:
        """The file descriptor that is readable after the phase of the playout changed in a callback, and when
        the device is over. It belongs to this object."""

    def clear_wake(self) -> None:
        """Take the pending wakes, so that `fileno` is not readable."""

    def free(self) -> None:
        """Free what the device points to. Idempotent."""

@final
class Request:
    """A range to read now: bytes `start` to `end` (half-open), answered by `on_answer` or `on_error` with
    its `id`.
    """

    @property
    def id(self) -> int:
        """Never used twice by one planner."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int:
        """One past the last byte; above `start`."""

    @property
    def is_retry(self) -> bool:
        """A read of this range failed before."""

    @property
    def is_hedge(self) -> bool:
        """The same range is in flight already and is late; the first answer counts."""

    @property
    def is_probe(self) -> bool:
        """Requested by `Planner.probe`: the caller judges the answer."""

@final
class PlannerStatistics:
    """A snapshot of the counters and estimates of a planner."""

    @property
    def requests(self) -> int:
        """Requests made: retries, hedges, probes and corroborating reads included."""

    @property
    def pages(self) -> int:
        """Answers with new bytes."""

    @property
    def bytes(self) -> int:
        """New bytes."""

    @property
    def retries(self) -> int:
        """Requests for a page that had failed."""

    @property
    def hedges(self) -> int:
        """Second requests for a late page."""

    @property
    def in_flight(self) -> int:
        """Requests in flight, including unwanted ones until `expired` has named them."""

    @property
    def in_flight_max(self) -> int:
        """Most requests in flight at once."""

    @property
    def bandwidth_bytes_per_second(self) -> float | None:
        """Payload bytes per second, the maximum over ten seconds. None before the first page."""

    @property
    def rtt_seconds(self) -> float | None:
        """The least latency of a page over thirty seconds. None before the first page."""

    @property
    def size_was_wrong(self) -> bool:
        """Bytes arrived past the announced size, or the end was accepted below it."""

_EndedBy: TypeAlias = Literal["empty", "done", "416", "size", "error", "whole", "no-growth"]

@final
class Planner:
    """The prefetch planner: a state machine without clock, I/O or threads. Safe to share between threads.

    Times are seconds as float on any clock that does not run back (`trio.current_time()`); one that does, or
    is not finite, is held at the latest time seen. Offsets and sizes are bytes; ranges are half-open. Ids
    that are unknown, because they were answered, cancelled or made stale by `seek`, are ignored.
    Every int argument raises OverflowError (the caller's fault) if it is negative or above 2**64 - 1.

    After every event call `next` until it returns None, then wait for an answer, for the reader to move, or
    for `timer`.
    """

    START_SECONDS: Final[float]
    """Audio in hand before playing starts."""
    REFILL_SECONDS: Final[float]
    """Audio in hand before playing goes on after it ran dry."""

    def __new__(
        cls,
        *,
        capacity_bytes: int,
        page_min_bytes: int | None = None,
        page_bytes: int | None = None,
        page_bytes_max: int | None = None,
        grid_bytes: int = 0,
        in_flight: int | None = None,
        timeout_seconds: float | None = None,
        patience_seconds: float | None = None,
        sleeps_when_full: bool = False,
        stagnant_answers: int | None = None,
        seed: int = 0,
        start: int = 0,
    ) -> Planner:
        """None means the core's own default.

        Args:
            capacity_bytes: Room ahead of the reader. No page ends past reader + room, and none is larger than
                a quarter of it, so that pages overlap.
            page_min_bytes: First page (8 KiB): small, because the first audio waits for it.
            page_bytes: Pages double up to this (100 KiB, what servers expect).
            page_bytes_max: Pages grow on to this (1 MiB) while that makes them faster.
            grid_bytes: Pages of at least this size end on a multiple of it (0: on any byte), so that readers
                with other page sizes share blocks.
            in_flight: Most requests at once, 1 to 256. None: as many as the link can use.
            timeout_seconds: A request is cancelled after this long without a byte of any answer (30).
            patience_seconds: The stream breaks when the reader has waited this long without progress (60).
            sleeps_when_full: Once the room is full, request nothing until a quarter of it is free.
            stagnant_answers: Successful answers in a row without a new byte (8); one more breaks the stream.
            seed: Of the retry jitter.
            start: Offset of the first byte wanted.

        Raises:
            UsageError: A setting is out of range (yours); the message names it and the range.
        """

    def next(self, now: float, head: int) -> Request | None:
        """The next request to send; `head` is the reader's offset. None: wait for an event."""

    def on_answer(self, id: int, now: float, n_bytes: int, end: _EndedBy | None = None) -> bool:
        """Handle an answer with `n_bytes` bytes from the request's start and, with `end`, the claim that
        nothing follows.

        Returns True if the bytes are new. Fewer bytes than requested are a short page; more count as all.
        """

    def on_error(
        self,
        id: int,
        now: float,
        kind: Literal["lost", "refused", "damaged", "final"],
        *,
        code: int | None = None,
        retry_after_seconds: float | None = None,
        broke_off: bool = False,
    ) -> None:
        """Handle a failed request.

        Args:
            kind: `lost`: not all of the answer arrived; retried while the reader has patience. `refused`:
            retried after 1, 5 and 15 s. `damaged`: retried once. `final`: the stream breaks there. code: The
            server's error code, if it answered with one. The same code repeatedly may be the end.
            retry_after_seconds: The wait that the server asked for before anything is sent. broke_off: Part
            of the answer had arrived; the next try requests half.
        """

    def on_fed(self, now: float, n_bytes: int) -> None:
        """Record progress: the caller stored bytes that it read by probes."""

    def seen_to(self, offset: int) -> None:
        """Record that a probe showed bytes up to `offset`."""

    @property
    def served_to(self) -> int:
        """One past the highest byte that was ever served."""

    @property
    def page_bytes(self) -> int:
        """Size of the next new page."""

    def hold(self, id: int) -> None:
        """Hold an answer while the caller judges it: meanwhile it is neither read again nor late."""

    def probe(self, start: int, end: int) -> None:
        """Read `[start, end)` next, retried as pages are; the caller judges the answer."""

    def hold_pages(self, hold: bool) -> None:
        """With True, send nothing but probes until called with False."""

    def heard(self, at: float) -> None:
        """Record that bytes of an answer arrived at `at`."""

    def set_demand(self, now: float, demand: Literal["supplied", "waiting", "paused"]) -> None:
        """Set how urgently bytes are needed. Patience runs while `waiting`; while `paused`, retries are
        rare."""

    def expired(self, now: float) -> list[int]:
        """Return the ids to cancel: those silent for too long, to be followed by `on_error`; and, once each,
        those whose answer is no longer wanted (a lost hedge, a read past the end), for which `on_error` does
        nothing.
        """

    def timer(self) -> float | None:
        """Return when to call `expired` and `next` again if nothing else happens; it may be in the past."""

    def seek(self, offset: int) -> list[int]:
        """Move the reader: nothing from `offset` on counts as received. Returns the stale ids, to be
        cancelled.

        Estimates, an accepted end and an announced size stay; pages start small again.
        """

    def set_total(self, total_bytes: int, *, exact: bool = False) -> None:
        """Record an announced size, 0 for none. It is confirmed by one small read unless it is `exact`, and
        bytes may refute it.
        """

    def set_end(self, at: int, by: _EndedBy) -> None:
        """Set a known end: one answer held the whole resource."""

    def set_growing(self, now: float, size_bytes: int, *, announces_end: bool = False) -> None:
        """Record that the resource is still being written and has at least `size_bytes`.

        Pages are read ahead up to the present size, and growth is waited for. With `announces_end` the server
        says of each page whether the resource still grows; otherwise a long time without growth ends the
        stream (`no-growth`).
        """

    def set_notifies(self, now: float, notifies: bool) -> None:
        """Record whether the server notifies of growth; otherwise the present end is polled."""

    def on_notified(self, now: float) -> None:
        """Record a notification of growth."""

    def set_in_hand(self, now: float, seconds: float) -> None:
        """Record that the audio in hand lasts this long: the next poll waits until half of it is played."""

    def set_grown(self, now: float, size_bytes: int | None = None) -> None:
        """Record the announced end of a growing resource. Without a size, the end is found by reading."""

    @property
    def present_bytes(self) -> int | None:
        """The present size of a growing resource; None for any other."""

    def set_page_bytes(self, page_bytes: int) -> None:
        """Adopt the server's own page size, within the ring."""

    @property
    def end(self) -> tuple[int, _EndedBy] | None:
        """The accepted end, and what ended the stream."""

    @property
    def total(self) -> int | None:
        """The announced size, unless something refutes it."""

    @property
    def finished(self) -> bool:
        """True once every byte up to the accepted end has arrived."""

    @property
    def broken(
        self,
    ) -> (
        tuple[
            int, Literal["patience", "retry-after", "refused", "stagnant", "contradiction", "shrunken"], float
        ]
        | None
    ):
        """The first missing byte, why the stream breaks there, and an amount: the seconds that the server
        asks to wait, or the number of answers without a new byte; 0 otherwise.
        """

    def waited_seconds(self, now: float) -> float:
        """Return how long the reader has waited since the last progress."""

    def allowed_seconds(self) -> float:
        """Return the wait after which the stream breaks, if nothing more arrives: the reader's patience, or
        more if an answer has begun to arrive, which has its own timeout."""

    def can_play(
        self, now: float, in_hand_bytes: int, bytes_per_second: float, left_bytes: int | None
    ) -> bool:
        """Return whether audio may start or resume without a foreseeable stall.

        Args:
            in_hand_bytes: Audio in the ring, and decoded but not heard, in bytes of the stream.
            bytes_per_second: The rate at which the listener uses them.
            left_bytes: Bytes left to be heard, including those in hand. None: not known.
        """

    def statistics(self) -> PlannerStatistics:
        """Take a snapshot."""

@final
class VorbisStream:
    """Decodes Ogg Vorbis to 16-bit PCM, from its bytes in any pieces.

    Channels are in the order of WAV. The first and the last page trim the audio, as their times say. Streams
    that follow each other in a file (radio) are one if they have the same rate and channels. Damaged pages
    are skipped. It holds below 64 MiB, whatever the bytes; usual files take 1 MiB.
    """

    def __new__(cls) -> Self: ...
    @property
    def rate_hz(self) -> int | None:
        """Frames per second, 1 to 384000; None before the headers were decoded."""

    @property
    def channels(self) -> int | None:
        """1 to 8; None before the headers were decoded."""

    @property
    def nominal_bytes_per_second(self) -> int | None:
        """As the encoder announces it, 0 if it does not; None before the headers were decoded."""

    @property
    def audio_offset(self) -> int | None:
        """Offset of the first page of audio; None before the headers were decoded."""

    @property
    def serial(self) -> int | None:
        """The first logical stream with Vorbis; None before its headers were decoded."""

    @property
    def start(self) -> int | None:
        """Time of the first frame since the beginning or the last `restart`, in frames as the pages of the
        first logical stream state it; None before that frame."""

    @property
    def has_ended(self) -> bool:
        """The last page of the newest logical stream was decoded."""

    @property
    def decoded(self) -> tuple[int, int]:
        """Bytes of the packets that were decoded since the beginning or the last `restart`, and their frames:
        those returned, and those of the same page."""

    @property
    def lost_frames(self) -> int:
        """Frames that the pages' times count since the beginning or the last `restart`, and that were not
        decoded, because their pages are damaged or missing."""

    @property
    def page_bytes(self) -> int:
        """Size of the newest page, in bytes."""

    def feed(self, data: Buffer, /) -> None:
        """Take the next bytes.

        Raises:
            BufferError, TypeError: `data` has no contiguous bytes (yours).
        """

    def finish(self) -> None:
        """Nothing follows: what is left is decoded."""

    def decode(self, frames: int) -> bytes | None:
        """Return up to `frames` frames of interleaved samples, in the machine's byte order, as far as there
        are bytes; empty at the end, None before more bytes are fed. The first needs a whole page.

        The GIL is released.

        Raises:
            DecodeError: A header or a packet is damaged (the sender's fault). It comes after the audio before
                it, and again until `restart`.
            UnsupportedFormatError: The headers exceed a limit, or the next stream has another rate or other
                channels (the sender's fault).
        """

    def restart(self, offset: int) -> None:
        """Continue with a page of the first logical stream's audio, at `offset`, whose bytes are fed next.

        The first frame is then that of the page's second packet.

        Raises:
            DecodeError: The headers have not been decoded, or are damaged.
        """
