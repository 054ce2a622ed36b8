"""Arithmetic on text, safe to be given anything: a grammar of its own, decimal numbers, bounds on everything.

    expression = term   { ("+" | "-") term }
    term       = factor { ("*" | "/") factor }
    factor     = ("+" | "-") factor | power
    power      = operand [ ("**" | "^") factor ]          to the right: 2^3^2 is 2^9
    operand    = number | "(" expression ")"
    number     = digits [ "." digits ] [ "e" [sign] digits ] | "." digits …

No names, no calls, nothing of Python's is evaluated. Numbers are `decimal` with 34 digits (IEEE 754's
decimal128): 0.1 + 0.2 is 0.3, whole numbers are exact up to 34 digits, and since no number ever has more
digits or a larger exponent than that, no expression can take long or much memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from typing import Final, Literal

from playhead.errors import UsageError

MAX_CHARS: Final = 500
MAX_DEPTH: Final = 40
"""Parentheses, signs and powers within each other; Python's own stack would bear some hundreds."""
DIGITS: Final = 34
SHOWN_DIGITS: Final = 15
"""Of a number that is not whole. The other 19 hide the rounding on the way: 1 / 3 * 3 is 1."""
MAX_EXPONENT: Final = 308
"""As a double's, so that every result is a JSON number that each language can read."""

Operation = Literal["add", "subtract", "multiply", "divide", "power"]

_CONTEXT: Final = Context(
    prec=DIGITS,
    Emax=MAX_EXPONENT,
    Emin=-MAX_EXPONENT,
    traps=[DivisionByZero, InvalidOperation, Overflow],
)
_SYMBOLS: Final[dict[str, Operation]] = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "**": "power",
    "^": "power",
}
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<symbol>\*\*|[-+*/^()]))"
)


def evaluate(expression: str) -> Decimal:
    """The value of an expression, at most 34 digits.

    Raises:
        UsageError: it is no expression, too long or too deep, or has no value that can be given.
    """
    if len(expression) > MAX_CHARS:
        raise UsageError(f"the expression has {len(expression)} characters; {MAX_CHARS} are allowed")
    parser = _Parser(tokens=_tokens(expression))
    value = parser.expression(depth=0)
    parser.expect_end()
    return value


def calculate(operation: Operation, a: Decimal, b: Decimal) -> Decimal:
    """One operation.

    Raises:
        UsageError: division by zero, a result too large, or one that is no real number.
    """
    context = _CONTEXT.copy()  # a context holds flags, and so may not be shared
    try:
        match operation:
            case "add":
                return context.add(a, b)
            case "subtract":
                return context.subtract(a, b)
            case "multiply":
                return context.multiply(a, b)
            case "divide":
                return context.divide(a, b)
            case "power":
                # decimal's answer to a negative power of zero is an infinity, and no signal.
                return context.power(a, b) if a or b >= 0 else context.divide(Decimal(1), a)
    except DivisionByZero:
        raise UsageError(f"division by zero: {_told(operation, a, b)}") from None
    except Overflow:
        raise UsageError(
            f"the result of {_told(operation, a, b)} is too large; it must stay below 10^{MAX_EXPONENT + 1}"
        ) from None
    except InvalidOperation:
        if operation == "divide" or (operation == "power" and not a):
            raise UsageError(f"{_told(operation, a, b)} is not defined") from None
        raise UsageError(f"{_told(operation, a, b)} is no real number") from None


def decimal_of(number: float) -> Decimal:
    """A JSON number as people write it: 0.1 is 0.1, and not the double next to it.

    Raises:
        UsageError: it is larger than any result may be.
    """
    too_large = UsageError(f"a number is too large; it must stay below 10^{MAX_EXPONENT + 1}")
    try:
        value = _CONTEXT.copy().create_decimal(str(number))
    except (InvalidOperation, Overflow, ValueError):
        raise too_large from None
    if not value.is_finite():  # what Python's JSON makes of 1e999
        raise too_large
    return value


def shown(value: Decimal) -> str:
    """Whole numbers in full, others to 15 digits: `14`, `0.3`, `1.5e-20`."""
    if _is_whole(value):
        return str(int(value))
    rounded = Context(prec=SHOWN_DIGITS).plus(value)
    if _is_whole(rounded):
        return str(int(rounded))
    return f"{rounded.normalize():g}".replace("e+", "e")


def json_number(value: Decimal) -> int | float:
    """The same as a JSON number."""
    text = shown(value)
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def _is_whole(value: Decimal) -> bool:
    return value.adjusted() < DIGITS and value == value.to_integral_value()


def _told(operation: Operation, a: Decimal, b: Decimal) -> str:
    symbol = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "^"}[operation]
    return " ".join((_operand(a), symbol, _operand(b)))


def _operand(value: Decimal) -> str:
    return f"({shown(value)})" if value < 0 else shown(value)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    at: int
    """Its place in the expression, from 0; the length for the end, whose text is empty."""


def _tokens(expression: str) -> list[_Token]:
    found, at = [], 0
    end = len(expression.rstrip())
    while at < end:
        match = _TOKEN.match(expression, at)
        if match is None:
            at += len(expression[at:]) - len(expression[at:].lstrip())
            raise UsageError(
                f"unexpected {expression[at]!r} at character {at + 1}; "
                "expected numbers, + - * / ^ ** and parentheses"
            )
        kind = match.lastgroup or ""
        found.append(_Token(match[kind], match.start(kind)))
        at = match.end()
    return [*found, _Token("", len(expression))]


class _Parser:
    """Recursive descent; each method reads what the grammar's line of its name says."""

    def __init__(self, *, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def expression(self, depth: int) -> Decimal:
        value = self._term(depth)
        while (symbol := self._peek.text) in ("+", "-"):
            self._take()
            value = calculate(_SYMBOLS[symbol], value, self._term(depth))
        return value

    def expect_end(self) -> None:
        if self._peek.text:
            self._refuse("an operator")

    def _term(self, depth: int) -> Decimal:
        value = self._factor(depth)
        while (symbol := self._peek.text) in ("*", "/"):
            self._take()
            value = calculate(_SYMBOLS[symbol], value, self._factor(depth))
        return value

    def _factor(self, depth: int) -> Decimal:
        if depth > MAX_DEPTH:
            raise UsageError(f"the expression is nested too deep; {MAX_DEPTH} levels are allowed")
        if self._peek.text not in ("+", "-"):
            return self._power(depth)
        negative = self._take().text == "-"
        value = self._factor(depth + 1)
        return value.copy_negate() if negative and value else value

    def _power(self, depth: int) -> Decimal:
        base = self._operand(depth)
        if self._peek.text not in ("**", "^"):
            return base
        self._take()
        return calculate("power", base, self._factor(depth + 1))

    def _operand(self, depth: int) -> Decimal:
        token = self._peek
        if token.text == "(":
            self._take()
            value = self.expression(depth + 1)
            if self._peek.text != ")":
                self._refuse("a closing parenthesis")
            self._take()
            return value
        if not token.text or token.text in _SYMBOLS or token.text == ")":
            self._refuse("a number or an opening parenthesis")
        self._take()
        try:
            return _CONTEXT.copy().create_decimal(token.text)
        except (InvalidOperation, Overflow):
            raise UsageError(f"the number {token.text[:40]} is too large") from None

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek
        self._next += 1
        return token

    def _refuse(self, expected: str) -> None:
        token = self._peek
        came = f"{token.text!r} at character {token.at + 1}" if token.text else "the end"
        raise UsageError(f"expected {expected}, but came {came}")
