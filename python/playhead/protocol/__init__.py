"""The MCP session without I/O: messages and their framing, the requests in flight, and one row per
revision."""
