"""Meta-RL across episodes, the whole method in one file that reads from top to bottom. Needs torch and transformers.

    python examples/minimal.py            half a minute on one core; options: --seed, --updates, --json

The world: one of four doors hides gold. An episode is one turn: open a door, or read the map. The map names the door,
but it hangs at the exit, and reading it ends the episode. A trial is up to three episodes of the same task (the same
door) and stops at the gold. Memory is the transcript: a trial is one sequence of tokens that only grows, such as

    | d2 empty | map d0 | d0 gold         "|" begins an episode; d2, map and d0 are sampled by the policy, and trained

In a single episode the map is worthless, so RL learns to open doors. Meta-RL pays an action for what it makes of the
*later* episodes too: it learns to read the map first, and then to use it. Between them stands "myopic": three episodes
with memory, no credit across them. It learns to use what memory happens to show, but not to go and find it out.
Myopic - RL is the learned use of memory, meta-RL - myopic the learned exploration. By hand, in per cent:

    p@1 p@2 p@3   p@k: solved in one of the first k episodes
     25  44  58   any door each time: 1 - (3/4)^k. A habit of one door: 25 25 25. The best RL can do is p@1 = 25
     25  50  75   no door twice: the best without the map
      0 100 100   first the map, then its door

Papers: LaMer (arXiv 2512.16848), MAGE (arXiv 2603.03680). Where this file departs from them and from the package:
- The language model is a tiny Llama with random weights, warm-started on random play. That play follows the map, once
  read, half of the time, as a model that knows language can be expected to, and does not prefer to read it. With a
  share of 0.15 the map is given up before its use is learned, and meta-RL ends like myopic.
- No reflections. One would be sampled after every lost episode that another follows: append a "reflect" token, sample
  on, and add what was sampled as one more action, whose return is G_0 of the next episode and whose advantage is taken
  among the group's reflections at the same n.
- Advantages are not scaled, and an action without any other survivor to compare with gets 0. The package falls back
  on the mean of earlier updates there.
- A reply is one token, and every pass starts from scratch: no tokenizer, no KV cache. The door is all there is to a
  task and nobody sees it, so training and evaluation draw from the same four.
"""

import argparse
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

DOORS, TURNS, EPISODES = 4, 1, 3
GAMMA_STEP, GAMMA_TRAJ = 0.95, 0.9  # discounts from turn to turn (one turn here: without effect), episode to episode
TASKS, GROUP = 32, 8  # tasks an update, and trials of each; RL has three times the trials, so as many episodes
LEARNING_RATE, EPOCHS, CLIP, GRADIENT_NORM = 2e-3, 2, 0.2, 1.0
WARM_STEPS, FOLLOWS_MAP = 200, 0.5
EVAL_TASKS = 1000

WORDS = ["<pad>", "|", "empty", "gold", "what?", "map", *(f"d{number}" for number in range(DOORS))]
PAD, EPISODE, EMPTY, GOLD, WHAT, MAP, FIRST_DOOR = range(7)


# ---- The world ------------------------------------------------------------------------------------------------------


def step(door: int, word: int) -> tuple[int, float, bool]:
    """The observation, the reward and whether the episode ends, when `word` is played and `door` hides the gold."""
    if word == MAP:
        return door, 0.0, True
    if word == door:
        return GOLD, 1.0, True
    return (EMPTY if word >= FIRST_DOOR else WHAT), 0.0, False


def draw_tasks(count: int, generator: np.random.Generator) -> list[int]:
    return [int(door) for door in FIRST_DOOR + generator.integers(DOORS, size=count)]


# ---- A trial: up to N episodes of one task, in one sequence of tokens -----------------------------------------------


class Action(NamedTuple):
    """One sampled token: where it stands, its episode and turn, and its logprob when it was sampled."""

    position: int
    episode: int
    turn: int
    logprob: float


@dataclass
class Trial:
    """What was said and shown so far, and what it earned."""

    door: int
    tokens: list[int] = field(default_factory=lambda: [EPISODE])
    actions: list[Action] = field(default_factory=list)
    rewards: list[list[float]] = field(default_factory=lambda: [[]])  # [episode][turn]
    over: bool = False

    def play(self, word: int, logprob: float, episodes: int) -> None:
        """One turn. Where an episode ends without gold and another is left, that one begins."""
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
    """[trial, position]. Padding is on the right, where causal attention never looks, so there is no mask."""
    width = max(len(trial.tokens) for trial in trials)
    return torch.tensor([trial.tokens + [PAD] * (width - len(trial.tokens)) for trial in trials])


def random_player(trials: list[Trial]) -> torch.Tensor:
    """Logits of the next word: any valid one, but with a map in memory, often the door it named. [trial, word]"""
    chances = torch.zeros(len(trials), len(WORDS))
    chances[:, MAP:] = 1 / (1 + DOORS)
    for row, trial in enumerate(trials):
        if MAP in trial.tokens:
            chances[row] *= 1 - FOLLOWS_MAP
            chances[row, trial.door] += FOLLOWS_MAP
    return chances.log()


def model_player(model: LlamaForCausalLM, trials: list[Trial]) -> torch.Tensor:
    """Logits of the next word, read at each trial's last token. [trial, word]"""
    last = torch.tensor([len(trial.tokens) - 1 for trial in trials])
    return model(input_ids=padded(trials)).logits[torch.arange(len(trials)), last]


@torch.no_grad()
def play(
    player: Callable[[list[Trial]], torch.Tensor], doors: list[int], episodes: int, generator: torch.Generator
) -> list[Trial]:
    """One trial for each of `doors`, sampled as one batch from which trials drop out as they end."""
    trials = [Trial(door) for door in doors]
    while running := [trial for trial in trials if not trial.over]:
        logprobs = player(running).log_softmax(-1)
        drawn = torch.multinomial(logprobs.exp(), 1, generator=generator)
        kept = logprobs.gather(1, drawn)
        for trial, word, logprob in zip(running, drawn[:, 0].tolist(), kept[:, 0].tolist(), strict=True):
            trial.play(word, logprob, episodes)
    return trials


# ---- Credit: what an action was worth, by itself and compared with the group ----------------------------------------


def cross_episode_returns(rewards: list[list[float]], gamma_traj: float) -> list[list[float]]:
    """G_t^(n) = g_t^(n) + Σ_{m>n} γ_traj^(m-n) · g_0^(m), where g_t^(n) = Σ_{l≥t} γ_step^(l-t) · r_l^(n) is the return
    inside the episode. [episode][turn]
    """
    returns: list[list[float]] = []
    following = 0.0  # Σ_{m>n} γ_traj^(m-n-1) · g_0^(m)
    for episode in reversed(rewards):
        inside, of_turns = 0.0, []
        for reward in reversed(episode):
            inside = reward + GAMMA_STEP * inside
            of_turns.append(inside + gamma_traj * following)
        following = inside + gamma_traj * following
        returns.append(of_turns[::-1])
    return returns[::-1]


def advantages(group: list[Trial], gamma_traj: float) -> list[float]:
    """G_t^(n) - mean of G_0^(n) over the other trials of the task that played episode n. [action], trial after trial

    Trials stop at the gold, so that only survivors meet at n: those that stopped are absent, not counted as 0 or 1.
    Who is there was settled before episode n, hence the mean over the *others* depends on no action of n: no bias.
    """
    result = []
    returns = [cross_episode_returns(trial.rewards, gamma_traj) for trial in group]
    for trial, own in zip(group, returns, strict=True):
        for action in trial.actions:
            n = action.episode
            others = [other[n][0] for other in returns if other is not own and len(other) > n]
            result.append(own[n][action.turn] - sum(others) / len(others) if others else 0.0)
    return result


# ---- Learning -------------------------------------------------------------------------------------------------------


def action_logprobs(model: LlamaForCausalLM, trials: list[Trial]) -> torch.Tensor:
    """Logprobs of the sampled tokens, and of no others, under the model as it is now. [action], trial after trial"""
    tokens = padded(trials)
    row = torch.tensor([row for row, trial in enumerate(trials) for _ in trial.actions])
    position = torch.tensor([action.position for trial in trials for action in trial.actions])
    logits = model(input_ids=tokens).logits[row, position - 1]  # a token is predicted from the one before it
    return logits.log_softmax(-1).gather(1, tokens[row, position][:, None])[:, 0]


def descend(model: LlamaForCausalLM, optimiser: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
    optimiser.step()


def warm_start(seed: int) -> LlamaForCausalLM:
    """A fresh model that imitates the random player: its words are valid, its choices are not yet good."""
    torch.manual_seed(seed)  # the weights; everything that is drawn later has a generator of its own
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=EPISODES * (1 + 2 * TURNS),
    )
    model = LlamaForCausalLM(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    task_generator, word_generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    for _ in range(WARM_STEPS):
        trials = play(random_player, draw_tasks(64, task_generator), EPISODES, word_generator)
        descend(model, optimiser, -action_logprobs(model, trials).mean())
    return model


def train(
    start: LlamaForCausalLM, *, episodes: int, group: int, gamma_traj: float, updates: int, seed: int
) -> LlamaForCausalLM:
    """PPO on groups of trials. Trials of one episode make it RL, γ_traj = 0 makes it myopic; else it is meta-RL."""
    model = copy.deepcopy(start)
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    task_generator, word_generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    for _ in range(updates):
        doors = [door for door in draw_tasks(TASKS, task_generator) for _ in range(group)]
        trials = play(partial(model_player, model), doors, episodes, word_generator)
        groups = [trials[first : first + group] for first in range(0, len(trials), group)]
        advantage = torch.tensor([value for members in groups for value in advantages(members, gamma_traj)])
        sampled = torch.tensor([action.logprob for trial in trials for action in trial.actions])
        for _ in range(EPOCHS):
            ratio = (action_logprobs(model, trials) - sampled).exp()
            gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
            descend(model, optimiser, -gain.mean())
    return model


# ---- The comparison: one start, one protocol of three episodes for all ----------------------------------------------


def evaluate(model: LlamaForCausalLM, seed: int) -> tuple[list[float], str]:
    """p@1 … p@N on the same tasks for every model, and the first trial that was not solved at once, in words."""
    doors = draw_tasks(EVAL_TASKS, np.random.default_rng(seed))
    trials = play(partial(model_player, model), doors, EPISODES, torch.Generator().manual_seed(seed))
    rates = [sum(trial.solved_within(k) for trial in trials) / len(trials) for k in range(1, EPISODES + 1)]
    shown = next((trial for trial in trials if not trial.solved_within(1)), trials[0])
    return rates, " ".join(WORDS[token] for token in shown.tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description="Meta-RL across episodes in one file: four doors, gold and a map.")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same numbers")
    parser.add_argument("--updates", type=int, default=50, help="of each method (default: 50)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args()
    torch.set_num_threads(1)  # for a model of this size a second thread costs more than it brings

    start = warm_start(options.seed)
    learn = partial(train, start, updates=options.updates, seed=options.seed + 1)
    methods: dict[str, Callable[[], LlamaForCausalLM]] = {
        "warm start": lambda: start,
        "RL": lambda: learn(episodes=1, group=EPISODES * GROUP, gamma_traj=0.0),
        "myopic": lambda: learn(episodes=EPISODES, group=GROUP, gamma_traj=0.0),
        "meta-RL": lambda: learn(episodes=EPISODES, group=GROUP, gamma_traj=GAMMA_TRAJ),
    }
    result: dict[str, list[float]] = {}
    if not options.json:
        print(f"{'':10}", *(f"{f'p@{k}':>6}" for k in range(1, EPISODES + 1)), "  a trial not solved at once")
    for name, make in methods.items():
        result[name], trial = evaluate(make(), options.seed + 2)
        if not options.json:
            print(f"{name:10}", *(f"{100 * rate:6.1f}" for rate in result[name]), f"  {trial}", flush=True)
    if options.json:
        print(json.dumps({"seed": options.seed, "updates": options.updates, "p": result}))


if __name__ == "__main__":
    main()
