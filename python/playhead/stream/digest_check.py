"""The comparison of a stream's bytes with the announced digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from playhead.errors import DigestError

if TYPE_CHECKING:
    from typing_extensions import Buffer


class DigestCheck:
    """Compares the SHA-256 of a stream that was read as a whole with the one that its source announced.

    Bytes are hashed in order. If the reader skips some, hashing stops until it seeks back to them.
    """

    def __init__(self, expected: Callable[[], str | None]) -> None:
        """`expected` returns the announced digest in hexadecimal, or None. It is final once the first byte
        can be read."""
        self._find = expected
        self._expected: str | None = None
        self._has_begun = False
        self._hash = hashlib.sha256()
        self._hashed_bytes = 0

    @property
    def expected(self) -> str | None:
        return self._find()

    def read(self, offset: int, data: Buffer) -> None:
        """Hash `data`, which was read at `offset`. Empty `data` means the end.

        Raises `DigestError` at the end if the digests differ.
        """
        if not self._has_begun:
            self._has_begun, self._expected = True, self._find()
        expected = self._expected
        if expected is None:
            return
        view = memoryview(data).cast("B")
        end = offset + len(view)
        if offset <= self._hashed_bytes < end:
            self._hash.update(view[self._hashed_bytes - offset :])
            self._hashed_bytes = end
        elif not view and offset == self._hashed_bytes and (digest := self._hash.hexdigest()) != expected:
            raise DigestError(
                f"expected {offset} bytes with the SHA-256 {expected}, got {digest}: the file is damaged, or"
                " not the one that was announced; read it again, or report it to the server's author",
                offset=offset,
                expected=expected,
                got=digest,
            )
