"""Arguments generated from a tool's inputSchema: valid, at the edges, and invalid."""
