"""The configuration of a training run: one tree of frozen dataclasses, one for each stage.

Every setting can be given in a TOML file (``[algo] gamma_traj = 0.9``) and on the command line
(``--algo.gamma-traj 0.9``). RL is this with ``trial.episodes = 1``; `run.group` then makes the number of episodes per
update equal. ``mulligan train --settings`` lists all of them; ``len(settings())`` counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, reduce
from typing import Annotated, Any, Literal, cast, get_args

from mulligan.envs.registry import named_params
from mulligan.errors import ParameterError, UnknownName
from mulligan.settings import AT_LEAST_0, AT_LEAST_1, LESS_THAN_1, POSITIVE, SHARE, Setting, settings_of, with_values
from mulligan.trial.settings import TrialSettings
from mulligan.types import Memory, ParamValue, Sampling

Params = dict[str, ParamValue]


@dataclass(frozen=True)
class RunConfig:
    """How much is trained, and what is kept."""

    seed: Annotated[int, "Root of all randomness of the run."] = 0
    updates: Annotated[
        int, "Updates; 0: a warm start alone. A resumed run of another length keeps its schedules.", AT_LEAST_0
    ] = 80
    tasks: Annotated[int, "Tasks an update plays.", AT_LEAST_1] = 32
    group: Annotated[int, "Trials of each task.", AT_LEAST_1] = 8
    random_trials: Annotated[
        float,
        "Of them, share in which random legal moves play half of the episodes, for the first 70 % of the updates. "
        "What turned out better than the group is learned: for agents that begin from nothing.",
        LESS_THAN_1,
    ] = 0.0
    player: Annotated[
        str,
        "Who plays, frozen: runs/x, endpoint:MODEL, expert; its reflections alone are then trained. Empty: the model.",
    ] = ""
    staleness: Annotated[
        int,
        "Updates ahead that trials may begin, with older weights; from 1 on, resumed runs differ in the last bits.",
        AT_LEAST_0,
    ] = 0
    threads: Annotated[int, "Threads of torch on CPU; 0: torch chooses, once for a run.", AT_LEAST_0] = 0
    checkpoint_every: Annotated[int, "Updates between two checkpoints.", AT_LEAST_1] = 10
    keep: Annotated[int, "Checkpoints kept.", AT_LEAST_1] = 2
    save_trials_every: Annotated[int, "Updates between two whose trials are kept; 0: none.", AT_LEAST_0] = 10
    validate_every: Annotated[int, "Updates between two evaluations on validation tasks; 0: none.", AT_LEAST_0] = 0
    validation_tasks: Annotated[int, "Tasks of such an evaluation, of each environment.", AT_LEAST_1] = 100
    diversity_tasks: Annotated[int, "Of them, tasks played 32 times to measure diversity; 0: none.", AT_LEAST_0] = 0
    evaluate: Annotated[
        str,
        "Evaluations at the end, by parameters that differ: opponent=seen; opponent=unseen. Empty: none.",
    ] = ""


@dataclass(frozen=True)
class TaskConfig:
    """What is played."""

    env: Annotated[
        str,
        "An environment, or a mixture by weight: kuhn:2,minesweeper(mines=4):1; brackets hold a game's parameters.",
    ] = "minesweeper"
    params: Params = field(default_factory=dict)
    """Parameters of the environment, or of all games of a mixture that know them and do not have them in brackets:
    ``--env.mines 5``."""
    related: Annotated[bool, "Each episode of a trial is another task of the same class, not the same one."] = False


@dataclass(frozen=True)
class ModelConfig:
    """What is trained."""

    name: Annotated[
        str,
        "nano, nano:hidden=128,layers=3, smollm2, hf:PATH_OR_NAME, or a run folder, to start from its last weights.",
    ] = "nano"
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"], "Precision of the weights; auto: bfloat16 on a GPU, float32 on CPU."
    ] = "auto"
    device: Annotated[str, "cpu, cuda or cuda:1; auto: a GPU if there is one."] = "auto"
    lora_rank: Annotated[int, "Rank of a LoRA adapter, with alpha = 2 * rank; 0: train all weights.", AT_LEAST_0] = 0
    gradient_checkpointing: Annotated[bool, "Compute activations twice to save memory: slower."] = False


@dataclass(frozen=True)
class BackendConfig:
    """Where the model is that samples and is trained."""

    kind: Annotated[
        Literal["local", "tinker"], "tinker: a server that speaks Tinker's protocol; model.name is its base model."
    ] = "local"
    url: Annotated[str, "Of that server, e.g. http://127.0.0.1:8000."] = ""
    rank: Annotated[int, "Rank of the adapter that it trains; 0: all weights, where it can.", AT_LEAST_0] = 32


@dataclass(frozen=True)
class EngineConfig:
    """How replies are sampled."""

    kind: Annotated[
        Literal["auto", "vllm"], "auto: by this process, from the weights it trains; vllm: by vLLM, which gets them."
    ] = "auto"
    slots: Annotated[int, "Sequences at a time; on a GPU, at most as many as its memory holds.", AT_LEAST_1] = 256
    context: Annotated[int, "Longest sequence; 0: what a trial can need, fixed when the run begins.", AT_LEAST_0] = 0


@dataclass(frozen=True)
class RayConfig:
    """Where environments run that are slow: a browser, a simulator."""

    workers: Annotated[int, "Processes of Ray that hold the environments; 0: this process holds them.", AT_LEAST_0] = 0
    address: Annotated[str, "A cluster, HOST:PORT or auto; empty: this machine."] = ""


@dataclass(frozen=True)
class WarmstartConfig:
    """Supervised training on scripted play, before the first update."""

    steps: Annotated[int, "Optimiser steps; 0: no warm start.", AT_LEAST_0] = 0
    trials: Annotated[int, "Demonstrated trials, of three episodes each.", AT_LEAST_1] = 4000
    processes: Annotated[int, "Processes that play them: the same trials, sooner.", AT_LEAST_1] = 1
    player: Annotated[
        str,
        "Who demonstrates: the expert, or another scripted player (Sokoban: hasty); mixed,expert: the first that a "
        "game has.",
    ] = "expert"
    skill: Annotated[float, "Share of the demonstrator's good moves; the others are random or hasty.", SHARE] = 0.7
    recall: Annotated[float, "Share of its moves that use what earlier episodes showed.", SHARE] = 0.2
    params: Annotated[str, "Parameters that differ in demonstrations: kind=all shows what training leaves out."] = ""
    memory: Annotated[str, "Memories of demonstrated trials, in turn: history,reflection; empty: trial.memory."] = ""
    batch: Annotated[int, "Sequences a step.", AT_LEAST_1] = 192
    optimiser: Annotated[
        Literal["adamw", "muon"], "muon: for the matrices inside the layers, with AdamW for the rest; fewer steps."
    ] = "adamw"
    lr: Annotated[float, "Highest learning rate; it falls along a cosine to a tenth.", POSITIVE] = 2e-3
    warmup: Annotated[int, "Steps over which the learning rate rises.", AT_LEAST_0] = 30


@dataclass(frozen=True)
class AlgoConfig:
    """From rewards to the loss; see `docs/maths.md`."""

    estimator: Annotated[str, "Of advantages: gigpo, grpo, rloo, reinforce_pp or ppo."] = "gigpo"
    form: Annotated[str, "Of returns across episodes: paper, chained, difference or final."] = "paper"
    gamma_step: Annotated[float, "Discount from turn to turn within an episode.", SHARE] = 0.95
    gamma_traj: Annotated[float, "Discount from episode to episode: what solving it next time is worth.", SHARE] = 0.6
    baseline: Annotated[
        Literal["leave_one_out", "group", "agent"],
        "What a return is compared with: others of its group, the group, the agent's mean.",
    ] = "leave_one_out"
    scale: Annotated[
        Literal["std", "none", "agent", "population"],
        "What advantages are divided by: the group's spread, nothing, the agent's own spread, the population's.",
    ] = "std"
    shaping: Annotated[float, "Weight of the environment's progress; never crosses an episode.", AT_LEAST_0] = 0.0
    invalid_penalty: Annotated[float, "Taken from a reply that names no legal action.", AT_LEAST_0] = 0.1
    length_penalty: Annotated[float, "Taken from a reply at its token limit; rises from half of that.", AT_LEAST_0] = (
        0.0
    )
    kl_weight: Annotated[float, "Weight of KL to the policy that training started from.", AT_LEAST_0] = 0.0
    entropy_weight: Annotated[float, "Weight of the entropy bonus at the first update.", AT_LEAST_0] = 0.0
    entropy_end: Annotated[float | None, "Entropy weight at the last update first planned; none: constant."] = None
    reflection_entropy: Annotated[bool, "Give reflections the entropy bonus too; it makes them untrue."] = False


@dataclass(frozen=True)
class OptimConfig:
    """The optimiser of the updates."""

    lr: Annotated[float, "Learning rate of AdamW.", POSITIVE] = 6e-4
    lr_end: Annotated[float, "Share of lr at the last update that the run began with; the fall is linear.", SHARE] = 0.2
    warmup: Annotated[int, "Updates over which the learning rate rises.", AT_LEAST_0] = 10
    epochs: Annotated[int, "Passes over the data of an update.", AT_LEAST_1] = 2
    minibatches: Annotated[int, "Optimiser steps of a pass.", AT_LEAST_1] = 1
    beta2: Annotated[float, "AdamW's decay of squared gradients, in the warm start too.", LESS_THAN_1] = 0.95
    weight_decay: Annotated[float, "Weight decay of AdamW.", AT_LEAST_0] = 0.0
    tokens: Annotated[int, "Tokens of a micro-batch, halved when memory runs out; 0: by the model.", AT_LEAST_0] = 0


@dataclass(frozen=True)
class PopulationConfig:
    """Several agents in one run: who meets whom, and who is copied; see `docs/population.md`."""

    agents: Annotated[int, "Agents of a population; 0: one agent, and none of this section counts.", AT_LEAST_0] = 0
    others: Annotated[float, "Share of an agent's tasks that are games against another agent.", LESS_THAN_1] = 0.0
    past: Annotated[float, "Share of its tasks that are games against its own snapshots.", LESS_THAN_1] = 0.0
    matchmaking: Annotated[
        Literal["uniform", "prioritised"], "prioritised: agents whose games are even, snapshots that are hard to beat."
    ] = "uniform"
    snapshot_every: Annotated[int, "Updates between two snapshots to play against.", AT_LEAST_1] = 10
    select_every: Annotated[int, "Updates between two selections; 0: none.", AT_LEAST_0] = 0
    score: Annotated[
        Literal["last", "gain", "mean"],
        "What selection goes by on held-out tasks: the last episode (p@N), its gain over the first, all episodes.",
    ] = "last"
    held_out: Annotated[str, "Parameters that differ in selection: opponent=validation. Empty: other worlds."] = ""
    held_out_tasks: Annotated[int, "Tasks of a selection, of each environment.", AT_LEAST_1] = 128
    vary: Annotated[str, "Settings in which agents differ."] = "optim.lr,algo.gamma_traj,algo.entropy_weight"
    spread: Annotated[float, "Highest factor by which they differ from the settings given, at first.", AT_LEAST_1] = 1.0
    characters: Annotated[str, "A word or a line for each agent's prompt, in turn: cautious;curious. Empty: none."] = ""


@dataclass(frozen=True)
class Config:
    """Everything a training run is told."""

    run: RunConfig = RunConfig()
    task: TaskConfig = field(default_factory=TaskConfig)
    trial: TrialSettings = TrialSettings(sampling=Sampling(temperature=1.0))
    model: ModelConfig = ModelConfig()
    backend: BackendConfig = BackendConfig()
    engine: EngineConfig = EngineConfig()
    ray: RayConfig = RayConfig()
    warmstart: WarmstartConfig = WarmstartConfig()
    algo: AlgoConfig = AlgoConfig()
    optim: OptimConfig = OptimConfig()
    population: PopulationConfig = PopulationConfig()

    def __post_init__(self) -> None:
        for key, setting in settings().items():  # NumPy's numbers become Python's, which files can hold
            *groups, name = key.partition(".")[0], *setting.path
            object.__setattr__(reduce(getattr, groups, self), name, setting.check(value_at(self, key)))
        params: dict[str, Any] = {**self.task.params}
        numbers = {name: value.item() if hasattr(value, "dtype") else value for name, value in params.items()}
        object.__setattr__(self.task, "params", numbers)
        sampling = self.trial.sampling
        if not sampling.temperature > 0:
            raise ParameterError(f"trial.temperature must be > 0 in training (got {sampling.temperature:g})")
        if sampling.top_p != 1:
            raise ParameterError(f"trial.top_p must be 1 in training (got {sampling.top_p:g})")
        if self.run.updates == 0 and not self.warmstart.steps:
            raise ParameterError("run.updates must be >= 1 without a warm start (got 0)")
        if self.run.group < 2 and self.algo.estimator != "ppo":
            raise ParameterError(f"run.group must be >= 2 for {self.algo.estimator}, which compares trials (got 1)")
        population = self.population
        if population.agents == 1:
            raise ParameterError("population.agents must be >= 2, or 0 for one agent without a population (got 1)")
        if not population.others + population.past < 1:
            raise ParameterError(
                "population.others + population.past must be < 1: the rest are games against scripted opponents, "
                f"without which agents only learn each other's ways (got {population.others:g} + {population.past:g})"
            )
        if self.run.group < 2 and self.run.random_trials:
            raise ParameterError("run.group must be >= 2 with run.random_trials: one trial is the agent's own (got 1)")


def with_changes(config: Config, changes: Mapping[str, Any]) -> Config:
    """`config` with other values at dotted keys."""
    sections: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    return replace(config, **{name: with_values(getattr(config, name), each) for name, each in sections.items()})


@lru_cache(maxsize=1)
def settings() -> Mapping[str, Setting]:
    """Every setting but the environment's parameters by dotted key, in the order of the tree.

    `top_p` is none of training: the log-probabilities that are trained on are those of the whole distribution.
    """
    tree: dict[str, Setting] = {}
    for section in fields(Config):
        default: Any = TaskConfig() if section.name == "task" else section.default
        for key, setting in settings_of(type(default), f"{section.name}.").items():
            if key != "trial.top_p":
                tree[key] = replace(setting, default=setting.of(default))
    return tree


def value_at(config: Config, key: str) -> Any:
    return settings()[key].of(getattr(config, key.partition(".")[0]))


def shown_memories(config: Config) -> tuple[Memory, ...]:
    """The memories that demonstrated trials have, in turn."""
    names = [name.strip() for name in config.warmstart.memory.split(",") if name.strip()]
    for name in names:
        if name not in get_args(Memory):
            raise UnknownName("memory in warmstart.memory", name, get_args(Memory))
    return cast(tuple[Memory, ...], tuple(names)) or (config.trial.memory_mode,)


def shown_params(config: Config) -> Params:
    """The environment's parameters in demonstrations: those of training, but for what `warmstart.params` says."""
    return {**config.task.params, **named_params(config.warmstart.params, "warmstart.params")}


def evaluated_params(config: Config) -> dict[str, Params]:
    """Each evaluation of `run.evaluate` as it was written -> the parameters that differ from those of training."""
    parts = filter(None, map(str.strip, config.run.evaluate.split(";")))
    return {part: named_params(part, "run.evaluate") for part in parts}
