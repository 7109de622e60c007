"""Mulligan: language agents that get better from one attempt to the next."""

from typing import TYPE_CHECKING, Any

from mulligan.api import CheckResult as CheckResult
from mulligan.api import TrainedRun as TrainedRun
from mulligan.api import check_env as check_env
from mulligan.api import evaluate as evaluate
from mulligan.api import make as make
from mulligan.api import make_task as make_task
from mulligan.api import optimum as optimum
from mulligan.api import run_trial as run_trial
from mulligan.api import run_trial_sync as run_trial_sync
from mulligan.api import train as train
from mulligan.envs.adapters.gymnasium import as_gymnasium as as_gymnasium
from mulligan.envs.registry import register as register
from mulligan.errors import MissingExtra
from mulligan.eval.run import EvalResult as EvalResult
from mulligan.policy.endpoint import EndpointPolicy as EndpointPolicy
from mulligan.report.run import load_trials as load_trials
from mulligan.trial.settings import TrialSettings as TrialSettings
from mulligan.trusted import trust as trust
from mulligan.types import Completion as Completion
from mulligan.types import Episode as Episode
from mulligan.types import Group as Group
from mulligan.types import Message as Message
from mulligan.types import Reflection as Reflection
from mulligan.types import Sampling as Sampling
from mulligan.types import Step as Step
from mulligan.types import Task as Task
from mulligan.types import Tool as Tool
from mulligan.types import Trial as Trial
from mulligan.types import Turn as Turn

if TYPE_CHECKING:
    from mulligan.journal.journal import Journal as Journal

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`mulligan.Journal`, imported when it is first used: it needs SQLAlchemy, which the core does not install."""
    if name != "Journal":
        raise AttributeError(f"module 'mulligan' has no attribute {name!r}")
    try:
        from mulligan.journal.journal import Journal
    except ModuleNotFoundError as error:
        if error.name != "sqlalchemy":
            raise
        raise MissingExtra("a journal", "journal") from error
    return Journal
