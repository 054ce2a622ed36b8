"""Benchmarks of the whole client, each compared with a baseline in the same run."""
