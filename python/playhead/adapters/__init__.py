"""Sinks and tools for voice stacks, one module per stack. A module imports its stack's package, if it needs
one."""
