"""One session with one server: connections, requests, tool calls and streams."""
