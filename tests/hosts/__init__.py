"""Real MCP hosts with the proxy, each in an environment of its own (`make extra NAME=hosts`)."""
