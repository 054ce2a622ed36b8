"""Example MCP servers."""
