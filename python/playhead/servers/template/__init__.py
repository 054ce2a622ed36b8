"""The template server: a small MCP server with one of everything, to copy from.

Read it in this order:

* `tools/` has a file for each tool: what it says of itself (a `types.Tool`), and one function that answers.
  `tools/kit.py` says what a tool is, and `tools/__init__.py` lists them: a new one is a file and a line.
* `resources.py` and `prompts.py` say what can be read and what a person can pick.
* `server.py` gives all of it to the SDK's `Server`, and `codes.py` chooses the error code that the client's
  revision of the protocol expects.
* `app.py` puts the server behind HTTP and WebSocket, with the endpoints that operators want (`endpoints.py`,
  `metrics.py`), and `serve.py` runs it. `options.py` says what it can be told.
* `schema.json` and `openapi.yaml` tell others what goes over the wire; `documents.py` applies them.
"""
