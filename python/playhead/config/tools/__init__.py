"""Per-tool configuration: handling of results, its sources, and their precedence."""

from playhead.config.tools.approvals import ApprovalPolicy, ApprovalRule
from playhead.config.tools.config import (
    KEEP,
    HandlerReference,
    Kind,
    ResponseHandler,
    ToolConfig,
    ToolContent,
    ToolOverride,
    ToolResponse,
    ToolSettings,
    create_dynamic_config,
    create_id_config,
    create_tool_config,
    create_tool_id,
)
from playhead.config.tools.files import (
    ToolConfigSources,
    default_approval_policy,
    default_sources,
    default_tool_file,
    load_approval_policy,
    load_tool_configs,
)
from playhead.config.tools.layers import Delivery, Layer, Resolution, Step, ToolConfigs
from playhead.config.tools.modules import get_tool_configs, handler_name, run_handler

__all__ = [
    "KEEP",
    "ApprovalPolicy",
    "ApprovalRule",
    "Delivery",
    "HandlerReference",
    "Kind",
    "Layer",
    "Resolution",
    "ResponseHandler",
    "Step",
    "ToolConfig",
    "ToolConfigSources",
    "ToolConfigs",
    "ToolContent",
    "ToolOverride",
    "ToolResponse",
    "ToolSettings",
    "create_dynamic_config",
    "create_id_config",
    "create_tool_config",
    "create_tool_id",
    "default_approval_policy",
    "default_sources",
    "default_tool_file",
    "get_tool_configs",
    "handler_name",
    "load_approval_policy",
    "load_tool_configs",
    "run_handler",
]
