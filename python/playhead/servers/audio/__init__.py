"""The example audio server: finds music, links to it, and reads it in ranges."""
