"""A langgraph agent with the tools of langchain-mcp-adapters: URL of the model, and the proxy's command."""

import asyncio
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent


async def main(model_url: str, command: str, *arguments: str) -> None:
    connection = {"command": command, "args": list(arguments), "transport": "stdio"}
    client = MultiServerMCPClient({"music": connection})
    async with client.session("music") as session:  # one proxy for the whole conversation
        model = ChatOpenAI(model="scripted", base_url=model_url, api_key="none")
        agent = create_react_agent(model, await load_mcp_tools(session))
        messages = []
        for word, seconds in (("play", 1.5), ("pause", 0.5), ("volume", 0), ("resume", 6)):
            state = await agent.ainvoke({"messages": [*messages, ("user", word)]})
            messages = state["messages"]
            await asyncio.sleep(seconds)


asyncio.run(main(*sys.argv[1:]))
