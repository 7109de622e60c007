"""Rollouts in lock-step, as training loops commonly play them: what `bench step` is compared with.

Everybody is asked at once, `transformers.generate` reads the whole context again, and the slowest reply ends the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from mulligan.types import Completion, Message, Sampling, Task


class _LockStep:
    """A policy that collects the prompts of all live trials and answers them in one padded batch of `generate`."""

    name = "lock-step"

    def __init__(self, loaded: Any, limit: int, tokens: list[int]) -> None:
        self.loaded, self.limit, self.tokens = loaded, limit, tokens
        self.asked: list[tuple[list[Message], asyncio.Future[Completion]]] = []

    def start(self, task: Task, seed: int) -> _LockStep:
        return self  # the messages are all that a conversation has

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self.asked.append((list(messages), answer))
        return await answer

    def close(self) -> None:
        pass

    def answer_round(self) -> None:
        import torch

        asked, self.asked = self.asked, []
        renderer, model = self.loaded.renderer, self.loaded.model
        prompts = [renderer.opening(messages) for messages, _ in asked]
        longest = max(map(len, prompts))
        stop = sorted(renderer.stop_ids)
        ids = torch.tensor([[stop[0]] * (longest - len(prompt)) + prompt for prompt in prompts], device=model.device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=model.device)
        options = {"do_sample": True, "temperature": 1.0, "top_k": 0, "eos_token_id": stop, "pad_token_id": stop[0]}
        with torch.no_grad():
            sequences = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=self.limit, **options)
        for (_, answer), reply in zip(asked, sequences[:, longest:].tolist(), strict=True):
            end = next((number + 1 for number, token in enumerate(reply) if token in stop), len(reply))
            self.tokens.append(end)
            answer.set_result(Completion(renderer.decode_reply(reply[:end]), completion_tokens=end))


def play(loaded: Any, config: Any, tokens: list[int]) -> None:
    """Play the trials of an update in lock-step; the sampled tokens of each reply are added to `tokens`."""
    from mulligan.rollout.groups import Mixture, draw_tasks
    from mulligan.trial.runner import run_trial

    policy = _LockStep(loaded, config.trial.sampling.max_tokens, tokens)
    mixture = Mixture.parse(config.task.env, config.task.params)
    draws = draw_tasks(mixture, config.run.tasks, seed=0, update=0)
    settings = config.trial
    loaded.model.eval()
    loaded.model.set_attn_implementation("sdpa")

    async def play_all() -> None:
        trials = [
            asyncio.ensure_future(run_trial(draw.task, policy, settings=settings, index=index))
            for draw in draws
            for index in range(config.run.group)
        ]
        while not all(trial.done() for trial in trials):
            await asyncio.sleep(0)
            if policy.asked and sum(not trial.done() for trial in trials) == len(policy.asked):
                policy.answer_round()

    asyncio.run(play_all())
