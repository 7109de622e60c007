"""LangGraph through the journal's proxy: the base URL and two headers.

pip install langgraph langchain-openai
mulligan serve --upstream https://HOST/v1 --journal agent.db        # in another terminal
OPENAI_API_KEY=… python examples/journal_langgraph.py http://127.0.0.1:8790/v1 refund ticket-18
"""

from __future__ import annotations

import os
import sys

from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph


def run(base_url: str, task_class: str, episode: str, model: str = "m") -> str:
    """One episode; its outcome is then posted to /mulligan/episodes/EPISODE/outcome."""
    chat = ChatOpenAI(
        model=model,
        base_url=base_url,
        api_key=os.environ.get("OPENAI_API_KEY", "none"),
        default_headers={"Mulligan-Class": task_class, "Mulligan-Episode": episode},
    )
    graph = StateGraph(MessagesState)
    graph.add_node("agent", lambda state: {"messages": [chat.invoke(state["messages"])]})
    graph.add_edge(START, "agent")
    state = graph.compile().invoke({"messages": [("user", "a refund for order 18")]})
    return str(state["messages"][-1].content)


if __name__ == "__main__":
    print(run(*sys.argv[1:]))
