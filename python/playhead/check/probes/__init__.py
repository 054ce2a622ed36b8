"""The probes, one subject per file: each file has its `KINDS` for the catalogue and its probe."""
