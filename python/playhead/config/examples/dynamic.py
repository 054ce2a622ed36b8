"""Servers whose tools are not known beforehand: what they return goes to the model.

`evm-mcp-server` offers some twenty tools that read blockchains, and more with each version; all of them
return text that only a model makes something of.
"""

from __future__ import annotations

from typing import Final

from playhead.config.tools import create_dynamic_config

TOOL_CONFIGS: Final = create_dynamic_config("evm-mcp-server")
