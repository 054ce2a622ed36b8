"""The example audio server: finds music, links to it, and reads it in ranges.

`options` says what it can be told, `serve` runs it, or opens it in this process.
"""
