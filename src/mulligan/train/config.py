"""The configuration of a training run: one tree of frozen dataclasses, one for each stage.

Every field can be set in a TOML file (``[algo] gamma_traj = 0.9``) and on the command line (``--algo.gamma-traj 0.9``).
RL is this with ``trial.episodes = 1``; `run.group` then makes the number of episodes per update equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal, cast, get_args

from mulligan.errors import ParameterError, UnknownName
from mulligan.trial.settings import TrialSettings
from mulligan.types import Memory, ParamValue, Restart, Sampling, Stop

Params = dict[str, ParamValue]


@dataclass(frozen=True)
class RunConfig:
    """How much is trained, and what is kept."""

    seed: int = 0
    """Root of all randomness of the run."""
    updates: int = 80
    """Updates of the policy; 0 for a warm start alone, which is evaluated on validation tasks once. A run that is
    resumed with another number keeps the schedules it began with (learning rate, entropy weight, curriculum): added
    updates go on with their last values, and a shorter run ends before it gets there."""
    tasks: int = 32
    """Tasks an update plays."""
    group: int = 8
    """Trials of each task."""
    retries: int = 2
    """How often a trial that failed outside agent and task is played again."""
    concurrency: int = 1024
    """Trials under way at a time, of each update that is played."""
    staleness: int = 0
    """Updates whose trials may begin while the last trials of this update are still played, so that the device does not
    wait for the slowest: they begin with weights that are so many updates old at most. A resumed run then is not the
    same to the bit. 0: every trial is played with the newest weights."""
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
    """Tasks of such an evaluation, of each environment."""
    diversity_tasks: int = 0
    """Of them, at most so many are played 32 times at each evaluation to see how diverse play is; 0 for none."""
    validation_episodes: int = 3
    """Episodes of its trials, whatever the run trains with."""
    max_bad_steps: int = 3
    """Steps in a row with a loss that is not finite, before the run stops."""


@dataclass(frozen=True)
class TaskConfig:
    """What is played."""

    env: str = "minesweeper"
    """An environment, or a mixture with weights: ``minesweeper:2,sokoban:1``. Commas in brackets belong to a name:
    ``openspiel:hex(num_cols=3,num_rows=4):2,kuhn``."""
    params: Params = field(default_factory=dict)
    """Parameters of the environment, all environments of a mixture that know them."""
    seed_set: str = "train"
    """The set training tasks come from."""
    turns_from: int = 0
    """Curriculum: the turn limit starts here and reaches the task's own at half of the updates that the run began with;
    0 for none."""


@dataclass(frozen=True)
class TrialConfig:
    """How a trial is played; see `mulligan.trial.settings.TrialSettings`."""

    episodes: int = 3
    """Episodes a trial has at most; 1 is RL."""
    memory: Memory | None = None
    """What of earlier episodes the next one sees; default: as the style says."""
    style: str = "plain"
    """How the agent is asked to answer: plain, note, zero-shot, react, reflexion, bare."""
    stop: Stop | None = None
    """End the trial at the first success, or never; none: as the environment says."""
    restart: Restart | None = None
    """Repeat an episode exactly, or redraw chance; none: as the environment says."""
    memory_tokens: int = 4096
    """Budget of the memory shown to an episode."""
    max_reflections: int = 5
    """How many reflections are shown, the newest ones."""
    window: int | None = None
    """Show only the last so many turns of an episode; none shows all of it."""
    temperature: float = 1.0
    """Of sampling; log-probabilities are those of the tempered distribution."""
    max_tokens: int = 512
    """Token limit of a reply."""
    reflection_tokens: int = 512
    """Token limit of a reflection."""
    env_timeout: float | None = None
    """Seconds a step of the environment may take before it counts as hung; none trusts it."""
    tasks: Literal["same", "related"] = "same"
    """"related": each episode of a trial is another task of the same class."""


@dataclass(frozen=True)
class ModelConfig:
    """What is trained."""

    name: str = "nano"
    """``nano``, ``nano:hidden=128,layers=3``, ``hf:PATH_OR_NAME``, or a run folder, to go on from its last weights. One
    that lies beside the new run is kept as ``../NAME``, so that both can be moved."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the weights; auto: bfloat16 on a GPU, float32 on CPU."""
    device: str = "auto"
    """``cpu``, ``cuda``, ``cuda:1``; auto: a GPU where there is one."""
    lora_rank: int = 0
    """0 trains all weights."""
    lora_alpha: int = 0
    """0: twice the rank."""
    gradient_checkpointing: bool = False
    """Compute activations twice rather than keep them: slower, in less memory."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Have torch.compile fuse the layers for training, once a run; auto: on a GPU."""


@dataclass(frozen=True)
class EngineConfig:
    """How replies are sampled."""

    slots: int = 256
    """Sequences at a time; on a GPU, as many of them as its memory holds at the run's context."""
    context: int = 0
    """Longest sequence; 0: what a trial can need, fixed as a number when the run begins and kept in its folder."""
    chunk: int = 512
    """Prompt tokens of one sequence that one step takes in at most (on a GPU the engine chooses)."""
    kind: Literal["auto", "slots", "graphs"] = "auto"
    """slots: through the model's own code, any model and device; graphs: CUDA graphs over known families; auto: graphs
    on a GPU where the family is known."""
    share: bool = True
    """graphs: read once what prompts begin with in common, such as the rules."""


@dataclass(frozen=True)
class WarmstartConfig:
    """Supervised training on scripted play, before the first update; `steps = 0` leaves it out."""

    steps: int = 0
    """Optimiser steps; 0 for no warm start."""
    trials: int = 4000
    """Demonstrated trials."""
    processes: int = 1
    """Processes that play them: the same trials, sooner."""
    episodes: int = 3
    """Episodes of a demonstrated trial: the same for RL and meta-RL, so that both start from the same weights."""
    player: str = "expert"
    """Who demonstrates: the environment's expert or another scripted player that it has, as Sokoban its hasty one."""
    skill: float = 0.7
    """Share of the demonstrator's own moves; the rest are random legal ones, or hasty ones."""
    recall: float = 0.2
    """Share of its moves that use what earlier episodes showed."""
    params: str = ""
    """Parameters of the environment in which demonstrations differ: ``kind=all``. What training leaves out for
    evaluation can so be demonstrated, and reinforced nowhere."""
    memory: str = ""
    """Memories that demonstrated trials have, in turn: ``history,reflection``. Empty: as `trial.memory` says. From one
    warm start with several, agents with any of them can be trained."""
    batch: int = 192
    """Sequences a step."""
    optimiser: Literal["adamw", "muon"] = "adamw"
    """Of the warm start; muon steps the matrices inside the layers by Muon and all else by AdamW. It needs fewer steps
    where a model is trained from nothing."""
    lr: float = 2e-3
    """Highest learning rate; it falls along a cosine to a tenth."""
    weight_decay: float = 0.01
    """Of either, during the warm start."""
    warmup: int = 30
    """Steps over which the rate rises."""
    checkpoint_every: int = 100
    """Steps after which it is saved how far the warm start is."""


@dataclass(frozen=True)
class AlgoConfig:
    """From rewards to the loss; see `docs/maths.md`."""

    estimator: str = "gigpo"
    """Of advantages: gigpo, grpo, rloo, reinforce_pp, ppo."""
    form: str = "paper"
    """Of returns across episodes: paper, chained, difference, final."""
    gamma_step: float = 0.95
    """Discount from turn to turn within an episode."""
    gamma_traj: float = 0.6
    """Discount from episode to episode: what solving it next time is worth now."""
    baseline: Literal["leave_one_out", "group", "agent"] = "leave_one_out"
    """What a return is compared with: the others of its group, the group with itself, the agent's own mean."""
    scale: Literal["std", "none", "agent"] = "std"
    """What advantages are divided by: the group's spread, nothing, the agent's own spread."""
    step_weight: float = 1.0
    """w of GiGPO's step term."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation (ppo)."""
    shaping: float = 0.0
    """Weight of the environment's progress; never crosses an episode."""
    invalid_penalty: float = 0.1
    """Taken from a reply that names no legal action; never crosses an episode."""
    length_penalty: float = 0.0
    """Taken from a reply as long as its limit; it rises linearly from half of that."""
    reflection_weight: float = 1.0
    """Weight of reflection tokens in the loss."""
    clip_low: float = 0.2
    """The ratio is clipped below 1 less this."""
    clip_high: float = 0.2
    """The ratio is clipped above 1 plus this."""
    kl_weight: float = 0.0
    """Weight of KL to the policy that training started from."""
    entropy_weight: float = 0.0
    """Weight of the entropy bonus, at the first update."""
    entropy_end: float | None = None
    """Entropy weight at the last update that the run began with; None keeps it constant."""
    reflection_entropy: bool = False
    """Whether the entropy bonus falls on reflections too: it makes actions explore, and reflections untrue."""
    aggregate: Literal["token", "turn", "trial"] = "token"
    """What counts alike in the loss: tokens, turns or trials."""
    logp_old: Literal["auto", "sampler", "trainer"] = "auto"
    """Whose log-probabilities the ratio is taken to; auto: the sampler's on CPU in float32 without
    staleness, else the trainer's own."""
    sampler_weight_limit: float = 2.0
    """Highest weight of a token where trainer and sampler disagree."""
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
    """Learning rate, of AdamW."""
    lr_end: float = 0.2
    """Share of `lr` at the last update that the run began with; the fall is linear."""
    warmup: int = 10
    """Updates over which the rate rises."""
    epochs: int = 2
    """Passes over the data of an update."""
    minibatches: int = 1
    """Optimiser steps of a pass."""
    grad_clip: float = 1.0
    """Norm that gradients are clipped to."""
    beta1: float = 0.9
    """Decay of the mean of gradients."""
    beta2: float = 0.95
    """Decay of their squares."""
    weight_decay: float = 0.0
    """Of AdamW."""
    tokens: int = 0
    """Tokens of a micro-batch; halved when memory runs out, and doubled again later if it can be. 0: as suits the model
    and the device, 16384 on CPU and at most 65536 on a GPU."""
    share: Literal["auto", "on", "off"] = "auto"
    """Compute once what all rows of a step begin with, such as the rules; auto: on a GPU in half precision."""


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
        for least, names in _LEAST.items():
            for name in names:
                value = self._at(name)
                if not value >= least:  # also where it is not a number
                    raise ParameterError(f"{name}={value:g} cannot be; give at least {least}")
        for name in _SHARES:
            if not 0.0 <= self._at(name) <= 1.0:
                raise ParameterError(f"{name}={self._at(name):g} cannot be; give a number from 0 to 1")
        for name in _LESS_THAN_1:
            if not 0.0 <= self._at(name) < 1.0:
                raise ParameterError(f"{name}={self._at(name):g} cannot be; give 0 or more, less than 1")
        for name in _MORE_THAN_0:
            if not self._at(name) > 0.0:
                raise ParameterError(f"{name}={self._at(name):g} cannot be; give more than 0")
        if self.run.updates == 0 and not self.warmstart.steps:
            raise ParameterError("run.updates=0 trains nothing; 0 is for a warm start alone")
        if self.run.group < 2 and self.algo.estimator != "ppo":
            raise ParameterError(f"run.group={self.run.group}: {self.algo.estimator} compares trials; give at least 2")

    def _at(self, name: str) -> float:
        section, _, entry = name.partition(".")
        return float(getattr(getattr(self, section), entry))


_LEAST = {
    0: (
        "run.updates", "run.retries", "run.staleness", "run.threads", "run.save_trials_every", "run.validate_every",
        "run.diversity_tasks", "task.turns_from",
        "model.lora_rank", "model.lora_alpha", "engine.context", "warmstart.steps", "warmstart.weight_decay",
        "warmstart.warmup", "algo.shaping", "algo.invalid_penalty", "algo.length_penalty", "algo.reflection_weight",
        "algo.clip_high", "algo.kl_weight", "algo.entropy_weight", "algo.value_weight", "optim.warmup",
        "optim.weight_decay", "optim.tokens",
    ),
    1: (
        "run.tasks", "run.group", "run.concurrency", "run.checkpoint_every", "run.keep", "run.validation_tasks",
        "run.validation_episodes", "run.max_bad_steps", "trial.episodes", "trial.max_tokens", "trial.reflection_tokens",
        "trial.memory_tokens", "trial.max_reflections", "engine.slots", "engine.chunk", "warmstart.trials",
        "warmstart.episodes", "warmstart.batch", "warmstart.checkpoint_every", "optim.epochs", "optim.minibatches",
    ),
}  # fmt: skip
_SHARES = (
    "algo.gamma_step", "algo.gamma_traj", "algo.gae_lambda", "algo.clip_low", "warmstart.skill", "warmstart.recall",
    "optim.lr_end",
)  # fmt: skip
_LESS_THAN_1 = ("optim.beta1", "optim.beta2")
_MORE_THAN_0 = (
    "trial.temperature", "optim.lr", "optim.grad_clip", "warmstart.lr", "algo.value_lr", "algo.sampler_weight_limit",
)  # fmt: skip


def shown_memories(config: Config) -> tuple[Memory, ...]:
    """The memories that demonstrated trials have, in turn."""
    named = [name.strip() for name in config.warmstart.memory.split(",") if name.strip()]
    found: list[Memory] = []
    for name in named:
        if name not in get_args(Memory):
            raise UnknownName("memory in warmstart.memory", name, get_args(Memory))
        found.append(cast(Memory, name))
    return tuple(found) or (trial_settings(config).memory_mode,)


def shown_params(config: Config) -> Params:
    """The environment's parameters in demonstrations: those of training, but for what `warmstart.params` says."""
    params: Params = dict(config.task.params)
    for part in filter(None, map(str.strip, config.warmstart.params.split(","))):
        name, equals, value = part.partition("=")
        if not (equals and name.strip() and value.strip()):
            raise ParameterError(f"warmstart.params={config.warmstart.params!r}: write NAME=VALUE,NAME=VALUE")
        params[name.strip()] = value.strip()
    return params


def trial_settings(config: Config) -> TrialSettings:
    """How the trials of a run are played."""
    trial = config.trial
    same = {field.name: getattr(trial, field.name) for field in fields(TrialSettings) if hasattr(trial, field.name)}
    return TrialSettings(**same, sampling=Sampling(trial.temperature, 1.0, trial.max_tokens))
