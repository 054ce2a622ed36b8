"""Models behind providers' APIs: for each provider a pure codec of its wire format, and HTTP for all."""
