"""Tests any MCP server: its handshake, its listings, what its tools answer to right and wrong input."""
