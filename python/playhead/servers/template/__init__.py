"""The template server: a small, whole MCP server to start one's own from, and its documents."""
