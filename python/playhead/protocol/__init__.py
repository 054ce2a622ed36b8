"""The MCP session without I/O: what is in flight (exchange), what a revision changes, messages and their
framing."""
