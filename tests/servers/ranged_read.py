"""A read of a resource with what the SDK's client has no parameter for: arguments beside the URI."""

from __future__ import annotations

from typing import Any, Literal

import mcp_types as types
from mcp import Client


class _Params(types.ReadResourceRequestParams):
    arguments: dict[str, Any] | None = None


class _RangedRead(types.Request[_Params, Literal["resources/read"]]):
    method: Literal["resources/read"] = "resources/read"
    params: _Params


async def read_blob(client: Client, params: dict[str, Any]) -> types.BlobResourceContents:
    """The one blob of the answer."""
    request = _RangedRead(params=_Params.model_validate(params))
    (blob,) = (await client.session.send_request(request, types.ReadResourceResult)).contents
    assert isinstance(blob, types.BlobResourceContents)
    return blob
