"""Configuration files: where servers are, and how they are to be treated."""
