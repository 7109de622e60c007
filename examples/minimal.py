"""Meta-RL across episodes, the whole method in one file: reads top to bottom, needs only torch and transformers.

    python examples/minimal.py                 about a minute on one core; --seed, --updates, --json

The world: one of eight doors hides gold. An episode is two turns; a turn opens a door or reads the map. The map names
the door, but it hangs at the exit: reading it ends the episode. A trial is up to three episodes on the same task (the
same door) and stops at the gold. Its memory is the transcript: the trial is one sequence of tokens that only grows.

    <episode> d2 empty map d7 <episode> d7 gold
              ^^       ^^^              ^^             sampled by the policy, and trained; the rest is what it is shown

For a single episode the map is worthless: RL learns to open two different doors, and then does so again. Meta-RL pays
an action for what it makes of *later* episodes, and so learns to read the map first and to use it. Between the two
stands "myopic": three episodes with memory, but no credit across them. It learns to use what memory happens to show,
not to go and find it out. So myopic - RL is learned use of memory, and meta-RL - myopic is learned exploration.

Papers: LaMer (arXiv 2512.16848), MAGE (arXiv 2603.03680). Where this file departs from them and from the package:
- A tiny Llama that starts from random weights, cloned from random play, stands for the language model.
- No reflections. One would be sampled after each lost episode that another follows: append a <reflect> token, sample
  on, and treat those tokens as one more action, whose return is G_0 of the next episode and whose advantage is taken
  among the group's reflections at the same n.
- A return is compared with the group's alone and not scaled; in the package a group with few survivors falls back on
  the mean of earlier updates.
- Every reply is one token and every forward pass starts from scratch: no tokenizer, no KV cache.
"""

import argparse
import copy
import json
import time
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

DOORS, TURNS, EPISODES = 8, 2, 3
GAMMA_STEP, GAMMA_TRAJ = 0.95, 0.9  # discounts from turn to turn, and from episode to episode
TASKS, GROUP = 32, 8  # tasks an update, trials of each
LEARNING_RATE, EPOCHS, CLIP, GRADIENT_NORM = 2e-3, 2, 0.2, 1.0
import os

HEED = float(os.environ.get("HEED", 0.3))
WARM_STEPS, EVAL_TASKS = 200, 1024

WORDS = ["<pad>", "<episode>", "empty", "gold", "what?", "map", *(f"d{number}" for number in range(DOORS))]
PAD, EPISODE, EMPTY, GOLD, WHAT, MAP, DOOR_0 = range(7)


# ---- The world ------------------------------------------------------------------------------------------------------


def step(door: int, word: int) -> tuple[int, float, bool]:
    """What is observed, the reward, and whether the episode is over, when `word` is played and `door` has the gold."""
    if word == MAP:
        return door, 0.0, True
    if word == door:
        return GOLD, 1.0, True
    return (EMPTY if word >= DOOR_0 else WHAT), 0.0, False


# ---- A trial: up to N episodes of one task, in one sequence of tokens -----------------------------------------------


class Action(NamedTuple):
    """One sampled token: where it stands, in which episode and turn, and its logprob when it was sampled."""

    position: int
    episode: int
    turn: int
    logprob: float


@dataclass
class Trial:
    """What was said and shown so far, and what it was worth."""

    door: int
    tokens: list[int] = field(default_factory=lambda: [EPISODE])
    actions: list[Action] = field(default_factory=list)
    rewards: list[list[float]] = field(default_factory=lambda: [[]])  # [episode][turn]
    over: bool = False

    def play(self, word: int, logprob: float, episodes: int) -> None:
        """One turn; begins the next episode where one ends without gold and another is left."""
        self.actions.append(Action(len(self.tokens), len(self.rewards) - 1, len(self.rewards[-1]), logprob))
        observation, reward, ended = step(self.door, word)
        self.tokens += [word, observation]
        self.rewards[-1].append(reward)
        if ended or len(self.rewards[-1]) == TURNS:
            self.over = reward > 0 or len(self.rewards) == episodes
            if not self.over:
                self.tokens.append(EPISODE)
                self.rewards.append([])

    def solved_within(self, k: int) -> bool:
        return any(sum(episode) > 0 for episode in self.rewards[:k])


def padded(trials: list[Trial]) -> torch.Tensor:
    """[trial, position]. Padding is on the right, where causal attention never looks, so no mask is needed."""
    width = max(len(trial.tokens) for trial in trials)
    return torch.tensor([trial.tokens + [PAD] * (width - len(trial.tokens)) for trial in trials])


@torch.no_grad()
def play(model: LlamaForCausalLM | None, doors: list[int], episodes: int, generator: torch.Generator) -> list[Trial]:
    """One trial for each of `doors`, all sampled together; without a model, valid words are drawn at random."""
    trials = [Trial(door) for door in doors]
    while running := [trial for trial in trials if not trial.over]:
        if model is None:
            logits = torch.full((len(running), len(WORDS)), -torch.inf)
            logits[:, MAP:] = 0.0
            for row, trial in enumerate(running):
                if MAP in trial.tokens and torch.rand((), generator=generator) < HEED:
                    logits[row, MAP:] = -torch.inf
                    logits[row, trial.door] = 0.0
        else:
            last = torch.tensor([len(trial.tokens) - 1 for trial in running])
            logits = model(input_ids=padded(running)).logits[torch.arange(len(running)), last]
        logprobs = logits.log_softmax(-1)
        drawn = torch.multinomial(logprobs.exp(), 1, generator=generator)
        for trial, word, logprob in zip(running, drawn[:, 0], logprobs.gather(1, drawn)[:, 0], strict=True):
            trial.play(int(word), float(logprob), episodes)
    return trials


# ---- Credit: what an action was worth, and what it was worth compared with the group's ------------------------------


def cross_episode_returns(rewards: list[list[float]], gamma_traj: float) -> list[list[float]]:
    """G_t^(n) = g_t^(n) + Σ_{m>n} γ_traj^(m-n) · g_0^(m), with g_t = Σ_{l≥t} γ_step^(l-t) · r_l.  [episode][turn]"""
    returns: list[list[float]] = []
    following = 0.0  # Σ_{m>n} γ_traj^(m-n-1) · g_0^(m)
    for episode in reversed(rewards):
        inside, column = 0.0, []
        for reward in reversed(episode):
            inside = reward + GAMMA_STEP * inside
            column.append(inside + gamma_traj * following)
        following = inside + gamma_traj * following
        returns.append(column[::-1])
    return returns[::-1]


def advantages(group: list[Trial], gamma_traj: float) -> list[list[float]]:
    """A = G_t^(n) - mean of G_0^(n) over the other trials that played episode n.  [trial][action]

    Trials stop at the gold, so only survivors meet at n; those that stopped are absent, not counted as 0 or as 1. Who
    is there was settled before episode n, so that the mean over the others is a fair baseline.
    """
    returns = [cross_episode_returns(trial.rewards, gamma_traj) for trial in group]
    result: list[list[float]] = []
    for own, trial in zip(returns, group, strict=True):
        result.append([])
        for action in trial.actions:
            others = [other[action.episode][0] for other in returns if other is not own and len(other) > action.episode]
            result[-1].append(own[action.episode][action.turn] - np.mean(others) if others else 0.0)
    return result


# ---- Learning -------------------------------------------------------------------------------------------------------


def action_logprobs(model: LlamaForCausalLM, trials: list[Trial]) -> torch.Tensor:
    """Logprobs of the sampled tokens under the model as it is now, trial after trial.  [action]"""
    tokens = padded(trials)
    logprobs = model(input_ids=tokens).logits.log_softmax(-1)
    row = torch.tensor([row for row, trial in enumerate(trials) for _ in trial.actions])
    position = torch.tensor([action.position for trial in trials for action in trial.actions])
    return logprobs[row, position - 1, tokens[row, position]]


def optimiser_step(model: LlamaForCausalLM, optimiser: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
    optimiser.step()


def warm_start(seed: int) -> LlamaForCausalLM:
    """A fresh model that has learned from random play which words are valid, and nothing about which are good."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(WORDS),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=64,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    doors, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    for _ in range(WARM_STEPS):
        trials = play(None, [int(door) for door in DOOR_0 + doors.integers(DOORS, size=64)], EPISODES, generator)
        optimiser_step(model, optimiser, -action_logprobs(model, trials).mean())
    return model


def train(
    model: LlamaForCausalLM, *, episodes: int, group: int, gamma_traj: float, updates: int, seed: int
) -> LlamaForCausalLM:
    """PPO on groups of trials. One episode a trial is plain RL; γ_traj = 0 is myopic memory."""
    model = copy.deepcopy(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    doors, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    for _ in range(updates):
        tasks = [int(door) for door in DOOR_0 + doors.integers(DOORS, size=TASKS)]
        groups = [play(model, [door] * group, episodes, generator) for door in tasks] if False else None
        trials = play(model, [door for door in tasks for _ in range(group)], episodes, generator)
        groups = [trials[start : start + group] for start in range(0, len(trials), group)]
        compared = [row for members in groups for row in advantages(members, gamma_traj)]
        advantage = torch.tensor([value for row in compared for value in row], dtype=torch.float32)
        sampled = torch.tensor([action.logprob for trial in trials for action in trial.actions])
        for _ in range(EPOCHS):
            ratio = (action_logprobs(model, trials) - sampled).exp()
            gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
            optimiser_step(model, optimiser, -gain.mean())
        import os

        if os.environ.get("DBG") and _ % 1 == 0:
            u = locals().get("u", 0) + 1
            if u % 10 == 0:
                print(
                    u,
                    [round(float(np.mean([t.solved_within(k) for t in trials])), 3) for k in range(1, episodes + 1)],
                    "map1",
                    np.mean([MAP in t.tokens[1:4:2] for t in trials]).round(2),
                    flush=True,
                )
    return model


# ---- The comparison -------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description="Meta-RL across episodes in one file: doors, gold and a map.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    start = time.perf_counter()
    base = warm_start(options.seed)

    def dbg(*a):
        import os

        if os.environ.get("DBG"):
            print(*a, time.perf_counter() - start)

    dbg("warm")
    common = {"updates": options.updates, "seed": options.seed + 1}
    methods = {"warm start": base}
    methods["RL"] = train(base, episodes=1, group=EPISODES * GROUP, gamma_traj=0.0, **common)
    dbg("rl")
    methods["myopic"] = train(base, episodes=EPISODES, group=GROUP, gamma_traj=0.0, **common)
    dbg("myopic")
    methods["meta-RL"] = train(base, episodes=EPISODES, group=GROUP, gamma_traj=GAMMA_TRAJ, **common)
    dbg("meta")
    for name, model in methods.items():
        doors = np.random.default_rng(options.seed + 2)
        tasks = [int(door) for door in DOOR_0 + doors.integers(DOORS, size=EVAL_TASKS)]
        trials = play(model, tasks, EPISODES, torch.Generator().manual_seed(0))
        print(f"{name:12}", *(f"{np.mean([t.solved_within(k) for t in trials]):6.1%}" for k in (1, 2, 3)))
        for t in trials[:3]:
            print("   ", *(WORDS[w] for w in t.tokens))
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main()
