"""How a trial is played, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from mulligan.errors import ParameterError, UnknownName
from mulligan.trial import prompts
from mulligan.types import Memory, Restart, Sampling, Stop, plain, whole


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """Everything `run_trial` can be told. None means: as the environment or the style says."""

    episodes: int = 3
    """Episodes a trial has at most."""
    announced: int | None = None
    """Episodes the agent is told of ("Episode 1 of 3"); None: as many as there are. RL trains on trials of one episode
    and is evaluated on three: it reads the same words in both."""
    memory: Memory | None = None
    """What of earlier episodes the next one sees."""
    style: str = "plain"
    """How the agent is asked to answer: plain, note, zero-shot, react, reflexion, bare."""
    stop: Stop | None = None
    """"success" ends the trial at the first win, "never" plays all episodes."""
    restart: Restart | None = None
    """"replay" repeats everything exactly, "fresh" redraws chance and keeps what the task hides."""
    memory_tokens: int = 4096
    """Budget of the memory shown to an episode."""
    max_reflections: int = 5
    """How many reflections are shown, the newest ones."""
    window: int | None = None
    """Show only the last so many turns of an episode; None shows all of it, as one growing transcript."""
    sampling: Sampling = Sampling()
    """How replies are drawn."""
    reflection_tokens: int = 512
    """Token limit of a reflection."""
    env_timeout: float | None = None
    """Seconds a step of the environment may take before it counts as hung; None trusts it, which is faster. Steps then
    end when the clock says, so that with a local model the order of sampling, and the last bits, may differ. Building
    a world has no limit: it may load what all worlds share."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            object.__setattr__(self, name, plain(getattr(self, name)))
        for name in ("episodes", "memory_tokens", "max_reflections", "reflection_tokens"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
            if getattr(self, name) < 1:
                raise ParameterError(f"{name}={getattr(self, name)} cannot be; give at least 1")
        for name in ("announced", "window"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole(name, getattr(self, name)))
                if getattr(self, name) < 1:
                    raise ParameterError(f"{name} must be >= 1 (got {getattr(self, name)}), or left out")
        if self.env_timeout is not None and not self.env_timeout > 0:
            raise ParameterError(f"env_timeout={self.env_timeout} cannot be; give more than 0, or leave it out")
        prompts.style(self.style)
        for name, allowed in (("memory", Memory), ("stop", Stop), ("restart", Restart)):
            value = getattr(self, name)
            if value is not None and value not in get_args(allowed):
                raise UnknownName(name, str(value), get_args(allowed))

    @property
    def memory_mode(self) -> Memory:
        """The memory that is used: the one asked for, or the style's."""
        return self.memory if self.memory is not None else prompts.style(self.style).memory
