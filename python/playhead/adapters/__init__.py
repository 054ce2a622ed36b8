"""Sinks and tools for voice stacks. Each module imports the package of its stack, if it needs one, when
imported."""
