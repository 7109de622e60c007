"""The configuration of a training run: one tree of frozen dataclasses, one for each stage.

Every field can be set in a TOML file (``[algo] gamma_traj = 0.9``) and on the command line (``--algo.gamma-traj 0.9``).
RL is this with ``trial.episodes = 1``; `run.group` then makes the number of episodes per update equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mulligan.errors import ParameterError
from mulligan.types import Memory, ParamValue, Restart, Stop

Params = dict[str, ParamValue]


@dataclass(frozen=True)
class RunConfig:
    """How much is trained, and what is kept."""

    seed: int = 0
    """Root of all randomness of the run."""
    updates: int = 80
    """Updates of the policy."""
    tasks: int = 32
    """Tasks an update plays."""
    group: int = 8
    """Trials of each task."""
    retries: int = 2
    """How often a trial that failed outside agent and task is played again."""
    concurrency: int = 1024
    """Trials under way at a time."""
    threads: int = 0
    """Threads of torch on CPU; 0 leaves torch's own choice."""
    checkpoint_every: int = 10
    """Updates between two checkpoints."""
    keep: int = 2
    """Checkpoints kept."""
    save_trials_every: int = 10
    """Updates between two whose trials are kept; 0 keeps none."""
    validate_every: int = 0
    """Updates between two evaluations on validation tasks; 0 for none."""
    validation_tasks: int = 100
    """Tasks of such an evaluation."""
    max_bad_steps: int = 3
    """Steps in a row with a loss that is not finite, before the run stops."""


@dataclass(frozen=True)
class TaskConfig:
    """What is played."""

    env: str = "minesweeper"
    """An environment, or a mixture with weights: ``minesweeper:2,sokoban:1``."""
    params: Params = field(default_factory=dict)
    """Parameters of the environment, all environments of a mixture that know them."""
    seed_set: str = "train"
    """The set training tasks come from."""
    turns_from: int = 0
    """Curriculum: the turn limit starts here and reaches the task's own at half of the updates; 0 for none."""


@dataclass(frozen=True)
class TrialConfig:
    """How a trial is played; see `mulligan.trial.settings.TrialSettings`."""

    episodes: int = 3
    memory: Memory | None = None
    style: str = "plain"
    stop: Stop | None = None
    restart: Restart | None = None
    memory_tokens: int = 4096
    max_reflections: int = 5
    window: int | None = None
    temperature: float = 1.0
    max_tokens: int = 512
    reflection_tokens: int = 512
    env_timeout: float | None = None
    tasks: Literal["same", "related"] = "same"
    """"related": each episode of a trial is another task of the same class."""


@dataclass(frozen=True)
class ModelConfig:
    """What is trained."""

    name: str = "nano"
    """``nano``, ``nano:hidden=128,layers=3``, ``hf:PATH_OR_NAME``, or a run folder."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    device: str = "auto"
    lora_rank: int = 0
    """0 trains all weights."""
    lora_alpha: int = 0
    """0: twice the rank."""
    gradient_checkpointing: bool = False


@dataclass(frozen=True)
class EngineConfig:
    """How replies are sampled."""

    slots: int = 256
    """Sequences at a time."""
    context: int = 0
    """Longest sequence; 0: the model's own limit."""
    chunk: int = 512
    """Prompt tokens of one sequence that one step takes in at most."""


@dataclass(frozen=True)
class WarmstartConfig:
    """Supervised training on scripted play, before the first update; `steps = 0` leaves it out."""

    steps: int = 0
    trials: int = 4000
    """Demonstrated trials."""
    skill: float = 0.7
    """Share of the demonstrator's own moves; the rest are random legal ones."""
    recall: float = 0.2
    """Share of its moves that use what earlier episodes showed."""
    batch: int = 192
    """Sequences a step."""
    lr: float = 2e-3
    weight_decay: float = 0.01
    warmup: int = 30


@dataclass(frozen=True)
class AlgoConfig:
    """From rewards to the loss; see `docs/maths.md`."""

    estimator: str = "gigpo"
    form: str = "paper"
    gamma_step: float = 0.95
    gamma_traj: float = 0.6
    baseline: Literal["leave_one_out", "group", "agent"] = "leave_one_out"
    scale: Literal["std", "none", "agent"] = "std"
    step_weight: float = 1.0
    """w of GiGPO's step term."""
    gae_lambda: float = 0.95
    shaping: float = 0.0
    """Weight of the environment's progress; never crosses an episode."""
    invalid_penalty: float = 0.1
    length_penalty: float = 0.0
    reflection_weight: float = 1.0
    """Weight of reflection tokens in the loss."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl_weight: float = 0.0
    """Weight of KL to the policy that training started from."""
    entropy_weight: float = 0.0
    entropy_end: float | None = None
    """Entropy weight at the last update; None keeps it constant."""
    aggregate: Literal["token", "turn", "trial"] = "token"
    logp_old: Literal["auto", "sampler", "trainer"] = "auto"
    """Whose log-probabilities the ratio is taken to; auto: the sampler's on CPU in float32, else the trainer's own."""
    sampler_weight_limit: float = 2.0
    dynamic_sampling: bool = False
    """Replace groups in which every trial has the same return, once."""
    value_weight: float = 0.5
    """Weight of the critic's loss (ppo)."""
    value_lr: float = 1e-3
    """Learning rate of the critic's heads (ppo)."""


@dataclass(frozen=True)
class OptimConfig:
    """The optimiser."""

    lr: float = 6e-4
    lr_end: float = 0.2
    """Share of `lr` at the last update; the fall is linear."""
    warmup: int = 10
    """Updates over which the rate rises."""
    epochs: int = 2
    """Passes over the data of an update."""
    minibatches: int = 1
    """Optimiser steps of a pass."""
    grad_clip: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.0
    tokens: int = 16384
    """Tokens of a micro-batch; halved when memory runs out."""


@dataclass(frozen=True)
class Config:
    """Everything a training run is told."""

    run: RunConfig = RunConfig()
    task: TaskConfig = field(default_factory=TaskConfig)
    trial: TrialConfig = TrialConfig()
    model: ModelConfig = ModelConfig()
    engine: EngineConfig = EngineConfig()
    warmstart: WarmstartConfig = WarmstartConfig()
    algo: AlgoConfig = AlgoConfig()
    optim: OptimConfig = OptimConfig()

    def __post_init__(self) -> None:
        positive = {
            "run.updates": self.run.updates,
            "run.tasks": self.run.tasks,
            "run.group": self.run.group,
            "run.checkpoint_every": self.run.checkpoint_every,
            "run.keep": self.run.keep,
            "trial.episodes": self.trial.episodes,
            "optim.epochs": self.optim.epochs,
            "optim.minibatches": self.optim.minibatches,
            "optim.tokens": self.optim.tokens,
            "engine.slots": self.engine.slots,
        }
        for name, value in positive.items():
            if value < 1:
                raise ParameterError(f"{name}={value} cannot be; give at least 1")
        if self.trial.temperature <= 0:
            raise ParameterError(f"trial.temperature={self.trial.temperature} samples nothing new; give more than 0")
        if self.run.group < 2 and self.algo.estimator != "ppo":
            raise ParameterError(f"run.group={self.run.group}: {self.algo.estimator} compares trials; give at least 2")
