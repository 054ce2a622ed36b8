"""`streamGenerateContent` as Gemini streams it, made of the official SDK's types. Calls come whole.

Models from Gemini 3 on give calls ids and sign the first of each reply; older ones do neither.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, assert_never

from google.genai import types

from tests.servers.providers.script import Ask, Broken, Frame, Hold, Reply, Say, Think


def frames(reply: Reply, *, model: str, number: int) -> Iterator[Frame]:
    """The body of the answer."""
    is_old = "gemini-2" in model
    signature = next((part.signature for part in reply.parts if isinstance(part, Think)), "c2lnbmVk")

    def event(*parts: types.Part, **more: Any) -> bytes:
        chunk = types.GenerateContentResponse(
            candidates=[
                types.Candidate(
                    content=types.Content(role="model", parts=list(parts)) if parts else None,
                    index=0,
                    **more,
                )
            ],
            model_version=model,
            response_id=f"response-{number}",
            usage_metadata=types.GenerateContentResponseUsageMetadata(
                prompt_token_count=reply.input_tokens,
                candidates_token_count=reply.output_tokens,
                total_token_count=reply.input_tokens + reply.output_tokens,
            ),
        )
        return (
            b"data: "
            + chunk.model_dump_json(by_alias=True, exclude_none=True, warnings=False).encode()
            + b"\r\n\r\n"
        )

    is_signed = is_old
    for part in reply.parts:
        match part:
            case Say():
                yield from (event(types.Part(text=text)) for text in part.deltas)
            case Think():
                yield event(types.Part(text=part.text, thought=True))
            case Ask():
                yield event(
                    types.Part(
                        function_call=_call(part, is_old=is_old),
                        thought_signature=None if is_signed else base64.b64decode(signature),
                    )
                )
                is_signed = True
            case Hold():
                yield part
            case Broken(how="error"):
                error = {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}
                yield b"data: " + json.dumps({"error": error}).encode() + b"\r\n\r\n"
                return
            case Broken():
                yield part
                return
            case _:
                assert_never(part)
    yield event(finish_reason=types.FinishReason.STOP)


def _call(part: Ask, *, is_old: bool) -> types.FunctionCall:
    """The type knows objects only; what else a script says goes past it, as a server's slip would."""
    arguments = json.loads(part.arguments)
    made = types.FunctionCall(id=None if is_old else part.id, name=part.name, args={})
    return made.model_copy(update={"args": arguments})
