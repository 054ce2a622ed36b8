"""A local server that speaks each provider's streaming wire format, and what its requests must be."""
