"""MCP servers that tests and benchmarks run as processes, each with one way of being difficult."""
