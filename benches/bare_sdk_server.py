"""A server on the SDK alone that reads ranges of one file: `python -m benches.bare_sdk_server FILE`.

It prints its URL, and runs as servers of the SDK run: asyncio and uvicorn.
"""

from __future__ import annotations

import base64
import os
import re
import socket
import sys
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.context import ServerRequestContext

RANGE = re.compile(r"bare://song\?start=(\d+)&end=(\d+)")


def main() -> None:
    file = os.open(sys.argv[1], os.O_RDONLY)

    async def read(
        _: ServerRequestContext[Any, Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        match = RANGE.fullmatch(str(params.uri))
        assert match is not None, params.uri
        start, end = map(int, match.groups())
        blob = base64.b64encode(os.pread(file, end - start, start)).decode("ascii")
        contents = types.BlobResourceContents(uri=params.uri, mime_type="audio/mpeg", blob=blob)
        return types.ReadResourceResult(contents=[contents])

    server: Server[Any] = Server("bare", on_read_resource=read)
    sock = socket.create_server(("127.0.0.1", 0), backlog=512)
    print(f"http://127.0.0.1:{sock.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.streamable_http_app(json_response=True), log_level="error")
    uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
