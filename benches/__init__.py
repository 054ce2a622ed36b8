"""Benchmarks of the client as a whole, each beside a baseline in the same run."""
