"""The client: sessions over the MCP SDK, and the transports under them."""
