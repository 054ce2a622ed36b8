"""A FastMCP server over stdio: tools, a resource, a template and a prompt, as its documentation shows them.

python fastmcp_server.py        (of the environment that `make extra NAME=check-servers` makes)
"""

# mypy: ignore-errors
# (the packages are those of another environment)

from __future__ import annotations

import base64

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.types import Image

DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNiAAAABgADNjd8qAAAAABJRU5ErkJggg=="
)
server = FastMCP("friendly")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def weather(city: str) -> dict[str, float]:
    """Tell the weather of a city."""
    if city != "Oslo":
        raise ToolError(f"no such city: {city}")
    return {"degrees": 4.5}


@server.tool
def dot() -> Image:
    """Return a picture of one pixel."""
    return Image(data=DOT, format="png")


@server.resource("note://owls", mime_type="text/plain")
def owls() -> str:
    return "They hunt voles at night."


@server.resource("note://{name}", mime_type="text/plain")
def note(name: str) -> str:
    if name != "voles":
        raise ValueError(f"no note of the name {name}")
    return "They hide by day."


@server.prompt
def greet(name: str) -> str:
    return f"Good morning, {name}"


if __name__ == "__main__":
    server.run(show_banner=False)
