"""Transports under the SDK's sessions: each is an async context manager of (read, write) streams."""
