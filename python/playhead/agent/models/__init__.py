"""Models behind providers' APIs: a pure codec for each wire format, and the HTTP that carries them."""
