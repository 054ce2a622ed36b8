"""An agent of pydantic-ai with the proxy: URL of the model, and the proxy's command."""

import asyncio
import sys

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def main(model_url: str, command: str, *arguments: str) -> None:
    model = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=model_url, api_key="none"))
    music = MCPToolset(StdioTransport(command, list(arguments)))
    agent = Agent(model, toolsets=[music])
    async with agent:
        history = []
        for word, seconds in (("play", 1.5), ("pause", 0.5), ("volume", 0), ("resume", 6)):
            result = await agent.run(word, message_history=history)
            history = result.all_messages()
            await asyncio.sleep(seconds)


asyncio.run(main(*sys.argv[1:]))
