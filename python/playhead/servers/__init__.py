"""The example MCP servers, and the server for HTTP and WebSocket that they run on."""
