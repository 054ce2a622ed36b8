"""Fuzz targets, for `make fuzz`: of the core in Rust, and of the parsers in Python."""
