"""What is asked of a server, one subject a file. Each has its `KINDS` for the catalogue, and its probe."""
