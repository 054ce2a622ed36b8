"""A page in the client, from its frame to bytes in the ring, without a transport.

The frame is parsed and validated as the SDK's session does it, then the client reads the result into the
ring. The baseline ends as the reference does: with the SDK's model of a result, the standard library's
decoder and a copy.
"""

from __future__ import annotations

import base64
import json
import os

import mcp_types as types
import pytest

from benches.board import Board, Comparison
from benches.test_pipe import interleaved
from playhead import DEFAULT_LIMITS, _core
from playhead.stream.result_pages import page_of_contents

PAGE_BYTES = (100 * 1024, 1024 * 1024)


def frame(n_bytes: int) -> bytes:
    blob = base64.b64encode(os.urandom(n_bytes)).decode("ascii")
    contents = [{"uri": "resource://pages?start=0&end=1", "mimeType": "audio/mpeg", "blob": blob}]
    return json.dumps({"jsonrpc": "2.0", "id": 7, "result": {"contents": contents}}).encode()


def message_of(line: bytes) -> types.JSONRPCResponse:
    message = types.jsonrpc_message_adapter.validate_json(line)
    assert isinstance(message, types.JSONRPCResponse)
    return message


def blob_of(line: bytes) -> str:
    """Decode as the SDK does: the message, then the result."""
    result = types.ReadResourceResult.model_validate(message_of(line).result)
    (content,) = result.contents
    assert isinstance(content, types.BlobResourceContents)
    return content.blob


@pytest.mark.parametrize("n_bytes", PAGE_BYTES)
def test_frame_to_pipe(n_bytes: int, board: Board, smoke: bool) -> None:
    line = frame(n_bytes)
    pipe = _core.Pipe(4 * 1024 * 1024)
    target = bytearray(n_bytes)

    def ours() -> None:
        (blob,) = page_of_contents(message_of(line).result, limits=DEFAULT_LIMITS, server="bench").blobs
        assert isinstance(blob, str)
        pipe.seek(pipe.tail + pipe.write_base64(pipe.tail, blob))

    def baseline() -> None:
        target[:] = base64.b64decode(blob_of(line))

    mine, theirs = interleaved(ours, baseline, rounds=board.rounds(9), calls=10 if smoke else 100)
    board.add(
        Comparison(
            name=f"frame of {n_bytes // 1024} KiB to the ring",
            unit="us",
            baseline_name="SDK + stdlib base64",
            ours=mine,
            baseline=theirs,
            at_most=0.7,
        )
    )
