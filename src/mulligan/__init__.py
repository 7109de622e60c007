"""Mulligan: language agents that get better from one attempt to the next."""

from mulligan.api import (
    CheckResult,
    TrainedRun,
    check_env,
    evaluate,
    make,
    make_task,
    run_trial,
    run_trial_sync,
    train,
)
from mulligan.envs.adapters.gymnasium import as_gymnasium
from mulligan.envs.registry import register
from mulligan.eval.run import EvalResult
from mulligan.policy.endpoint import EndpointPolicy
from mulligan.report.run import load_trials
from mulligan.trial.settings import TrialSettings
from mulligan.types import Completion, Episode, Group, Message, Reflection, Sampling, Step, Task, Trial, Turn

__version__ = "0.1.0"

__all__ = [
    "CheckResult",
    "Completion",
    "EndpointPolicy",
    "Episode",
    "EvalResult",
    "Group",
    "Message",
    "Reflection",
    "Sampling",
    "Step",
    "Task",
    "TrainedRun",
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
