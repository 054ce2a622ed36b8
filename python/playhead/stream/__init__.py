"""Byte streams: a resource read in ranges, several at once, into a ring."""
