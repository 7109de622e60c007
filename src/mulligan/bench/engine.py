"""The slot engine against `transformers.generate` in lock-step batches, over the same trials, in one run.

Lock-step is what training loops commonly do: all trials are asked at once, the batch is padded to the longest context,
every turn reads its whole context again, and a turn ends when the slowest reply has ended. Both sides play the same
MineSweeper tasks with the same random nano model, the same prompts and limits, at temperature 1.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from mulligan.bench import Report
from mulligan.envs import registry
from mulligan.types import Message, Sampling, Task

TRIALS = 128
REPLY, EPISODES = 8, 3


def run() -> Report:
    import torch

    from mulligan.models.load import load

    rows: list[tuple[str | float, ...]] = []
    for label, params, style in (
        ("compact view, bare", {"rows": 4, "cols": 5, "view": "compact", "turns": 10}, "bare"),
        ("board view, plain", {}, "plain"),
    ):
        tasks = [registry.make_task("minesweeper", seed, **params) for seed in range(TRIALS)]
        loaded = load("nano:context=4096")
        loaded.model.eval()
        with torch.no_grad():
            slow_turns, slow_tokens, slow = _lock_step(loaded, tasks, style)
        fast_turns, fast_tokens, fast = _engine(loaded, tasks, style)
        rows.append((label, slow_tokens / slow, fast_tokens / fast, (slow / slow_turns) / (fast / fast_turns)))
    title = (
        f"{TRIALS} trials of {EPISODES} episodes, replies of at most {REPLY} tokens, {torch.get_num_threads()} threads"
    )
    return Report(title, ("trials", "lock-step tok/s", "engine tok/s", "times faster"), tuple(rows))


def _engine(loaded: Any, tasks: list[Task], style: str) -> tuple[int, int, float]:
    from mulligan.engine.slots import SlotEngine
    from mulligan.policy.local import LocalPolicy
    from mulligan.trial.runner import run_trial

    policy = LocalPolicy(SlotEngine(loaded.model), loaded.renderer)
    sampling = Sampling(1.0, 1.0, REPLY)

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(
            *(
                run_trial(task, policy, memory="history", style=style, sampling=sampling, episodes=EPISODES)
                for task in tasks
            )
        )

    started = time.perf_counter()
    trials = asyncio.run(all_of_them())
    seconds = time.perf_counter() - started
    replies = [turn.reply for trial in trials for episode in trial.episodes for turn in episode.turns]
    return len(replies), sum(reply.completion_tokens for reply in replies), seconds


class _Asking:
    """A conversation that hands its prompt to the lock-step loop and waits for the round's answer."""

    def __init__(self, room: _LockStep) -> None:
        self.room = room

    async def reply(self, messages: list[Message], sampling: Sampling) -> Any:
        return await self.room.ask(list(messages))

    def close(self) -> None:
        pass


class _LockStep:
    """Collects the prompts of all live trials, then answers them in one padded batch of `generate`."""

    name = "lock-step"

    def __init__(self, loaded: Any) -> None:
        self.loaded = loaded
        self.asked: list[tuple[list[Message], asyncio.Future[Any]]] = []
        self.tokens = 0

    def start(self, task: Task, seed: int) -> Any:
        return _Asking(self)

    async def ask(self, messages: list[Message]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.append((messages, answer))
        return await answer

    def answer_round(self) -> None:
        import torch

        from mulligan.types import Completion

        round_, self.asked = self.asked, []
        prompts = [self._ids(messages) for messages, _ in round_]
        longest = max(map(len, prompts))
        stop = sorted(self.loaded.renderer.stop_ids)
        ids = torch.tensor([[stop[0]] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        found = self.loaded.model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            max_new_tokens=REPLY,
            eos_token_id=stop,
            pad_token_id=stop[0],
        )
        for (_, answer), reply in zip(round_, found[:, longest:].tolist(), strict=True):
            end = next((place + 1 for place, token in enumerate(reply) if token in stop), len(reply))
            self.tokens += end
            answer.set_result(Completion(self.loaded.renderer.decode_reply(reply[:end]), completion_tokens=end))

    def _ids(self, messages: list[Message]) -> list[int]:
        found: list[int] = self.loaded.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return found


def _lock_step(loaded: Any, tasks: list[Task], style: str) -> tuple[int, int, float]:
    from mulligan.trial.runner import run_trial

    room = _LockStep(loaded)
    loaded.model.set_attn_implementation("sdpa")

    async def all_of_them() -> list[Any]:
        trials = [
            asyncio.ensure_future(run_trial(task, room, memory="history", style=style, episodes=EPISODES))
            for task in tasks
        ]
        while not all(trial.done() for trial in trials):
            await asyncio.sleep(0)
            if room.asked and sum(not trial.done() for trial in trials) == len(room.asked):
                room.answer_round()
        return [trial.result() for trial in trials]

    started = time.perf_counter()
    trials = asyncio.run(all_of_them())
    seconds = time.perf_counter() - started
    turns = sum(len(episode.turns) for trial in trials for episode in trial.episodes)
    return turns, room.tokens, seconds
