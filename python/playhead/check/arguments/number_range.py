"""`Range`: the numbers that a schema allows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from playhead.content.schema_shapes import NoValueError, Shape, types_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The numbers that a shape allows, both ends included; None is unbounded."""

    lower: int | float | None
    upper: int | float | None
    whole: bool
    step: int | float | None

    @classmethod
    def of(cls, shape: Shape) -> Range:
        whole = "integer" in types_of(shape) and "number" not in types_of(shape)
        above, below = number(shape, "exclusiveMinimum"), number(shape, "exclusiveMaximum")
        inset: float = 1
        if not whole and above is not None and below is not None:
            inset = min(1.0, abs(below - above) / 4)
        lowers = [number(shape, "minimum"), None if above is None else _after(above, inset, whole=whole)]
        uppers = [number(shape, "maximum"), None if below is None else -_after(-below, inset, whole=whole)]
        step = number(shape, "multipleOf")
        lower = max((it for it in lowers if it is not None), default=None)
        upper = min((it for it in uppers if it is not None), default=None)
        if whole:
            lower = None if lower is None else math.ceil(lower)
            upper = None if upper is None else math.floor(upper)
        return cls(lower=lower, upper=upper, whole=whole, step=step if step and step > 0 else None)

    def fit(self, wanted: int | float) -> int | float:
        """Return the allowed number nearest to `wanted`. Raises `NoValueError` if none is found."""
        value = wanted
        if self.lower is not None:
            value = max(value, self.lower)
        if self.upper is not None:
            value = min(value, self.upper)
        if self.step is not None and value % self.step:
            value = math.ceil(value / self.step) * self.step
            if self.upper is not None and value > self.upper:
                value = math.floor(self.upper / self.step) * self.step
        if self.whole and value != int(value):
            value = math.ceil(value)
        if (self.lower is not None and value < self.lower) or (self.upper is not None and value > self.upper):
            raise NoValueError(f"no number from {self.lower} to {self.upper}")
        return int(value) if self.whole else value


def number(shape: Shape, key: str) -> int | float | None:
    """Return the number of a keyword, or None."""
    value = shape.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def _after(value: int | float, inset: float, *, whole: bool) -> int | float:
    """Return a number that is greater than `value`."""
    return math.floor(value) + 1 if whole else value + inset
