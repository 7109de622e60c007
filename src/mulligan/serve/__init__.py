"""The journal between an agent and its model: a proxy, a server for local models, and a callback of LiteLLM."""
