"""The probes, one subject per file.

A new check is a row of `check.catalogue` and a probe. `probes.tools.probe_tool` calls those of a tool, and
`check.run` those of a server.
"""
