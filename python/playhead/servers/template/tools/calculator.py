"""`calculator`: an expression, or one operation on two numbers."""

from __future__ import annotations

from typing import Final

import mcp_types as types
import trio

from playhead.servers.template.tools import grammar
from playhead.servers.template.tools.kit import Arguments, TemplateTool, answer

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
                "maxLength": grammar.MAX_CHARS,
                "examples": ["2 + 3 * 4", "(1.5 - 0.5) / 4", "2 ^ 10"],
            },
            "operation": {
                "type": "string",
                "description": "What to do with a and b, in this order.",
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
        # One of the two ways, and nothing of the other beside it: a call means one thing.
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
    """Raises `UsageError` where there is no result that could be given."""
    await trio.lowlevel.checkpoint()
    if "expression" in arguments:
        value = grammar.evaluate(arguments["expression"])
    else:
        a, b = grammar.decimal_of(arguments["a"]), grammar.decimal_of(arguments["b"])
        value = grammar.calculate(arguments["operation"], a, b)
    return answer(grammar.shown(value), {"result": grammar.json_number(value)})


CALCULATOR: Final = TemplateTool(definition=DEFINITION, run=calculator)
