"""OpenAI's Agents SDK through the journal's proxy: the base URL and two headers.

pip install openai-agents
mulligan serve --upstream https://HOST/v1 --journal agent.db        # in another terminal
OPENAI_API_KEY=… python examples/journal_openai_agents.py http://127.0.0.1:8790/v1 refund ticket-18
"""

from __future__ import annotations

import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI


def run(base_url: str, task_class: str, episode: str, model: str = "m") -> str:
    """One episode; its outcome is then posted to /mulligan/episodes/EPISODE/outcome."""
    set_tracing_disabled(True)
    client = AsyncOpenAI(
        base_url=base_url,
        api_key=os.environ.get("OPENAI_API_KEY", "none"),
        default_headers={"Mulligan-Class": task_class, "Mulligan-Episode": episode},
    )
    chat = OpenAIChatCompletionsModel(model=model, openai_client=client)  # the Responses API works as well
    agent = Agent(name="support", instructions="You answer customers.", model=chat)
    return str(Runner.run_sync(agent, "a refund for order 18").final_output)


if __name__ == "__main__":
    print(run(*sys.argv[1:]))
