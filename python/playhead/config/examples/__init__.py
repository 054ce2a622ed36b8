"""Example configurations. Import them in a tool configuration file with
`modules = ["playhead.config.examples"]`.

This one is for a server whose tools are not known in advance: results go to the model. `evm-mcp-server` has
some twenty tools that read blockchains, and more with each version; all of them return text meant for a
model.
"""

from __future__ import annotations

from typing import Final

from playhead.config.tools import create_dynamic_config

TOOL_CONFIGS: Final = create_dynamic_config("evm-mcp-server")
