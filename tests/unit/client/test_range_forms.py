"""Every form of a ranged read against a server that takes only that form, alone and behind a wrong form.

`pytest -s` prints the table: the reads that the server received, the strategy, and its reason.
"""

from __future__ import annotations

import base64
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trio
import trio.testing
from mcp_types import JSONRPCRequest, ResourceLink

from playhead.client import Session, connect
from playhead.config.servers import ServerConfig
from playhead.errors import ChunkGapError, ServerError, StreamBrokenError, UsageError
from playhead.stream.options import DEFAULT_OPTIONS, StreamOptions
from tests.servers.raw_http import Exchange, raw_http
from tests.servers.raw_origin import RawOrigin, answer_range, raw_origin
from tests.unit.raw_server import NEVER, RawServer, Refusal

DATA = random.Random(13).randbytes(300_000)
CHUNK_BYTES = 40_000
CLAMP_BYTES = 65_536
Json = dict[str, Any]


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def contents(uri: str, data: bytes | None) -> Json:
    return {"contents": [] if data is None else [{"uri": uri, "blob": encoded(data)}]}


READER: Json = {
    "name": "read_pdf_bytes",
    "inputSchema": {
        "type": "object",
        "properties": {name: {} for name in ("url", "offset", "byteCount")},
        "required": ["url"],
    },
    "outputSchema": {
        "type": "object",
        "properties": {name: {} for name in ("url", "bytes", "offset", "byteCount", "totalBytes", "hasMore")},
    },
    "annotations": {"readOnlyHint": True},
}
"""The tool of the MCP Apps PDF server."""
QUEUE: Json = {
    "name": "next_chunks",
    "inputSchema": {"type": "object", "properties": {"uri": {}}, "required": ["uri"]},
    "outputSchema": {"type": "object", "properties": {"chunks": {"type": "array"}, "done": {}}},
}


@dataclass(kw_only=True)
class FormServer(RawServer):
    """Serves `DATA` in one form, and answers every other form with `wrong`."""

    takes: str
    wrong: Mapping[str, Any] = field(default_factory=dict)
    """The answers to reads in other forms, by form; any other is an invalid request."""
    templates: tuple[str, ...] = ()
    listing_seconds: float = 0.0
    tools: tuple[Json, ...] = ()
    chunking: bool = False
    reads: Counter[str] = field(default_factory=Counter)
    """The ranged reads by form."""
    polls: int = 0

    def __post_init__(self) -> None:
        capabilities: Json = {"resources": {}, "tools": {}}
        if self.chunking:
            chunking = {"enabled": True, "maxChunkBytes": CLAMP_BYTES}
            capabilities["experimental"] = {"resourceReadChunking": chunking}
        listed = [{"name": "piece", "uriTemplate": text} for text in self.templates]
        answers = {
            "resources/templates/list": {"resourceTemplates": listed},
            "resources/list": {"resources": []},
            "resources/read": self.read,
            "tools/list": {"tools": list(self.tools)},
            "tools/call": self.call,
        }
        super().__init__(answers, capabilities=capabilities)

    async def _answer(self, request: JSONRPCRequest, write_stream: Any) -> None:
        if request.method == "resources/templates/list":
            await trio.sleep(self.listing_seconds)
        await super()._answer(request, write_stream)

    def read(self, params: Json) -> Any:
        form, start, end = range_of(params)
        self.reads[form] += 1
        if form != self.takes:
            return self.wrong.get(form, Refusal(-32602, f"no {form} here"))
        if form == "params":
            end = min(end, start + CLAMP_BYTES)
        return contents(params["uri"], DATA[start:end])

    def call(self, params: Json) -> Any:
        given = params["arguments"]
        if params["name"] == "read_pdf_bytes":
            self.reads["tool"] += 1
            start = given["offset"]
            part = DATA[start : start + given["byteCount"]]
            size = {"byteCount": len(part), "totalBytes": len(DATA)}
            found = {"bytes": encoded(part), "offset": start, "hasMore": start + len(part) < len(DATA)} | size
            return {"content": [], "structuredContent": found}
        self.reads["poll"] += 1
        self.polls += 1
        index, is_empty = divmod(self.polls - 1, 2)  # nothing new, every other time
        chunks = []
        if not is_empty:
            part = DATA[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
            chunks = [{"index": index, "audio_base64": encoded(part)}]
        return {
            "content": [],
            "structuredContent": {"chunks": chunks, "done": (index + 1) * CHUNK_BYTES >= len(DATA)},
        }

    __hash__ = RawServer.__hash__


def range_of(params: Json) -> tuple[str, int, int]:
    """Return the form of a resources/read, and its range."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(params["uri"]).query).items()}
    arguments = params.get("arguments") or {}
    meta = (params.get("_meta") or {}).get("example.com/range")
    if "start" in arguments:
        return "arguments", arguments["start"], arguments["end"]
    if meta is not None:
        return "meta", meta["start"], meta["end"]
    if "offset" in params:
        return "params", params["offset"], params["offset"] + params["length"]
    if "offset" in query:
        return "uri-template", int(query["offset"]), int(query["offset"]) + int(query["length"])
    if "start" in query:
        return "query", int(query["start"]), int(query["end"])
    return "whole", 0, len(DATA)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A form: the link, the server that takes it, and the same behind a form that is tried first."""

    uri: str
    server: Callable[[], FormServer]
    reason: str
    options: StreamOptions = DEFAULT_OPTIONS
    description: str | None = None
    behind: str
    """The form that is tried first in the second run."""
    first: Callable[[], FormServer]
    first_description: str | None = None


def serving(takes: str, **how: Any) -> Callable[[], FormServer]:
    return lambda: FormServer(takes=takes, **how)


NOTHING: Json = {"contents": []}
TEXT = {"contents": [{"uri": "x:", "text": "use the web player"}]}
PAST_END = Refusal(-32602, "416 range not satisfiable")
SHORT_TEMPLATE = "music://{name}{?offset,length}"
LONG_TEMPLATE = "music://{name}{?start,end}"

CASES = {
    "uri-template": Case(
        uri="music://one",
        server=serving("uri-template", templates=(SHORT_TEMPLATE,)),
        reason=f"the server lists the template {SHORT_TEMPLATE!r}",
        behind="arguments",
        # Listed late: the second chance after a refusal.
        first=serving("uri-template", templates=(SHORT_TEMPLATE,), listing_seconds=5),
        first_description="s3://b/k",
    ),
    "arguments": Case(
        uri="music://one",
        server=serving("arguments"),
        description="synthetic://file",
        reason="the description is a URL (synthetic://file)",
        behind="uri-template",
        first=serving("arguments", templates=(SHORT_TEMPLATE,)),
        first_description="synthetic://file",
    ),
    "query": Case(
        uri="resource://music/one?rate=48",
        server=serving("query"),
        reason="no template fits, and the URI takes a query",
        behind="arguments",
        first=serving("query", wrong={"arguments": TEXT}),
        first_description="file:///x",
    ),
    "params": Case(
        uri="mem://doc",
        server=serving("params", chunking=True),
        reason="the server declares resourceReadChunking (65536 bytes)",
        behind="arguments",
        first=serving("params", chunking=True, wrong={"arguments": PAST_END}),
        first_description="mem://doc",
    ),
    "meta": Case(
        uri="music://one",
        server=serving("meta"),
        options=StreamOptions(meta_key="example.com/range"),
        reason="meta_key is 'example.com/range'",
        behind="params",
        first=serving("meta", chunking=True, wrong={"params": NOTHING}),
    ),
    "tool": Case(
        uri="music://one",
        server=serving("tool", tools=(QUEUE, READER)),
        reason="tool read_pdf_bytes: by its schemas, it reads ranges",
        behind="arguments",
        first=serving("tool", tools=(QUEUE, READER)),
        first_description="https://example.com/a.pdf",
    ),
    "poll": Case(
        uri="music://one",
        server=serving("poll", tools=(QUEUE,)),
        reason="tool next_chunks: by its outputSchema, it returns chunks",
        behind="params",
        first=serving("poll", tools=(QUEUE,), chunking=True),
    ),
    "whole": Case(
        uri="music://one",
        server=serving("whole"),
        reason="no form of a range is left",
        behind="arguments",
        first=serving("whole"),
        first_description="https://example.com/one",
    ),
}


def link(uri: str, description: str | None) -> ResourceLink:
    size = None if uri.endswith("nothing") else len(DATA)
    return ResourceLink(type="resource_link", uri=uri, name="one", description=description, size=size)


async def read_one(
    session: Session, what: ResourceLink, options: StreamOptions = DEFAULT_OPTIONS
) -> tuple[bytes, str, str]:
    async with session.open(what, options=options) as stream:
        data = await stream.read_all()
        statistics = stream.statistics()
    return data, statistics.strategy, statistics.strategy_reason


def show(form: str, run: str, reads: Mapping[str, int], reason: str) -> None:
    sent = ", ".join(f"{name} {count}" for name, count in reads.items())
    print(f"{form:13} {run:20} exact  {sent:34} {reason}")


@pytest.mark.parametrize("form", CASES)
async def test_each_form_is_found_alone_and_behind_a_wrong_form(
    autojump_clock: trio.testing.MockClock, form: str
) -> None:
    case = CASES[form]
    server = case.server()
    async with connect(server) as session:
        got = await read_one(session, link(case.uri, case.description), case.options)
    chosen, _, refusals = got[2].partition("; refused before: ")
    assert (got[0], got[1], chosen) == (DATA, form, case.reason)
    tried = {"arguments", "query", "params"} if form == "whole" else set()
    assert set(server.reads) == {form, *tried}, "no other form was asked for"
    assert all(f"{each} (" in refusals for each in tried)
    assert all(server.reads[each] == 1 for each in tried), "small, and alone"
    show(form, "alone", server.reads, case.reason)

    server = case.first()
    async with connect(server) as session:
        what = link(case.uri, case.first_description)
        data, strategy, reason = await read_one(session, what, case.options)
        assert (data, strategy) == (DATA, form)
        assert reason.startswith(case.reason)
        assert f"refused before: {case.behind} (" in reason
        assert server.reads[case.behind] <= 3, "one burst"
        show(form, f"behind {case.behind}", server.reads, reason)

        # What worked is remembered: the next resource of the kind costs no refusal.
        refused = server.reads[case.behind]
        server.polls = 0
        data, strategy, reason = await read_one(session, what, case.options)
        assert (data, strategy) == (DATA, form)
        assert "refused" not in reason
        assert server.reads[case.behind] == refused


async def serve_ranges(origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
    await answer_range(stream, head, DATA, 'etag: "1"', "content-type: audio/mpeg")


@pytest.mark.parametrize("description", [None, "s3://b/k"])
async def test_a_web_link_that_is_not_listed_is_read_from_its_origin(description: str | None) -> None:
    reads: Counter[str] = Counter()

    async def handle(exchange: Exchange) -> None:
        if exchange.method == "resources/read":
            reads[range_of(exchange.message["params"])[0]] += 1
        await exchange.error(-32601, "Method not found")

    async with raw_origin(serve_ranges) as origin, raw_http(handle) as server:
        server.capabilities = {"resources": {}}
        config = ServerConfig(url=server.url, allow_origins=(origin.url,))
        async with connect(config) as session:
            what = link(f"{origin.url}/one", description)
            data, strategy, reason = await read_one(session, what)
        assert (data, strategy) == (DATA, "http-range")
        chosen, _, refused = reason.partition("; refused before: ")
        assert chosen == "the server does not list the URI, a web address"
        assert refused == ("arguments (-32601: Method not found)" if description else "")
        assert set(reads) == ({"arguments"} if description else set())
        show("http-range", "behind arguments" if description else "alone", {"GET": len(origin.heads)}, reason)


async def test_only_the_last_error_of_a_form_decides_that_a_resource_does_not_exist(
    autojump_clock: trio.testing.MockClock,
) -> None:
    missing = {"query": Refusal(-32002, "Resource not found"), "whole": Refusal(-32603, "the disk failed")}
    server = FormServer(takes="meta", wrong=missing)
    async with connect(server) as session:
        with pytest.raises(ServerError) as caught:
            await read_one(session, link("resource://music/nothing", None))
    message = str(caught.value)
    assert "refused every form of a ranged read; tried query (-32002: Resource not found)" in message
    assert "whole (-32603: the disk failed)" in message


async def test_a_resource_that_does_not_exist_is_the_first_thing_that_the_error_says(
    autojump_clock: trio.testing.MockClock,
) -> None:
    missing = dict.fromkeys(("query", "whole"), Refusal(0, "Unknown resource: resource://music/nothing"))
    server = FormServer(takes="meta", wrong=missing)
    async with connect(server) as session:
        with pytest.raises(ServerError, match=r"^[^:]+ has no such resource; tried query \(0: Unknown"):
            await read_one(session, link("resource://music/nothing", None))


# --- tools -------------------------------------------------------------------------------------------------


def tool_server(reader: Json, call: Callable[[Json], Any]) -> RawServer:
    answers = {
        "tools/list": {"tools": [reader]},
        "tools/call": call,
        "resources/templates/list": {"resourceTemplates": []},
    }
    return RawServer(answers, capabilities={"tools": {}, "resources": {}})


def found(start: int, end: int, **more: object) -> Json:
    return {"content": [], "structuredContent": {"data": encoded(DATA[start:end]), "offset": start, **more}}


async def test_a_reader_tool_without_a_length_has_its_own_page_size(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reader = READER | {"inputSchema": {"type": "object", "properties": {"uri": {}, "offset": {}}}}
    asked: list[Json] = []

    def call(params: Json) -> Any:
        asked.append(params["arguments"])
        start = params["arguments"]["offset"]
        return found(start, start + 65_536, hasMore=start + 65_536 < len(DATA))

    async with connect(tool_server(reader, call)) as session:
        data, strategy, _ = await read_one(session, link("music://one", None))
    assert (data, strategy) == (DATA, "tool")
    assert all(set(each) == {"uri", "offset"} and each["uri"] == "music://one" for each in asked)


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_failed_call_of_a_reader_tool_is_repeated_only_if_the_tool_says_that_it_can_be(
    autojump_clock: trio.testing.MockClock, repeatable: bool
) -> None:
    reader = READER | {"annotations": {"readOnlyHint": True} if repeatable else {}}
    asked: list[int] = []
    failed: list[int] = []

    def call(params: Json) -> Any:
        start = params["arguments"]["offset"]
        asked.append(start)
        if start > 100_000 and not failed:
            failed.append(start)
            return Refusal(-32603, "once")
        return found(start, start + params["arguments"]["byteCount"], totalBytes=len(DATA))

    async with connect(tool_server(reader, call)) as session:
        if repeatable:
            assert (await read_one(session, link("music://one", None)))[0] == DATA
            assert asked.count(failed[0]) == 2
        else:
            with pytest.raises(StreamBrokenError, match="does not declare that it can be repeated"):
                await read_one(session, link("music://one", None))
            assert asked.count(failed[0]) == 1


async def test_a_tool_that_may_destroy_is_not_called_unless_it_is_configured(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reader = READER | {"annotations": {"destructiveHint": True}}

    def call(params: Json) -> Any:
        start = params["arguments"]["offset"]
        return found(start, start + params["arguments"]["byteCount"], totalBytes=len(DATA))

    async with connect(tool_server(reader, call)) as session:
        with pytest.raises(UsageError, match="set range_tool"):
            await read_one(session, link("music://one", None), StreamOptions(strategy="tool"))
        named = StreamOptions(strategy="tool", range_tool="read_pdf_bytes")
        assert await read_one(session, link("music://one", None), named) == (
            DATA,
            "tool",
            "set by --strategy",
        )


AUDIT: Json = READER | {
    "name": "read_audit_log",
    "inputSchema": {"type": "object", "properties": {"offset": {}}},
}
SPEECH: Json = QUEUE | {"name": "next_speech", "inputSchema": {"type": "object"}}
CLEAR: Json = QUEUE | {"annotations": {"destructiveHint": True}}
UNSURE: Json = READER | {"annotations": {}}


def source(called: list[str], form: str) -> Callable[[Json], Any]:
    """The call of a tool that would be a source in `form`."""

    def call(params: Json) -> Any:
        called.append(params["name"])
        if form == "poll":
            return chunks(0, done=True)
        start = params["arguments"]["offset"]
        return found(start, max(start, 4), totalBytes=4)

    return call


@pytest.mark.parametrize(
    ("tool", "form"),
    [(AUDIT, "tool"), (SPEECH, "poll"), (CLEAR, "poll")],
    ids=["a reader of something else", "a queue of something else", "a queue that may destroy"],
)
async def test_a_tool_that_is_not_for_links_reads_none_unless_it_is_configured(
    autojump_clock: trio.testing.MockClock, tool: Json, form: str
) -> None:
    called: list[str] = []
    async with connect(tool_server(tool, source(called, form))) as session:
        with pytest.raises(ServerError):
            await read_one(session, link("music://song", None))
        with pytest.raises(UsageError, match=f"set {'range' if form == 'tool' else 'poll'}_tool"):
            await read_one(session, link("music://song", None), StreamOptions(strategy=form))
        assert called == []
        named = (
            StreamOptions(range_tool=tool["name"])
            if form == "tool"
            else StreamOptions(poll_tool=tool["name"])
        )
        what = ResourceLink(type="resource_link", uri="music://song", name="song")
        assert (await read_one(session, what, named))[1] == form


@pytest.mark.parametrize(
    ("tool", "config", "is_called"),
    [
        (QUEUE, {}, False),
        (QUEUE, {"poll_tool": "next_chunks"}, False),
        (QUEUE, {"range_strategy": "poll"}, False),
        (UNSURE, {}, False),
        (UNSURE, {"range_strategy": "tool"}, False),
        (UNSURE, {"range_tool": "read_pdf_bytes"}, True),
        (READER, {}, True),
    ],
    ids=["queue", "poll_tool", "forced queue", "reader", "forced reader", "range_tool", "read-only reader"],
)
async def test_a_look_at_the_first_bytes_of_a_link_calls_no_tool_that_may_have_effects(
    autojump_clock: trio.testing.MockClock, tool: Json, config: Json, is_called: bool
) -> None:
    called: list[str] = []
    call = source(called, "poll" if tool is QUEUE else "tool")
    song = {"type": "resource_link", "uri": "music://song", "name": "song"}

    async def handle(exchange: Exchange) -> None:
        if exchange.method == "tools/list":
            await exchange.result({"tools": [tool]})
        elif exchange.method != "tools/call":
            await exchange.error(-32002, "Resource not found")
        elif exchange.message["params"]["name"] == "get_song":
            await exchange.result({"content": [song], "isError": False})
        else:
            await exchange.result(call(exchange.message["params"]))

    async with raw_http(handle) as server:
        server.capabilities = {"tools": {}, "resources": {}}
        async with connect(ServerConfig(url=server.url, mode="legacy", **config)) as session:
            result = await session.call_tool("get_song")
    assert [item.uri for item in result.links] == ["music://song"]
    assert set(called) == ({tool["name"]} if is_called else set())


# --- queues ------------------------------------------------------------------------------------------------


def queue_server(call: Callable[[Json], Any]) -> RawServer:
    return tool_server(QUEUE, call)


def chunks(*indexes: int, done: bool = False, first: int = 0) -> Json:
    def one(index: int) -> Json:
        at = (index - first) * CHUNK_BYTES
        return {
            "index": index,
            "audio_base64": encoded(DATA[at : at + CHUNK_BYTES]),
            "mime_type": "audio/mpeg",
        }

    return {"content": [], "structuredContent": {"chunks": [one(it) for it in indexes], "done": done}}


async def test_a_chunk_is_read_while_the_tool_still_runs_and_within_the_pause_of_a_poll(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ready = [3.0, 4.5, 6.0]
    sent: list[int] = []

    def call(_: Json) -> Any:
        new = [it for it, at in enumerate(ready) if trio.current_time() >= at and it not in sent]
        sent.extend(new)
        return chunks(*new, done=len(sent) == len(ready))

    async with connect(queue_server(call)) as session:
        started = trio.current_time()
        ready[:] = [started + at for at in ready]
        async with session.open("music://one") as stream:
            for index, at in enumerate(ready):
                part = b""
                while len(part) < CHUNK_BYTES:
                    part += await stream.receive_some()
                assert trio.current_time() - at <= 0.06, f"chunk {index}"
                assert stream.can_play(1, 16_000), "whatever follows is unknown"
                assert part == DATA[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
            assert await stream.receive_some() == b""
            assert stream.statistics().ended_by == "done"
            assert stream.statistics().mime_type == "audio/mpeg"


async def test_a_gap_in_the_chunks_is_an_error_after_the_good_bytes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answers = iter([chunks(1, first=1), chunks(2, 4, first=1)])
    got = b""

    async def receive_all(session: Session) -> None:
        nonlocal got
        async with session.open("music://one") as stream:
            async for part in stream:
                got += part

    async with connect(queue_server(lambda _: next(answers))) as session:
        with pytest.raises(ChunkGapError) as caught:
            await receive_all(session)
    assert got == DATA[:CHUNK_BYTES]
    assert (caught.value.expected, caught.value.got) == (3, 4)


async def test_chunks_that_are_sent_again_count_once(autojump_clock: trio.testing.MockClock) -> None:
    answers = iter([chunks(0, 1), chunks(0, 1, 2), chunks(2, 3, done=True)])
    async with connect(queue_server(lambda _: next(answers))) as session:
        assert (await read_one(session, link("music://one", None)))[0] == DATA[: 4 * CHUNK_BYTES]


@pytest.mark.parametrize("failure", [Refusal(-32603, "oops"), NEVER], ids=["error", "silence"])
async def test_a_call_of_a_queue_tool_is_never_repeated(
    autojump_clock: trio.testing.MockClock, failure: object
) -> None:
    answers = [failure, chunks(0)]
    async with connect(queue_server(lambda _: answers.pop())) as session:
        with pytest.raises(StreamBrokenError, match="is not repeated"):
            await read_one(session, link("music://one", None))
    assert answers == []


@pytest.mark.parametrize(
    "unusable",
    [{"chunks": [{"index": 0, "pcm": "AAAA"}], "done": False}, {"chunks": [{"index": 0, "data": "AAAA"}]}],
    ids=["no base64", "no done"],
)
async def test_a_queue_tool_whose_chunks_could_not_be_read_is_not_called_again(
    autojump_clock: trio.testing.MockClock, unusable: Json
) -> None:
    answers = [chunks(1, done=True), {"content": [], "structuredContent": unusable}]
    async with connect(queue_server(lambda _: answers.pop())) as session:
        with pytest.raises(StreamBrokenError, match=r"expected (a list|base64).* is not repeated"):
            await read_one(session, link("music://one", None))
    assert answers == [chunks(1, done=True)]


async def test_a_queue_tool_itself_is_played_with_its_arguments(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked: list[Json] = []
    answers = iter([chunks(0), chunks(1, done=True)])

    def call(params: Json) -> Any:
        asked.append(params["arguments"])
        return next(answers)

    async with connect(queue_server(call)) as session:
        media = session.queue("next_chunks", {"uri": "speech://7"})
        assert asked == [], "nothing is called until it is opened"
        async with media.open() as stream:
            assert await stream.read_all() == DATA[: 2 * CHUNK_BYTES]
            assert stream.statistics().strategy == "poll"
    assert asked == [{"uri": "speech://7"}] * 2


async def test_a_whole_read_that_is_remembered_may_be_refused_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answers = {
        "resources/read": lambda params: (
            contents("x:", DATA) if params["uri"] == "music://one" else Refusal(-32002, "not found")
        ),
        "tools/list": NEVER,  # so these forms are looked for again, and again in vain
        "resources/templates/list": {"resourceTemplates": []},
    }
    async with connect(RawServer(answers, capabilities={"tools": {}, "resources": {}})) as session:
        assert (await read_one(session, link("music://one", None)))[1] == "whole"
        with pytest.raises(ServerError, match="has no such resource"):
            await read_one(session, link("music://nothing", None))


async def test_a_queue_does_not_seek(autojump_clock: trio.testing.MockClock) -> None:
    async with connect(queue_server(lambda _: chunks(0))) as session, session.open("music://one") as stream:
        await stream.receive_some(10)
        assert not stream.seekable
        await stream.seek(10)
        with pytest.raises(UsageError, match="strategy poll"):
            await stream.seek(0)
