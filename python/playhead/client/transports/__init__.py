"""The carriers of messages: a process and its pipes, Streamable HTTP, WebSocket; and the HTTP client."""
