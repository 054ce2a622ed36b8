"""What is asked of every tool call."""

from __future__ import annotations

from typing import Final

from playhead.check.probes.asking import SPECIFICATION
from playhead.check.results import CheckKind

TOOLS: Final = f"{SPECIFICATION}/server/tools"
SCHEMA: Final = f"{SPECIFICATION}/schema#calltoolresult"

ANSWERED: Final = CheckKind(
    name="tools.call-answered",
    title="A call is answered by a result or a JSON-RPC error",
    level="must",
    source=f"{SPECIFICATION}/basic#responses",
)
DEADLINE: Final = CheckKind(
    name="tools.deadline",
    title="A call is answered, or shows progress, within the time allowed",
    level="should",
    source="docs/check.md#tools",
)
SURVIVES: Final = CheckKind(
    name="tools.survives",
    title="No call ends the server or its connection",
    level="must",
    source="docs/check.md#tools",
)
SIZE: Final = CheckKind(
    name="tools.size",
    title="A result is within the limits of a client",
    level="should",
    source="docs/safety.md",
)
RESULT: Final = CheckKind(
    name="tools.result",
    title="A result has a list of content, and isError is a boolean",
    level="must",
    source=SCHEMA,
)
CONTENT: Final = CheckKind(
    name="tools.content",
    title="Each block of content is what the negotiated revision says of its type",
    level="must",
    source=f"{TOOLS}#tool-result",
)
IMAGE: Final = CheckKind(
    name="tools.image",
    title="The bytes of an image are of the format that its MIME type names",
    level="must",
    source=f"{TOOLS}#image-content",
)
OUTPUT: Final = CheckKind(
    name="tools.structured-content",
    title="A tool with an outputSchema gives structured content that conforms to it",
    level="must",
    source=f"{TOOLS}#output-schema",
)
STRUCTURED_TEXT: Final = CheckKind(
    name="tools.structured-text",
    title="Structured content is given as text too, for clients that read only text",
    level="should",
    source=f"{TOOLS}#structured-content",
)
NO_ARGUMENTS: Final = CheckKind(
    name="tools.without-arguments",
    title="A call that needs no arguments may leave `arguments` out",
    level="should",
    source=f"{SPECIFICATION}/schema#calltoolrequestparams",
)
REFUSED: Final = CheckKind(
    name="tools.invalid-refused",
    title="Arguments that break the inputSchema are answered with an error",
    level="must",
    source=f"{TOOLS}#security-considerations",
)
ERROR_CODE: Final = CheckKind(
    name="tools.error-code",
    title="A JSON-RPC error has the code of what is wrong",
    level="must",
    source=f"{TOOLS}#error-handling",
)
EXPECTED_OUTCOME: Final = CheckKind(
    name="tools.expected-outcome",
    title="A call succeeds or fails as the expectations file says",
    level="must",
    source="docs/check.md#expectations",
)
EXPECTED_CONTENT: Final = CheckKind(
    name="tools.expected-content",
    title="A result has the types of content that the expectations file names",
    level="must",
    source="docs/check.md#expectations",
)
EXPECTED_TEXT: Final = CheckKind(
    name="tools.expected-text",
    title="The texts of a result match the patterns of the expectations file",
    level="must",
    source="docs/check.md#expectations",
)
EXPECTED_LATENCY: Final = CheckKind(
    name="tools.expected-latency",
    title="A call is answered as soon as the expectations file asks for",
    level="must",
    source="docs/check.md#expectations",
)
CONCURRENT: Final = CheckKind(
    name="tools.concurrent",
    title="Calls under way at once are each answered, with their own result",
    level="must",
    source=f"{SPECIFICATION}/basic#responses",
)
CANCELLED: Final = CheckKind(
    name="tools.cancelled",
    title="A cancelled call is not answered with its result",
    level="should",
    source=f"{SPECIFICATION}/basic/utilities/cancellation#behavior-requirements",
)
CANCEL_SURVIVES: Final = CheckKind(
    name="tools.cancel-survives",
    title="The server goes on after a cancellation",
    level="must",
    source="docs/check.md#tools",
)

KINDS: Final = (
    ANSWERED,
    DEADLINE,
    SURVIVES,
    SIZE,
    RESULT,
    CONTENT,
    IMAGE,
    OUTPUT,
    STRUCTURED_TEXT,
    NO_ARGUMENTS,
    REFUSED,
    ERROR_CODE,
    EXPECTED_OUTCOME,
    EXPECTED_CONTENT,
    EXPECTED_TEXT,
    EXPECTED_LATENCY,
    CONCURRENT,
    CANCELLED,
    CANCEL_SURVIVES,
)
