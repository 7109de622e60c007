"""The endpoint policy at a server, and the ways in which its tests ask it."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.e2e.chat_server import ChatServer

import mulligan
from mulligan.policy.endpoint import EndpointPolicy
from mulligan.trial.runner import run_trial
from mulligan.types import Completion, Message, Sampling, Trial

TASK = mulligan.make_task("minesweeper", seed=3, params={"rows": 4, "cols": 4, "mines": 3})
HELLO: list[Message] = [{"role": "user", "content": "hello"}]
KEY = "sk-very-secret-0123456789"


def policy_at(server: ChatServer, **options: Any) -> EndpointPolicy:
    return EndpointPolicy("tiny", server.base_url, **{"backoff": 0.0, "timeout": 20.0, **options})


def play(policy: EndpointPolicy, **options: Any) -> Trial:
    return asyncio.run(run_trial(TASK, policy, **options))


def ask(policy: EndpointPolicy, seed: int = 0) -> Completion:
    return asyncio.run(policy.start(TASK, seed).reply(HELLO, Sampling()))
