"""p@k with intervals, the other figures of a list of trials, and the outcomes behind them. Pure functions.

p@k is the mean over trials of [solved in one of the first k episodes]. Trials of related tasks share tasks with their
neighbours, and are worth fewer independent ones: see `design_effect`. Intervals over seeds and worlds, and differences
between methods: `intervals`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mulligan.envs.base import action_text
from mulligan.errors import StopReason
from mulligan.rollout.tasksets import task_key, world_key
from mulligan.seeding import derive
from mulligan.trial.settings import TrialSettings
from mulligan.types import Completion, Episode, Task, Trial

Z95 = 1.959963984540054
Interval = tuple[float, float]
_BESIDE_TEXT = ("reasoning", "refusal", "tool_calls")
"""Fields of a reply that a server may give beside its text."""


def wilson(successes: float, total: float, z: float = Z95, *, effect: float = 1.0) -> Interval:
    """Wilson's score interval for a share; (0, 1) when nothing was counted. `effect`: see `design_effect`."""
    if total == 0:
        return (0.0, 1.0)
    share = successes / total
    total /= effect
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    # The interval always holds the share itself; rounding may say otherwise at 0 and 1.
    return (max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def solved_within(trials: Sequence[Trial], k: int) -> int:
    """How many trials were solved in one of their first k episodes."""
    return sum(trial.solved_at is not None and trial.solved_at < k for trial in trials)


def pass_at(trials: Sequence[Trial], episodes: int) -> list[float]:
    """p@1 … p@N."""
    return [solved_within(trials, k) / len(trials) if trials else 0.0 for k in range(1, episodes + 1)]


def design_effect(values: Sequence[float], trials: Sequence[Trial], k: int) -> float:
    """How many times the variance of the mean is that of independent values, one of the first k episodes of each trial.

    With d the deviations from the mean: Σ d_i·d_j over pairs that share a task (each with itself too), over Σ d_i²,
    times n / (n - a) for a such pairs a value: their mean is taken from the same data. At least 1, and at most k, the
    tasks behind a value: neighbours that share tasks fall into k sets of independent ones. k where nothing varies.
    """
    users: dict[Task, list[int]] = defaultdict(list)
    most = 1.0
    for number, trial in enumerate(trials):
        tasks = (trial.task, *trial.related)[:k] if trial.related else ()
        most = max(most, len(tasks))
        for task in tasks:
            users[task].append(number)
    if not users:
        return 1.0
    count = len(values)
    mean = sum(values) / count
    pairs = {(i, j) for sharing in users.values() for i in sharing for j in sharing}
    spread = sum((value - mean) ** 2 for value in values)
    if spread == 0 or len(pairs) >= count * count:
        return most
    ratio = sum((values[i] - mean) * (values[j] - mean) for i, j in pairs) / spread
    return min(most, max(1.0, ratio * count / (count - len(pairs) / count)))


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a list of trials; lists have one entry for each episode index."""

    trials: int
    p: list[float]
    """p@1 … p@N."""
    ci: list[Interval]
    """Their 95 % intervals, with `worlds` as what was drawn independently."""
    played: list[int]
    """How many trials played that episode."""
    returns: list[float | None]
    """Mean return of that episode among the trials that played it to its end; None where none did."""
    returns_ci: list[Interval | None]
    won: list[float | None]
    """Share of those episodes that were won."""
    best: list[float]
    """Mean over the trials of the highest return among their first k episodes: p@k, where only a success pays."""
    turns: int
    valid: float
    """Share of replies that named a legal action."""
    reflections: int
    reflections_valid: float | None
    """Share of the reflections that kept the asked-for form."""
    stop_reasons: dict[str, int]
    faults: dict[str, int]
    failed: int
    """Trials in which the model or the environment failed for good; an episode that failed counts as not solved."""
    prompt_tokens: int
    completion_tokens: int
    tool_calls: dict[str, int] = field(default_factory=dict)
    """Name of a tool -> how often it was called."""
    beside_text: dict[str, int] = field(default_factory=dict)
    """"reasoning", "refusal", "tool_calls" -> replies that held it, reflections included."""
    failure: str = ""
    """The error of the first failed trial."""
    effective: list[float] = field(default_factory=list, repr=False)
    """Independent trials that would measure p@1 … p@N as well: all of them, unless their tasks are related."""
    outcomes: list[list[float | None]] = field(default_factory=list, repr=False)
    """For each task an entry for each attempt, by `TaskNames.evidence`: 1 where it was won, else 0, also where the
    trial had ended before; of games the return, None where none was played to its end. Differences are paired by it."""
    worlds: list[int] = field(default_factory=list, repr=False)
    """For each task the number of its world (a board and its mirror image are one), over which intervals are."""
    tasks_digest: str = field(default="", repr=False)
    """Names the list of tasks: results with equal digests can be paired task by task."""
    drawn: list[float | None] = field(default_factory=list)
    """Share of those episodes that were drawn; only games against an opponent have draws."""
    exact: list[int] = field(default_factory=list)
    """How many of those returns are exact expectations (`mulligan.eval.exact`)."""

    def of_games(self) -> dict[str, Any]:
        """The figures of games against an opponent, by episode; `not_lost` is the share of games won or drawn."""
        same = {name: getattr(self, name) for name in ("trials", "returns", "returns_ci", "won", "drawn")}
        pairs = zip(self.won, self.drawn, strict=True)
        return {**same, "not_lost": [None if won is None or drawn is None else won + drawn for won, drawn in pairs]}

    def figures(self, kind: str) -> dict[str, float | None]:
        """p@k or, of games against somebody, the return of each episode; each with the ends of its 95 % interval."""
        figures: dict[str, float | None] = {}
        values, intervals = (self.returns, self.returns_ci) if kind == "versus" else (self.p, self.ci)
        for k, (value, interval) in enumerate(zip(values, intervals, strict=True), 1):
            name = f"return {k}" if kind == "versus" else f"p@{k}"
            low, high = interval or (None, None)
            figures |= {name: value, f"{name} low": low, f"{name} high": high}
        return figures


def tokens(trial: Trial) -> tuple[int, int]:
    """Prompt and completion tokens of a trial, reflections included."""
    written = replies(trial)
    return (sum(reply.prompt_tokens for reply in written), sum(reply.completion_tokens for reply in written))


def replies(trial: Trial) -> list[Completion]:
    """All that the policy wrote in a trial, reflections included."""
    moves = [turn.reply for episode in trial.episodes for turn in episode.turns]
    return moves + [e.reflection.completion for e in trial.episodes if e.reflection and e.reflection.completion]


def summarise(trials: Sequence[Trial], episodes: int) -> Summary:
    """Count everything that the table, the JSON and the run folder show."""
    by_index = [[trial.episodes[n] for trial in trials if len(trial.episodes) > n] for n in range(episodes)]
    ended = [[episode for episode in played if not episode.stop.is_infrastructure] for played in by_index]
    returns = [_mean_return(trials, n) for n in range(episodes)]
    solved = [[float(solved_within([trial], k)) for trial in trials] for k in range(1, episodes + 1)]
    effects = [design_effect(each, trials, k) for k, each in enumerate(solved, 1)]
    turns = [turn for trial in trials for episode in trial.episodes for turn in episode.turns]
    written = [episode.reflection for trial in trials for episode in trial.episodes if episode.reflection]
    used = [tokens(trial) for trial in trials]
    all_replies = [reply for trial in trials for reply in replies(trial)]
    return Summary(
        trials=len(trials),
        p=pass_at(trials, episodes),
        ci=[wilson(sum(each), len(trials), effect=effect) for each, effect in zip(solved, effects, strict=True)],
        played=[len(played) for played in by_index],
        returns=[mean for mean, _ in returns],
        returns_ci=[interval for _, interval in returns],
        best=[_best(trials, k) for k in range(1, episodes + 1)],
        won=[_share_of(StopReason.WON, each) for each in ended],
        turns=len(turns),
        valid=sum(turn.valid for turn in turns) / len(turns) if turns else 0.0,
        reflections=len(written),
        reflections_valid=sum(note.valid for note in written) / len(written) if written else None,
        stop_reasons=_counts(episode.stop for played in by_index for episode in played),
        faults=_counts(turn.fault for turn in turns if turn.fault),
        failed=sum(trial.failed for trial in trials),
        prompt_tokens=sum(prompt for prompt, _ in used),
        completion_tokens=sum(completion for _, completion in used),
        tool_calls=_counts(call.name for reply in all_replies for call in reply.tool_calls),
        beside_text=_counts(part for reply in all_replies for part in _BESIDE_TEXT if getattr(reply, part)),
        failure=next((e.error for trial in trials if trial.failed for e in trial.episodes if e.error), ""),
        effective=[len(trials) / effect for effect in effects],
        drawn=[_share_of(StopReason.DRAWN, each) for each in ended],
        exact=[sum(episode.expected is not None for episode in each) for each in ended],
    )


def _mean_return(trials: Sequence[Trial], n: int) -> tuple[float | None, Interval | None]:
    """Mean return of episode n and its normal 95 % interval, over the trials that played it to its end: where model or
    environment failed there is no return, since in a game 0 would be a draw."""
    ended = [trial for trial in trials if len(trial.episodes) > n and not trial.episodes[n].stop.is_infrastructure]
    values, count = [trial.episodes[n].value for trial in ended], len(ended)
    if not values:
        return None, None
    mean = sum(values) / count
    if count == 1:
        return mean, None
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    half = Z95 * spread / math.sqrt(count / design_effect(values, ended, n + 1))
    return mean, (mean - half, mean + half)


def _share_of(stop: StopReason, episodes: Sequence[Episode]) -> float | None:
    """The share of episodes that ended so; None where there are none."""
    return sum(episode.stop is stop for episode in episodes) / len(episodes) if episodes else None


def _best(trials: Sequence[Trial], k: int) -> float:
    return sum(max(episode.reward for episode in trial.episodes[:k]) for trial in trials) / max(1, len(trials))


def _counts(names: Iterable[str]) -> dict[str, int]:
    return {str(name): count for name, count in sorted(Counter(names).items())}


class TaskNames:
    """The names of a list of tasks, each looked up once, since an environment has to be built for it."""

    def __init__(self, tasks: Sequence[Task], env_timeout: float | None = None) -> None:
        first: dict[str, int] = {}
        self._worlds: dict[Task, int] = {}
        self._keys: dict[Task, str] = {}
        for number, task in enumerate(tasks):
            world = key = None
            with suppress(Exception):  # it could be named when the list was made: a world that is not always the same
                world, key = world_key(task, env_timeout), task_key(task, env_timeout)
            self._worlds[task] = number if world is None else first.setdefault(world, number)
            self._keys[task] = key or f"{task.seed} {task.params}"

    def worlds(self, trials: Sequence[Trial]) -> list[int]:
        """The number of each trial's world."""
        return [self._worlds[trial.task] for trial in trials]

    def evidence(self, summary: Summary, trials: Sequence[Trial], episodes: int, *, versus: bool) -> Summary:
        """The summary with its trials' outcomes, in the order of the tasks, and intervals over worlds."""
        from mulligan.eval.intervals import share_interval, solved_within  # numpy, which a command's help does without

        worlds = self.worlds(trials)
        wins = [_wins(trial, episodes) for trial in trials]
        intervals = [
            share_interval(solved_within(wins, k)[None], worlds, effect=summary.trials / effective)
            for k, effective in enumerate(summary.effective, 1)
            if trials
        ]
        outcomes = [_returns(trial, episodes) for trial in trials] if versus else wins
        digest = f"{derive(*(self._keys[trial.task] for trial in trials)):016x}"
        return replace(summary, outcomes=outcomes, worlds=worlds, ci=intervals or summary.ci, tasks_digest=digest)


def _wins(trial: Trial, episodes: int) -> list[float | None]:
    """1 for each episode that was won, else 0, also where the trial had ended before."""
    won = [int(episode.won) for episode in trial.episodes]
    return [*won, *[0] * (episodes - len(won))]


def _returns(trial: Trial, episodes: int) -> list[float | None]:
    """The return of each episode; None where it was not played to its end: in a game, 0 would be a draw."""
    ended = [None if episode.stop.is_infrastructure else episode.value for episode in trial.episodes]
    return [*ended, *[None] * (episodes - len(ended))]


def without_evidence(data: Mapping[str, Any]) -> dict[str, Any]:
    """A result as plain data for a terminal: without its hundreds of outcomes."""
    return {
        name: without_evidence(value) if isinstance(value, Mapping) else value
        for name, value in data.items()
        if name not in ("outcomes", "worlds", "tasks_digest", "strata")
    }


WARN_FROM = 0.05
"""Share of cut replies from which on there is a warning."""


@dataclass(frozen=True, slots=True)
class CutReplies:
    """How many replies, reflections included, a limit ended: `max_tokens`, `reflection_tokens`, or the context."""

    replies: int
    by_limit: int
    by_reflection_limit: int
    by_context: int

    @property
    def share(self) -> float:
        return (self.by_limit + self.by_reflection_limit + self.by_context) / max(1, self.replies)

    def warning(self) -> str | None:
        """How many were cut and what to change; None where few were."""
        if self.share < WARN_FROM:
            return None
        limits = ("max_tokens", "reflection_tokens", "engine.context")
        counts = (self.by_limit, self.by_reflection_limit, self.by_context)
        raised = ", ".join(f"{name} ({count:,})" for name, count in zip(limits, counts, strict=True) if count)
        return f"{sum(counts):,} of {self.replies:,} replies were cut ({100 * self.share:.1f} %); raise {raised}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for result files."""
        return {**asdict(self), "share": self.share, "warning": self.warning()}


def cut_replies(trials: Sequence[Trial], settings: TrialSettings) -> CutReplies:
    """The cut replies of trials that were played with `settings`, by what cut them."""
    turns = [turn.reply for trial in trials for episode in trial.episodes for turn in episode.turns]
    written = [episode.reflection for trial in trials for episode in trial.episodes if episode.reflection]
    notes = [note.completion for note in written if note.completion]
    at_limit, early = _by_cause(turns, settings.sampling.max_tokens)
    at_reflection_limit, early_notes = _by_cause(notes, settings.reflection_tokens)
    return CutReplies(len(turns) + len(notes), at_limit, at_reflection_limit, early + early_notes)


def _by_cause(replies: Sequence[Completion], limit: int) -> tuple[int, int]:
    """How many replies were cut at their limit, and how many before it. Replies without a token count: at it.

    A reply of one token is complete: where answers are words, it is the answer.
    """
    cut = [reply for reply in replies if reply.finish == "length" and reply.completion_tokens != 1]
    early = sum(0 < reply.completion_tokens < limit for reply in cut)
    return len(cut) - early, early


DIVERSITY_TRIALS = 32
"""Of each task; the entropy is at most log 32 = 3.47 nats."""


def diversity(trials: Sequence[Trial]) -> float:
    """Entropy, in nats, of the action sequences of first episodes among the trials of one task; mean over tasks.

    It depends on how many trials a task has: compare figures of equally many, sampled at one temperature.
    """
    by_task: dict[Task, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for trial in trials:
        replies = [turn.reply.written for turn in trial.episodes[0].turns]
        actions = tuple("".join((action_text(text) or text).split()).lower() for text in replies)
        by_task[trial.task][actions] += 1
    return sum(map(_entropy, by_task.values())) / len(by_task)


def _entropy(counts: Counter[tuple[str, ...]]) -> float:
    total = counts.total()
    return -sum(count / total * math.log(count / total) for count in counts.values())
