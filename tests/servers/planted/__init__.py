"""An MCP server over stdio, written on nothing but the standard library so that it can do everything wrong.

`faultless.py` is a server with each kind of tool, resource and prompt, and no defect. Each row in
`defects.py` is that server with one thing wrong: the checker has to name it, and nothing else.
"""
