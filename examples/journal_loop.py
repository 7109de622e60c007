"""A plain loop whose only change is its base URL and three headers: its model remembers what earlier attempts taught.

    mulligan serve --upstream https://HOST/v1 --journal agent.db        # in another terminal
    OPENAI_API_KEY=… python examples/journal_loop.py http://127.0.0.1:8790/v1 MODEL

The task is made up, so that the loop can say by itself whether an answer was right. In earnest the outcome comes from
your system: the ticket was closed, the tests passed.
"""

from __future__ import annotations

import os
import sys

import httpx

QUESTIONS = {"red": "blue", "up": "down", "hot": "cold"}
"""Asked for a colour or a direction, the shop's customers want the opposite: nobody tells the model."""


def run(base_url: str, model: str = "m", rounds: int = 2) -> list[float]:
    """Play the questions `rounds` times; returns the rewards."""
    key = os.environ.get("OPENAI_API_KEY", "none")
    client = httpx.Client(headers={"Authorization": f"Bearer {key}", "Mulligan-Class": "opposites"}, timeout=300)
    rewards = []
    for number in range(rounds * len(QUESTIONS)):
        word, wanted = list(QUESTIONS.items())[number % len(QUESTIONS)]
        body = {"model": model, "max_tokens": 40, "messages": [{"role": "user", "content": f"{word}? One word."}]}
        answered = client.post(f"{base_url}/chat/completions", json=body).raise_for_status()
        episode = answered.headers["mulligan-episode"]
        reply = answered.json()["choices"][0]["message"]["content"]
        rewards.append(float(wanted in reply.lower()))
        outcome = {
            "reward": rewards[-1],
            "outcome": "the customer was content" if rewards[-1] else f"the customer had wanted the word {wanted}",
            "reflection": {"plan": f"asked {word} answer {wanted}", "applies": f"the customer says {word}"},
        }
        page = f"{base_url.removesuffix('/v1')}/mulligan/episodes/{episode}/outcome"
        client.post(page, json=outcome).raise_for_status()
        print(f"{word!r} -> {reply[:60]!r}: {outcome['outcome']} ({answered.headers['mulligan-journal']})")
    client.close()
    return rewards


if __name__ == "__main__":
    run(*sys.argv[1:3])
