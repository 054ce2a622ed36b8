"""Dither through Python: the arithmetic is tested in Rust."""

from __future__ import annotations

import math
from array import array

import pytest

from playhead._core import Dither
from playhead.errors import UsageError


def test_equal_input_gives_equal_output_in_any_pieces() -> None:
    floats = array("f", (math.sin(index / 9) / 3 for index in range(5000)))
    whole = Dither().convert(floats)
    assert len(whole) == 2 * len(floats)
    assert whole == Dither().convert(floats.tobytes())
    dither = Dither()
    assert b"".join(dither.convert(floats[at : at + 333]) for at in range(0, 5000, 333)) == whole
    steps = [abs(sample - 32768 * value) for sample, value in zip(array("h", whole), floats, strict=True)]
    assert 0.5 < max(steps) < 1.5, "rounding errs by half a step, noise by one more"


def test_what_16_bits_hold_is_unchanged() -> None:
    samples = array("h", range(-32768, 32768, 7))
    assert Dither().convert(array("f", (sample / 32768 for sample in samples))) == samples.tobytes()


def test_half_a_sample_is_refused() -> None:
    with pytest.raises(UsageError, match="expected whole 32-bit samples, got 6 bytes"):
        Dither().convert(bytes(6))
