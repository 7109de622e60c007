"""A task in the browser: a person plays through the same trial loop as an agent, and sees what the agent would see."""
