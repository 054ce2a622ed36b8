"""Configuration files for servers and tools."""
