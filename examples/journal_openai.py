"""The ordinary client of OpenAI through the journal's proxy, on tasks that a model cannot know before it was told once.

    pip install openai
    mulligan serve --upstream https://HOST/v1 --journal agent.db --hold-out 0        # in another terminal
    OPENAI_API_KEY=… python examples/journal_openai.py http://127.0.0.1:8790/v1 MODEL

Each round asks for every person's locker. Whoever runs the lockers says afterwards what would have been right.
"""

from __future__ import annotations

import os
import secrets
import sys

import httpx
from openai import OpenAI

LOCKERS = {"Maria": "17", "Tom": "42", "Ana": "86", "Ken": "63", "Lea": "25", "Bob": "91"}


def run(base_url: str, model: str = "m", rounds: int = 3, people: int = len(LOCKERS)) -> list[float]:
    """Ask for the lockers of the first `people` persons, `rounds` times; returns the share of right answers a round."""
    client = OpenAI(base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY", "none"), timeout=600)
    this_run = secrets.token_hex(4)  # an episode ends once, so that each run has its own
    shares = []
    for number in range(rounds):
        right = 0
        for name, locker in list(LOCKERS.items())[:people]:
            episode = f"{name}-{number}-{this_run}"
            answered = client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": f"What is the locker number of {name}?"}],
                temperature=0,
                max_tokens=16,
                extra_headers={"Mulligan-Class": "lockers", "Mulligan-Episode": episode},
            )
            reply = answered.choices[0].message.content or ""
            is_right = locker in reply
            right += is_right
            outcome = {
                "reward": float(is_right),
                "outcome": "right" if is_right else f"it is {locker}",
                "reflection": {"plan": f"the locker number of {name} is {locker}", "applies": name},
            }
            page = f"{base_url.removesuffix('/v1')}/mulligan/episodes/{episode}/outcome"
            httpx.post(page, json=outcome, timeout=60).raise_for_status()
            print(f"round {number + 1}, {name}: {reply!r} ({outcome['outcome']})", flush=True)
        shares.append(right / people)
    return shares


if __name__ == "__main__":
    print("right answers by round:", *(f"{share:.0%}" for share in run(*sys.argv[1:3])))
