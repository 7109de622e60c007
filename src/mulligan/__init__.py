"""Mulligan: language agents that get better from one attempt to the next."""

from mulligan.api import evaluate, run_trial, run_trial_sync, train
from mulligan.envs.as_gymnasium import as_gymnasium
from mulligan.envs.check import check_env
from mulligan.envs.registry import make, make_task, register
from mulligan.eval.run import EvalResult
from mulligan.report.run import load_trials
from mulligan.trial.settings import TrialSettings
from mulligan.types import Completion, Episode, Group, Message, Reflection, Sampling, Step, Task, Trial, Turn

__version__ = "0.1.0"

__all__ = [
    "Completion",
    "Episode",
    "EvalResult",
    "Group",
    "Message",
    "Reflection",
    "Sampling",
    "Step",
    "Task",
    "Trial",
    "TrialSettings",
    "Turn",
    "as_gymnasium",
    "check_env",
    "evaluate",
    "load_trials",
    "make",
    "make_task",
    "register",
    "run_trial",
    "run_trial_sync",
    "train",
]
