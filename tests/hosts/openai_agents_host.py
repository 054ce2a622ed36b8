"""An agent of openai-agents with the proxy: URL of the model, and the proxy's command."""

import asyncio
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI


async def main(model_url: str, command: str, *arguments: str) -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=model_url, api_key="none")
    parameters = {"command": command, "args": list(arguments)}
    async with MCPServerStdio(parameters, client_session_timeout_seconds=30) as music:
        model = OpenAIChatCompletionsModel(model="scripted", openai_client=client)
        agent = Agent(name="assistant", model=model, mcp_servers=[music])
        history = []
        for word, seconds in (("play", 1.5), ("pause", 0.5), ("volume", 0), ("resume", 6)):
            result = await Runner.run(agent, [*history, {"role": "user", "content": word}])
            history = result.to_input_list()
            await asyncio.sleep(seconds)


asyncio.run(main(*sys.argv[1:]))
