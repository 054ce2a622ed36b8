"""A resource of any size whose bytes nobody has to keep: a random block, repeated.

The block's length is odd, so that no two pages of a power-of-two grid are alike, and a multiple of three,
so that its base64 repeats too: a page is then two slices of text, and the server's own CPU stays small
beside what a benchmark measures (a 1 GiB resource costs three encoded blocks).
"""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Iterator
from functools import lru_cache

BLOCK_BYTES = 2 * 1024 * 1024 + 1
"""2,097,153: odd, and divisible by three."""

assert BLOCK_BYTES % 3 == 0


class Payload:
    """`size_bytes` bytes that follow from `seed`, with an optional literal `prefix` (a file's header)."""

    def __init__(self, *, size_bytes: int, seed: int = 0, prefix: bytes = b"") -> None:
        self.size_bytes = size_bytes
        self._prefix = prefix
        self._block = random.Random(seed).randbytes(BLOCK_BYTES)
        self._doubled = self._block * 2
        self._phase = lru_cache(maxsize=3)(self._encode_phase)

    def slice(self, start: int, end: int) -> bytes:
        """The bytes of `[start, end)`, cut at the end of the resource."""
        end = min(end, self.size_bytes)
        if start >= end:
            return b""
        head = self._prefix[start:end]
        low, left = max(start - len(self._prefix), 0) % BLOCK_BYTES, end - start - len(head)
        parts = [head]
        while left > 0:
            part = self._doubled[low : low + min(left, BLOCK_BYTES)]
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def base64(self, start: int, end: int) -> str:
        """The base64 of `slice(start, end)`, cut out of text encoded once."""
        end = min(end, self.size_bytes)
        n_bytes = end - start
        low = start - len(self._prefix)
        if low < 0 or not 3 <= n_bytes <= BLOCK_BYTES:
            return base64.b64encode(self.slice(start, end)).decode("ascii")
        whole = n_bytes // 3
        first = low // 3 % (BLOCK_BYTES // 3)
        text = self._phase(low % 3)[first * 4 : (first + whole) * 4]
        if n_bytes % 3:
            text += base64.b64encode(self.slice(end - n_bytes % 3, end)).decode("ascii")
        return text

    def chunks(self, chunk_bytes: int = 1 << 20) -> Iterator[bytes]:
        for start in range(0, self.size_bytes, chunk_bytes):
            yield self.slice(start, start + chunk_bytes)

    def sha256(self) -> str:
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
        return digest.hexdigest()

    def _encode_phase(self, phase: int) -> str:
        # A slice of at most one block never leaves two periods.
        turned = self._block[phase:] + self._block[:phase]
        return base64.b64encode(turned).decode("ascii") * 2


class FilePayload(Payload):
    """The bytes of a real file, held whole: for music, not for gibibytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(size_bytes=len(data))
        self._data = data

    def slice(self, start: int, end: int) -> bytes:
        return self._data[start:end]

    def base64(self, start: int, end: int) -> str:
        return base64.b64encode(self._data[start:end]).decode("ascii")
