"""Each provider's wire shapes (pure codecs), and the clients that carry them."""
