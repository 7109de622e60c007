"""How a trial is played, as data: the options of ``eval`` and ``play``, and the section [trial] of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from mulligan.errors import ParameterError
from mulligan.settings import AT_LEAST_1, POSITIVE, check_fields
from mulligan.trial import prompts
from mulligan.types import Memory, Restart, Sampling, Stop

MAX_REFLECTIONS = 5
"""Newest reflections that memory shows. All results were made with 5; `memory_tokens` is the limit to turn."""


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """Everything `run_trial` can be told. None means: as the environment or the style says.

    >>> settings = mulligan.TrialSettings(episodes=2, memory="reflection")
    >>> settings.memory_mode, settings.sampling.temperature
    ('reflection', 0.7)
    """

    episodes: Annotated[int, "Episodes a trial has at most; training with 1 is RL.", AT_LEAST_1] = 3
    announced: int | None = None
    """Episodes the agent is told of ("Episode 1 of 3"); None: as many as there are. RL trains on trials of one episode
    and is evaluated on three: it reads the same words in both."""
    memory: Annotated[Memory | None, "What of earlier episodes the next one sees; default: the style's."] = None
    style: Annotated[str, "How agents are asked to answer: plain, note, zero-shot, react, reflexion or bare."] = "plain"
    stop: Annotated[Stop | None, "End the trial at the first success, or never; none: as the environment says."] = None
    restart: Annotated[Restart | None, "Repeat an episode exactly, or redraw chance; none: the environment's."] = None
    character: Annotated[str, "How to play, in a word or a line of the prompt: cautious, curious, or one's own."] = ""
    memory_tokens: Annotated[int, "Token budget of the memory shown to an episode.", AT_LEAST_1] = 4096
    window: Annotated[int | None, "Show only this many last turns of an episode; none: all.", AT_LEAST_1] = None
    sampling: Sampling = Sampling()
    """How replies are drawn: temperature, top_p and max_tokens."""
    reflection_tokens: Annotated[int, "Token limit of a reflection.", AT_LEAST_1] = 512
    env_timeout: Annotated[
        float | None, "Seconds a step of the environment, or making it, may take; none: no limit.", POSITIVE
    ] = None
    """Without a limit steps are faster. With one the clock decides, so that the order of sampling with a local model,
    and the last bits, may differ."""

    def __post_init__(self) -> None:
        check_fields(self)
        prompts.style(self.style)
        if self.announced is not None and not self.announced >= 1:
            raise ParameterError(f"announced must be >= 1 (got {self.announced})")

    @property
    def memory_mode(self) -> Memory:
        """The memory that is used: the one asked for, or the style's."""
        return self.memory if self.memory is not None else prompts.style(self.style).memory


def evaluated_episodes(trained: int) -> int:
    """Episodes of a validation or evaluation trial of an agent that trains on trials of `trained` episodes: as many,
    and at least the default, so that RL (which trains on one) is measured on the same trials as meta-RL."""
    return max(trained, TrialSettings().episodes)
