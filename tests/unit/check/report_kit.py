"""Reports made by hand: a small one with every verdict, one of a hostile server, a long one, an empty one."""

from __future__ import annotations

import base64
import io
from typing import Final

from playhead.check.baseline import Triage
from playhead.check.catalogue import CheckKind, Level
from playhead.check.results import (
    MOST_SAMPLE_BYTES,
    Json,
    LoadFigures,
    Report,
    TestDraft,
    TestResult,
)
from tests.servers.wave import write_wave

SPECIFICATION: Final = "https://modelcontextprotocol.io/specification/2025-11-25/server"


def kind(
    name: str, title: str, *, level: Level = "must", source: str = f"{SPECIFICATION}/tools"
) -> CheckKind:
    return CheckKind(name=name, title=title, level=level, source=source)


HANDSHAKE: Final = kind("connection.handshake", "`initialize` is answered with a version that is known")
SCHEMA: Final = kind("tools.structured-content", "`structuredContent` keeps to the tool's `outputSchema`")
CONTENT: Final = kind("tools.content", "Every block of content is one that the protocol has")
ERROR_DUE: Final = kind(
    "tools.error-due", "Arguments that break the `inputSchema` are answered with an error"
)
LATENCY: Final = kind("tools.latency", "The answer comes within the deadline", level="should")
CALLED: Final = kind("tools.called", "The tool may be called", source="docs/check.md")
PAGES: Final = kind("resources.pages", "Pages hold what a whole read holds", source="docs/streaming.md")


def call(tool: str, title: str, arguments: Json, output: Json = None, latency_ms: float = 12.5) -> TestDraft:
    return TestDraft(
        subject=f"tool {tool}",
        title=title,
        tool=tool,
        method="tools/call",
        input={"name": tool, "arguments": arguments},
        output=output,
        latency_ms=latency_ms,
    )


def report(*tests: TestResult, **changes: object) -> Report:
    fields: dict[str, object] = {
        "server": "http://127.0.0.1:8000/mcp",
        "server_name": "weather",
        "server_version": "1.4.2",
        "protocol_version": "2025-11-25",
        "depth": "full",
        "seed": 7,
        "started_at": "2026-11-22T04:40:00Z",
        "seconds": 14.25,
        "mcp_service_status": "available",
        "tools": ("forecast", "forget", "lookup"),
        "proven": ("forecast",),
        "tests": tests,
    }
    return Report(**(fields | changes))  # type: ignore[arg-type]  # named where they are given


def small() -> Report:
    """Nine rows, every verdict among them."""
    hello = TestDraft(
        subject="connection",
        title="initialize",
        method="initialize",
        input={"protocolVersion": "2025-11-25", "capabilities": {}},
        output={"protocolVersion": "2025-11-25", "serverInfo": {"name": "weather", "version": "1.4.2"}},
        latency_ms=41.25,
    )
    hello.passed(HANDSHAKE)
    least = call(
        "forecast",
        "valid arguments: the least",
        {"city": "Oslo", "days": 1},
        {"content": [{"type": "text", "text": "mild | `calm`"}], "structuredContent": {"celsius": "mild"}},
        latency_ms=312.5,
    )
    least.failed(
        SCHEMA,
        "expected structuredContent.celsius to be a number, as the outputSchema says; got the string "
        "'mild': answer with a number, or change the schema",
    )
    least.passed(CONTENT)
    least.passed(LATENCY)
    wrong = call(
        "forecast",
        "invalid arguments: days is a string",
        {"city": "Oslo", "days": "it's two"},
        {"content": [{"type": "text", "text": "Sunny, 21 °C"}]},
    )
    wrong.failed(ERROR_DUE, "expected isError or a JSON-RPC error (-32602), got a result without isError")
    wrong.passed(CONTENT)
    guessed = call("lookup", "valid arguments: random 3", {"word": "q"}, {"isError": True, "content": []})
    guessed.undecided = "the tool answered with an error to arguments that only its schema vouches for"
    guessed.passed(CONTENT)
    kept = TestDraft(subject="tool forget", title="not called", tool="forget")
    kept.skipped(CALLED, "it says destructiveHint: true; --allow-destructive calls it too")
    remark = "resources/templates/list was not answered: no template was read"
    return report(*(draft.done() for draft in (hello, least, wrong, guessed, kept)), remarks=(remark,))


PIXEL: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def triaged() -> Report:
    """A report with an accepted failure, an image, audio, audio that is too large, and a load."""
    drawn = call("draw", "valid arguments: the least", {}, {"content": [{"type": "image"}]})
    drawn.failed(LATENCY, "expected an answer within 10 s, got one after 11 s")
    drawn.sample("image/png", PIXEL)
    drawn.sample("text/html", b"<script>window.pwned = 7</script>")
    accepted = Triage(level="must").apply(drawn.done())
    spoken = call("speak", "valid arguments: the least", {}, {"content": [{"type": "audio"}]}, 20.0)
    spoken.passed(CONTENT)
    spoken.sample("audio/wav; rate=8000", wave_of(8_000))
    spoken.sample("audio/mpeg", bytes(MOST_SAMPLE_BYTES + 1))
    load = LoadFigures(
        subject="tool speak",
        method="tools/call",
        clients=8,
        requests=800,
        failures=3,
        first_failure="error -32000: busy",
        seconds=2.0,
        p50_ms=18.25,
        p95_ms=41.0,
        requests_per_second=398.5,
        bytes_per_second=5_242_880.0,
    )
    return report(accepted, spoken.done(), tools=("draw", "speak", "idle"), load=(load,))


def wave_of(frames: int) -> bytes:
    """A mono wave file of silence."""
    file = io.BytesIO()
    write_wave(file, bytes(2 * frames), rate_hz=8_000)
    return file.getvalue()


HOSTILE_TEXTS: Final = (
    "<script>window.pwned = 1</script>",
    "</script></code></pre></style><script>window.pwned = 2</script>",
    '"><img src=x onerror="window.pwned = 3">',
    "' onmouseover='window.pwned = 4' autofocus onfocus='window.pwned = 4'",
    "<svg/onload=window.pwned=5><iframe srcdoc='<script>parent.pwned=5</script>'></iframe>",
    "[link](javascript:window.pwned=6) <a href='javascript:window.pwned=6'>x</a>",
    "``` \n```\n# heading\n<b>bold</b>\n``````````\n| a | b |",
    "\u202egnp.exe\u202c \u2066a\u2069 nul \x00 esc \x1b[31m bell \x07 c1 \x9b csi lone \ud800 end \uffff",
    "]]> <!-- --> <?xml ?> &amp; &#0; &lt;script&gt;",
    "{{ 7 * 7 }} {% for %} ${x} %s \\u003cscript\\u003e",
    "<base href='http://192.0.2.1/'><meta http-equiv=refresh content='0;url=http://192.0.2.1/'>",
)


def hostile() -> Report:
    """Every text that a server can choose is one that means something else somewhere."""
    tests = []
    for number, text in enumerate(HOSTILE_TEXTS):
        draft = call(text, f"valid arguments: {text}", {text: text}, {text: [text, {"text": text}]})
        if number % 3 == 2:
            draft.undecided = f"the tool answered: {text}"
            draft.skipped(LATENCY, text)
        else:
            draft.failed(CONTENT, f"expected text, got {text}")
            draft.passed(SCHEMA)
        tests.append(draft.done())
    everything = " ".join(HOSTILE_TEXTS)
    return report(
        *tests,
        server=everything,
        server_name=everything,
        server_version=everything,
        protocol_version=everything,
        tools=HOSTILE_TEXTS,
        remarks=HOSTILE_TEXTS,
    )


def long(rows: int = 2_000) -> Report:
    """`rows` rows of one check each; every hundredth failed."""
    tests = []
    for number in range(rows):
        draft = call(
            f"lookup_{number % 40}",
            f"valid arguments: random {number}",
            {"word": f"word {number}"},
            {"content": [{"type": "text", "text": f"meaning {number} " * 10}]},
        )
        draft.require(CONTENT, number % 100 != 7, f"expected a block with a type, got one without ({number})")
        tests.append(draft.done())
    return report(*tests, tools=tuple(f"lookup_{number}" for number in range(40)))


def empty() -> Report:
    return report(tools=(), depth="quick")


def unavailable() -> Report:
    """A server that nothing could be asked of."""
    return report(
        server="node server.js stdio",
        server_name=None,
        server_version=None,
        protocol_version=None,
        mcp_service_status="unavailable",
        tools=(),
        remarks=("the command ended with code 1 before it answered",),
    )
