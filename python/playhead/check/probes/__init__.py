"""The probes, one subject per file."""
