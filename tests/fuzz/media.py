"""Damaged media through the decoders of the player: `python -m tests.fuzz.media mp3 --count 10000`.

Small real files are changed as files break, or are made to break, and decoded as the player does, with seeks.
A file fails if the process dies or hangs, holds more than 400 MB, takes more CPU than 2 s and 2 s per second
of audio, prints, or ends with an error that is not of playback or does not name the file. Files and seeks are
decided by the seed and their number, so the parent makes the file of a dead worker again. Failing files are
left in build/fuzz/media; `--replay FILE` decodes them once more. The status is 1 if one failed.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import re
import resource
import select
import signal
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import trio

import playhead.playback.av_decoder  # noqa: F401  # now, and not in each worker
from playhead.errors import ClosedError, PlaybackError
from playhead.playback.decoder import PcmDecoder
from playhead.playback.decoder_thread import DecoderThread, SeekRequest
from playhead.playback.formats import PcmFormat
from playhead.stream.source import BytesReader
from playhead.testing.media import ScriptedMedia
from tests.fuzz.media_samples import FORMATS, seal_ogg

OUT: Final = Path("build/fuzz/media")
TITLE: Final = "The piece of the test"
MOST_BYTES: Final = 400 << 20
MOST_SECONDS: Final = 2.0
MOST_AUDIO_SECONDS: Final = 10.0
STUCK_SECONDS: Final = 60.0
KINDS: Final = ("crashed", "large", "slow", "untyped", "unnamed", "printed")

# --- damage ----------------------------------------------------------------------------------------------

MARK: Final = re.compile(
    rb"OggS|fLaC|OpusHead|vorbis|RIFF|fmt |fact|data|Xing|Info|VBRI|LAME|Lav[cf]|ID3|ftyp|moov|mvhd|trak|tkhd"
    rb"|edts|elst|mdia|mdhd|minf|stbl|st(?:sd|ts|sc|sz|co)|ctts|esds|mp4a|alac|udta|meta|ilst|mvex|trex|moof"
    rb"|traf|tf(?:hd|dt)|trun|sidx|sgpd|mdat|\x1a\x45\xdf\xa3|\x18\x53\x80\x67|\x15\x49\xa9\x66|\x16\x54\xae\x6b"
    rb"|\x1f\x43\xb6\x75|\x1c\x53\xbb\x6b|\x63\xa2|\xa3.\x81|\xa0.\xa1|\x56\xaa|\x56\xbb|\xff[\xe2-\xfb]",
    re.DOTALL,
)
"""The beginnings of headers: chunks, boxes (their sizes are just before), EBML elements, pages and frames."""
SMALL: Final = (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 100, 127, 1000)
INTERESTING: Final = (
    *SMALL,
    *((1 << bits) - below for bits in (8, 12, 15, 16, 24, 31, 32, 63, 64) for below in (0, 1)),
)


class Mutator:
    """Damaged files of one format; each is decided by the seed and its number."""

    def __init__(self, name: str, seed: int) -> None:
        self._samples = list(FORMATS[name][1]())
        self._marks = [[found.start() for found in MARK.finditer(sample)] for sample in self._samples]
        self._seed = f"{name}/{seed}/"

    def file(self, number: int) -> bytes:
        draw = random.Random(self._seed + str(number))
        which = draw.randrange(len(self._samples))
        data = bytearray(self._samples[which])
        for _change in range(draw.choice((1, 1, 1, 2, 3, 5, 12))):
            self._change(draw, data, self._marks[which])
        if draw.random() < 0.5:
            seal_ogg(data)
        return bytes(data)

    def _change(self, draw: random.Random, data: bytearray, marks: list[int]) -> None:
        if not data:
            return
        at, size = self._place(draw, len(data), marks), min(len(data), 1 << draw.randrange(11))
        kind = draw.randrange(16)
        if kind < 4:
            data[at] ^= 1 << draw.randrange(8)
        elif kind < 7:
            data[at] = draw.randrange(256)
        elif kind < 11:
            width = draw.choice((1, 2, 3, 4, 4, 8))
            value = draw.choice((*INTERESTING, len(data), draw.getrandbits(8 * width))) + draw.choice(
                (0, 0, -1, 1)
            )
            order = draw.choice(("big", "big", "little"))
            data[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, order)  # type: ignore[arg-type]
        elif kind == 11:
            del data[at : at + size]
        elif kind == 12:
            data[at:at] = data[at : at + size] * draw.choice((1, 1, 2, 30 if size < 128 else 1))
        elif kind == 13:
            other = draw.randrange(len(data))
            data[at : at + size], data[other : other + size] = (
                data[other : other + size],
                data[at : at + size],
            )
        elif kind == 14:
            del data[at if draw.random() < 0.7 else draw.randrange(len(data)) :]
        else:
            other_file = draw.choice(self._samples)
            begin = draw.randrange(len(other_file))
            data[at : at + size if draw.random() < 0.5 else None] = other_file[begin : begin + 4 * size]

    @staticmethod
    def _place(draw: random.Random, size: int, marks: list[int]) -> int:
        chance = draw.random()
        if chance < 0.55 and marks:
            return min(size - 1, max(0, draw.choice(marks) + draw.randrange(-4, 28)))
        return draw.randrange(min(size, 120) if chance < 0.75 else size)


# --- one file --------------------------------------------------------------------------------------------


class Once(BytesReader):
    """A reader of a source that cannot seek."""

    seekable = False
    buffered_range = 0, 0
    size_bytes = None


class Listener:
    """A `PcmBuffer` that drops the audio and wants seeks in between."""

    held = closed = False
    format: PcmFormat

    def __init__(self, decoding: DecoderThread, draw: random.Random) -> None:
        self._decoding, self._draw = decoding, draw
        self._seeks = [draw.randrange(6) for _seek in range(2)] if draw.random() < 0.4 else []
        self.requests: list[SeekRequest] = []
        self.seconds = 0.0

    def opened(self, decoder: PcmDecoder) -> Any:
        self.format = decoder.format
        return self

    def write(self, pcm: memoryview) -> None:
        self.seconds += len(pcm) / self.format.bytes_per_second
        if self._draw.random() < 0.2:
            self.want_seek()
        if self.seconds >= MOST_AUDIO_SECONDS:
            self.closed = True
            raise ClosedError

    def want_seek(self) -> bool:
        if not self._seeks or self.closed:
            return False
        seconds = self._draw.random() * 0.08 * 2 ** self._seeks.pop()
        self.requests.append(SeekRequest(seconds=seconds))
        self._decoding.request(self.requests[-1])
        return True

    def wait_room(self, _size: int) -> bool:
        return True

    def seek(self, _frame: int) -> bool:
        return True

    def finish(self, _error: Exception | None = None) -> None: ...


def decode(name: str, data: bytes) -> tuple[float, str | None, str]:
    """Decode as the player does. Return the seconds of audio, the kind of failure, if any, and the error."""
    draw = random.Random(zlib.crc32(data))
    reader = (Once if draw.random() < 0.2 else BytesReader)(data)
    media = ScriptedMedia(
        reader=reader,
        title=TITLE,
        mime_type=draw.choice((None, FORMATS[name][0])),
        size_bytes=draw.choice((None, len(data))),
    )
    rate_hz, channels = draw.choice(((None, None),) * 9 + ((48_000, 2),))
    decoding = DecoderThread(media, reader, rate_hz=rate_hz, channels=channels)
    listener = Listener(decoding, draw)
    errors: list[Exception] = []
    try:
        decoding.run(listener.opened)
        while listener.want_seek():
            decoding.run(listener.opened)
    except Exception as error:  # noqa: BLE001  # the untyped ones are looked for
        errors.append(error)
    errors += [request.error for request in listener.requests if request.error is not None]
    decoding.close()
    kind, text = None, ""
    for got in errors:
        text = f"{type(got).__name__}: {got}"
        if not isinstance(got, PlaybackError):
            kind, text = "untyped", "".join(traceback.format_exception(got, limit=-4))
        elif TITLE not in text:
            kind = "unnamed"
    return listener.seconds, kind, text


def judge(name: str, data: bytes, printed: int) -> tuple[float, str | None, str]:
    """As `decode`, with its cost and what it prints to file descriptor 2, which has `printed` bytes."""
    began = time.process_time()
    seconds, kind, text = decode(name, data)
    spent = time.process_time() - began
    if spent > MOST_SECONDS + MOST_SECONDS * seconds:
        kind, text = "slow", f"{spent:.1f} s of CPU for {seconds:.1f} s of audio, {text}"
    elif peak_bytes() > MOST_BYTES:
        kind, text = "large", f"{peak_bytes() >> 20} MB, {text}"
    elif kind is None and os.fstat(2).st_size > printed:
        kind, text = "printed", os.pread(2, 2000, printed).decode(errors="replace")
    return seconds, kind, text


def peak_bytes() -> int:
    """The largest resident memory of this process since its fork."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


# --- many files ------------------------------------------------------------------------------------------


class Tally:
    """Counts of a run, in memory that the workers share with their parent."""

    FIELDS: Final = ("number", "files", "errors", "seconds", "peak")

    def __init__(self) -> None:
        self._memory = memoryview(mmap.mmap(-1, 4096)).cast("d")

    def __getitem__(self, field: str) -> float:
        return self._memory[self.FIELDS.index(field)]

    def __setitem__(self, field: str, value: float) -> None:
        self._memory[self.FIELDS.index(field)] = value


class Run:
    """The files of one format, in one worker after the other: the next one when it dies, hangs or grows."""

    def __init__(self, name: str, *, seed: int, files: list[bytes] | None = None) -> None:
        self._name, self._seed = name, seed
        self._is_replay = files is not None
        self._file: Callable[[int], bytes] = Mutator(name, seed).file if files is None else files.__getitem__
        self.tally, self.failures = Tally(), Counter[str]()

    def run(self, count: int) -> None:
        while (number := int(self.tally["number"])) < count:
            reader, writer = os.pipe()
            errors = os.memfd_create("stderr")
            worker = os.fork()
            if worker == 0:
                os.dup2(errors, 2)
                trio.run(self._work, number, count, writer)
                os._exit(0)
            os.close(writer)
            self._watch(worker, reader, errors)
            os.close(reader)
            os.close(errors)

    async def _work(self, first: int, count: int, writer: int) -> None:
        tally, printed = self.tally, 0
        for number in range(first, count):
            tally["number"] = number
            seconds, kind, text = judge(self._name, self._file(number), printed)
            tally["files"] += 1
            tally["errors"] += bool(text)
            tally["seconds"] += seconds
            tally["peak"] = max(tally["peak"], peak_bytes())
            printed = os.fstat(2).st_size
            if kind is not None or self._is_replay:
                line = f"{number} {kind or 'fine'} {text}".replace("\n", "\\n").encode()[:3000]
                os.write(writer, line + b"\n")
            tally["number"] = number + 1
            await trio.lowlevel.checkpoint()  # the answers to seeks
            if kind == "large":
                break  # the next worker is small

    def _watch(self, worker: int, reader: int, errors: int) -> None:
        """Take what the worker writes until it ends, and count its death as a failure of its file."""
        last, since, rest = -1.0, time.monotonic(), b""
        while True:
            if select.select([reader], [], [], 1.0)[0]:
                if not (got := os.read(reader, 1 << 16)):
                    break
                *lines, rest = (rest + got).split(b"\n")
                for line in lines:
                    at, kind, text = line.decode(errors="replace").split(" ", 2)
                    self._note(int(at), kind, text)
            if self.tally["number"] != last:
                last, since = self.tally["number"], time.monotonic()
            elif time.monotonic() - since > STUCK_SECONDS:
                os.kill(worker, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        if status != 0:
            number = int(self.tally["number"])
            said = os.pread(errors, 8000, max(0, os.fstat(errors).st_size - 8000)).decode(errors="replace")
            self._note(number, "crashed", f"status {status}, {said}")
            self.tally["files"] += 1
            self.tally["number"] += 1

    def _note(self, number: int, kind: str, text: str) -> None:
        if self._is_replay:
            print(f"{self._name} {number} {kind}: {text}", flush=True)
        self.failures[kind] += kind in KINDS
        if kind in KINDS and not self._is_replay and self.failures[kind] <= 100:
            OUT.mkdir(parents=True, exist_ok=True)
            path = OUT / f"{self._name}-{kind}-{self._seed}-{number}"
            path.write_bytes(self._file(number))
            print(f"{path}: {text.replace(chr(92) + 'n', chr(10))}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.media", description=__doc__)
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("--count", type=int, default=1000, help="the files to make (default: 1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--replay", type=Path, nargs="+", metavar="FILE", help="decode these files and no others"
    )
    options = parser.parse_args()
    files = None if options.replay is None else [path.read_bytes() for path in options.replay]
    run = Run(options.format, seed=options.seed, files=files)
    began = time.monotonic()
    run.run(options.count if files is None else len(files))
    tally, seconds = run.tally, time.monotonic() - began
    failures = ", ".join(f"{run.failures[kind]} {kind}" for kind in KINDS)
    print(
        f"{options.format}: {tally['files']:.0f} files, {failures}, {tally['seconds']:.0f} s of audio, "
        f"{tally['errors']:.0f} ended with an error, {tally['files'] / seconds:.0f} files per second, "
        f"largest peak {tally['peak'] / (1 << 20):.0f} MB"
    )
    return 1 if run.failures.total() else 0


if __name__ == "__main__":
    sys.exit(main())
