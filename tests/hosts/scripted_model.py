"""A model on loopback that speaks OpenAI's chat completions, and calls the tool that the user names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from tests.servers.threaded_http import threaded_http

CALLS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "play": ("musicPlayer", {"query": ""}),
    "pause": ("player__pause", {}),
    "volume": ("set_volume", {"volume": 50}),
    "resume": ("player__resume", {}),
}
"""The tool that the model calls for each message of the user."""


def reply_to(request: dict[str, Any]) -> dict[str, Any]:
    """Return the assistant's message: a tool call for a key of `CALLS`, and text after a tool's result."""
    last = request["messages"][-1]
    if last["role"] == "tool":
        return {"role": "assistant", "content": "Done."}
    content = last["content"]
    word = content if isinstance(content, str) else content[-1]["text"]
    name, arguments = CALLS[word]
    function = {"name": name, "arguments": json.dumps(arguments)}
    id = f"call-{len(request['messages'])}"
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": id, "type": "function", "function": function}],
    }


@contextmanager
def scripted_model() -> Iterator[tuple[str, list[str]]]:
    """Serve the endpoint; yields its base URL and the bodies of the requests so far."""
    bodies: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            bodies.append(body)
            request = json.loads(body)
            message = reply_to(request)
            reason = "tool_calls" if "tool_calls" in message else "stop"
            base = {"id": "c", "created": 0, "model": "scripted"}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            if request.get("stream"):
                calls = [{**call, "index": index} for index, call in enumerate(message.get("tool_calls", ()))]
                delta = {**message, **({"tool_calls": calls} if calls else {})}
                head = {**base, "object": "chat.completion.chunk"}
                chunks = [
                    {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                    {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage},
                ]
                text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
                kind = "text/event-stream"
            else:
                choice = {"index": 0, "message": message, "finish_reason": reason}
                answer = {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
                text, kind = json.dumps(answer), "application/json"
            data = text.encode()
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_arguments: object) -> None:
            pass

    with threaded_http(Handler) as url:
        yield f"{url}/v1", bodies
