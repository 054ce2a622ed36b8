"""Ranged reads of a resource: which ranges, in which form, how many at once, and where the bytes go."""
