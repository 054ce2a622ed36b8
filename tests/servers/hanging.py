"""A stdio MCP server that gives the first page of some music and then never answers again.

    python -m tests.servers.hanging FIFO

When a read arrives that it will not answer, it writes its process id to FIFO: whoever reads the FIFO knows
that the client is in the middle of a stream.
"""

from __future__ import annotations

import base64
import os
import sys
from typing import Any

import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.uri_template import UriTemplate

from tests.servers.wave import wave_header

TEMPLATE = UriTemplate.parse("resource://hanging{?start,end}")
SIZE_BYTES = 64 << 20
GIVEN_BYTES = 8192


async def list_templates(_context: object, _params: object) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(name="hanging", uri_template=str(TEMPLATE))
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read(_context: object, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    wanted = TEMPLATE.match(str(params.uri)) or {}
    if int(str(wanted.get("start", 0))) > 0:
        await trio.to_thread.run_sync(tell, abandon_on_cancel=True)
        await trio.sleep_forever()
    page = wave_header(SIZE_BYTES) + bytes(GIVEN_BYTES - len(wave_header(SIZE_BYTES)))
    blob = base64.b64encode(page).decode("ascii")
    return types.ReadResourceResult(
        contents=[types.BlobResourceContents(uri=params.uri, mime_type="audio/wav", blob=blob)]
    )


def tell() -> None:
    with open(sys.argv[1], "w", encoding="ascii") as fifo:  # noqa: PTH123  (a FIFO: opening it waits)
        fifo.write(f"{os.getpid()}\n")


async def main() -> None:
    server: Server[Any] = Server("hanging", on_list_resource_templates=list_templates, on_read_resource=read)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


if __name__ == "__main__":
    trio.run(main)
