"""The tool `calculator` evaluates an expression, or one operation on two numbers. It is safe with any input.

    expression = number | "(" expression ")" | ("+" | "-") expression | expression operator expression
    operator   = "+" | "-" | "*" | "/" | "**" | "^"        precedence as in Python: 2^3^2 is 2^9, -2^2 is -4
    number     = digits [ "." digits ] [ "e" [sign] digits ] | "." digits …

`_tokens` checks the order of the tokens first, so that an error names its place. Then Python's own parser
applies the precedence, and `_evaluate_node` evaluates three kinds of nodes of its tree. No other kind can
occur: no token is a name that the caller wrote, a call or an attribute. Each number becomes a name, `_0`,
`_1` and so on, because Python's parser would make a double of it.

Numbers are `decimal` with 34 digits (IEEE 754's decimal128): 0.1 + 0.2 is 0.3, and whole numbers are exact up
to 34 digits. Digits and exponents are limited, so no expression can take long or much memory.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from typing import Final, Literal, NoReturn

import mcp_types as types
import trio

from playhead.errors import UsageError
from playhead.servers.template.tools import Arguments, TemplateTool, answer

MAX_CHARS: Final = 500
MAX_DEPTH: Final = 40
"""Limits nested parentheses, and nested signs and powers. Python's own stack would bear some hundreds."""
DIGITS: Final = 34
SHOWN_DIGITS: Final = 15
"""Limits the digits of a fraction that are shown. The other 19 hide intermediate rounding, so that 1 / 3 * 3
is 1."""
MAX_EXPONENT: Final = 308
"""Limits exponents to those of a double, so that every language can read a result as a JSON number."""
_TOO_LARGE: Final = f"it must stay below 10^{MAX_EXPONENT + 1}"

Operation = Literal["add", "subtract", "multiply", "divide", "power"]

_CONTEXT: Final = Context(
    prec=DIGITS,
    Emax=MAX_EXPONENT,
    Emin=-MAX_EXPONENT,
    traps=[DivisionByZero, InvalidOperation, Overflow],
)
_OPERATIONS: Final[dict[type[ast.operator], Operation]] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Pow: "power",
}
_SYMBOLS: Final = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "^"}
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<symbol>\*\*|[-+*/^()]))"
)

DEFINITION: Final = types.Tool(
    name="calculator",
    title="Calculator",
    description=(
        "Calculates with decimal numbers. Give either an expression, such as 2 + 3 * 4, "
        "or an operation and its two numbers."
    ),
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "expression": {
                "type": "string",
                "description": "Numbers, + - * / ^ (or **) and parentheses.",
                "minLength": 1,
                "maxLength": MAX_CHARS,
                "examples": ["2 + 3 * 4", "(1.5 - 0.5) / 4", "2 ^ 10"],
            },
            "operation": {
                "type": "string",
                "description": "The operation on a and b, in this order.",
                "enum": ["add", "subtract", "multiply", "divide", "power"],
                "examples": ["multiply"],
            },
            "a": {
                "type": "number",
                "description": "The first number; of power, the base.",
                "examples": [6],
            },
            "b": {
                "type": "number",
                "description": "The second number; of power, the exponent.",
                "examples": [7],
            },
        },
        # A call with both forms would be ambiguous.
        "oneOf": [
            {"required": ["expression"], "maxProperties": 1},
            {"required": ["operation", "a", "b"]},
        ],
        "maxProperties": 3,
        "additionalProperties": False,
        "examples": [{"expression": "2 + 3 * 4"}, {"operation": "multiply", "a": 6, "b": 7}],
    },
    output_schema={
        "type": "object",
        "properties": {
            "result": {
                "type": "number",
                "description": "Whole numbers exactly up to 34 digits, others to 15 digits.",
            }
        },
        "required": ["result"],
        "additionalProperties": False,
    },
    annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
)


async def calculator(arguments: Arguments) -> types.CallToolResult:
    """Calculate. Raises `UsageError` if the result does not exist or is too large."""
    await trio.lowlevel.checkpoint()
    if "expression" in arguments:
        value = evaluate(arguments["expression"])
    else:
        a, b = decimal_of(arguments["a"]), decimal_of(arguments["b"])
        value = calculate(arguments["operation"], a, b)
    return answer(shown(value), {"result": json_number(value)})


CALCULATOR: Final = TemplateTool(definition=DEFINITION, run=calculator)


def evaluate(expression: str) -> Decimal:
    """Evaluate an expression, to at most 34 digits.

    Raises:
        UsageError: it is malformed, too long or too deep, or its value does not exist or is too large.
    """
    if len(expression) > MAX_CHARS:
        raise UsageError(f"the expression has {len(expression)} characters; {MAX_CHARS} are allowed")
    numbers: list[Decimal] = []
    source: list[str] = []
    for token in _tokens(expression):
        if token["number"]:
            source.append(f"_{len(numbers)}")
            numbers.append(_parse_number(token["number"]))
        else:
            source.append("**" if token["symbol"] == "^" else token["symbol"])
    return _evaluate_node(ast.parse(" ".join(source), mode="eval").body, numbers, depth=0)


def calculate(operation: Operation, a: Decimal, b: Decimal) -> Decimal:
    """Carry out one operation.

    Raises:
        UsageError: division by zero, a result that is too large, or not a real number.
    """
    context = _CONTEXT.copy()  # its flags change, so it may not be shared
    try:
        if operation == "power" and not a and b < 0:
            # decimal's answer to a negative power of zero is an infinity, without a signal.
            return context.divide(Decimal(1), a)
        result: Decimal = getattr(context, operation)(a, b)
    except DivisionByZero:
        raise UsageError(f"division by zero: {_as_text(operation, a, b)}") from None
    except Overflow:
        raise UsageError(f"the result of {_as_text(operation, a, b)} is too large; {_TOO_LARGE}") from None
    except InvalidOperation:
        undefined = operation == "divide" or (operation == "power" and not a)
        reason = "is not defined" if undefined else "is not a real number"
        raise UsageError(f"{_as_text(operation, a, b)} {reason}") from None
    return result


def decimal_of(number: float) -> Decimal:
    """Convert a JSON number as people write it: 0.1 is 0.1, not the double next to it.

    Raises:
        UsageError: it is larger than any result may be.
    """
    too_large = UsageError(f"a number is too large; {_TOO_LARGE}")
    try:
        value = _CONTEXT.copy().create_decimal(str(number))
    except (InvalidOperation, Overflow, ValueError):
        raise too_large from None
    if not value.is_finite():  # Python's JSON makes an infinity of 1e999
        raise too_large
    return value


def shown(value: Decimal) -> str:
    """Format whole numbers in full, others to 15 digits: `14`, `0.3`, `1.5e-20`."""
    if _is_whole(value):
        return str(int(value))
    rounded = Context(prec=SHOWN_DIGITS).plus(value)
    if _is_whole(rounded):
        return str(int(rounded))
    return f"{rounded.normalize():g}".replace("e+", "e")


def json_number(value: Decimal) -> int | float:
    """Return the number that `shown` formats, for JSON."""
    text = shown(value)
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def _is_whole(value: Decimal) -> bool:
    return value.adjusted() < DIGITS and value == value.to_integral_value()


def _as_text(operation: Operation, a: Decimal, b: Decimal) -> str:
    left, right = (f"({shown(value)})" if value < 0 else shown(value) for value in (a, b))
    return f"{left} {_SYMBOLS[operation]} {right}"


def _parse_number(text: str) -> Decimal:
    try:
        return _CONTEXT.copy().create_decimal(text)
    except (InvalidOperation, Overflow):
        raise UsageError(f"the number {text[:40]} is too large") from None


def _tokens(expression: str) -> list[re.Match[str]]:
    """Return the tokens. Raises `UsageError` if their order is not that of an expression."""
    tokens: list[re.Match[str]] = []
    at, open_parentheses, wants_operand = 0, 0, True
    while at < len(expression.rstrip()):
        token = _TOKEN.match(expression, at)
        if token is None:
            at += len(expression[at:]) - len(expression[at:].lstrip())
            raise UsageError(
                f"unexpected {expression[at]!r} at character {at + 1}; "
                "expected numbers, + - * / ^ ** and parentheses"
            )
        symbol, at = token["symbol"], token.end()
        if symbol in (None, "("):
            if not wants_operand:
                _refuse(open_parentheses, wants_operand=False, token=token)
            wants_operand = symbol == "("
            if symbol == "(":
                open_parentheses += 1
        elif symbol == ")":
            if wants_operand or not open_parentheses:
                _refuse(open_parentheses, wants_operand=wants_operand, token=token)
            open_parentheses -= 1
        else:
            if wants_operand and symbol not in "+-":
                _refuse(open_parentheses, wants_operand=True, token=token)
            wants_operand = True
        if open_parentheses > MAX_DEPTH:
            _too_deep()
        tokens.append(token)
    if wants_operand or open_parentheses:
        _refuse(open_parentheses, wants_operand=wants_operand, token=None)
    return tokens


def _refuse(open_parentheses: int, *, wants_operand: bool, token: re.Match[str] | None) -> NoReturn:
    if wants_operand:
        expected = "a number or an opening parenthesis"
    else:
        expected = "a closing parenthesis" if open_parentheses else "an operator"
    got = "the end"
    if token is not None:
        kind = token.lastgroup or ""
        got = f"{token[kind]!r} at character {token.start(kind) + 1}"
    raise UsageError(f"expected {expected}, got {got}")


def _too_deep() -> NoReturn:
    raise UsageError(f"the expression is nested too deep; {MAX_DEPTH} levels are allowed")


def _evaluate_node(node: ast.expr, numbers: Sequence[Decimal], *, depth: int) -> Decimal:
    if depth > MAX_DEPTH:
        _too_deep()
    match node:
        case ast.Name(id=name):
            return numbers[int(name[1:])]
        case ast.UnaryOp(op=sign, operand=operand):
            value = _evaluate_node(operand, numbers, depth=depth + 1)
            return value.copy_negate() if isinstance(sign, ast.USub) and value else value
        case ast.BinOp(left=left, op=operator, right=right):
            right_depth = depth + 1 if isinstance(operator, ast.Pow) else depth
            return calculate(
                _OPERATIONS[type(operator)],
                _evaluate_node(left, numbers, depth=depth),
                _evaluate_node(right, numbers, depth=right_depth),
            )
    raise AssertionError(f"the tokens allow no {type(node).__name__}")
