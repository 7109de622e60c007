"""Policies by name, as the command line and `evaluate` take them.

random | expert[:SKILL[:RECALL]] | hasty[:SKILL[:RECALL]] | omniscient | player:NAME[:SKILL[:RECALL]] | human |
endpoint:MODEL | path/to/file.py:NAME

A player is one of the environment's own. In a file, NAME is a function of the messages, a policy, or a class of
policies that needs no arguments.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from pathlib import Path
from typing import Any

from mulligan.errors import ParameterError, UnknownName, UsageError
from mulligan.policy.base import Policy, as_policy
from mulligan.policy.scripted import ExpertPolicy, RandomPolicy
from mulligan.seeding import derive

NAMES = ("random", "expert", "hasty", "omniscient", "player", "human", "endpoint")
LOCAL = ("nano", "smollm2", "hf")
"""Models in this process, which `mulligan.players` loads; here they are only told to who misspells one."""


def policy_from(spec: str, **endpoint: Any) -> Policy:
    """The policy that `spec` names; `endpoint` are options of `EndpointPolicy`."""
    name, _, rest = spec.partition(":")
    if name == "random":
        return RandomPolicy()
    if name in ("expert", "hasty", "omniscient"):
        return _expert(spec, name, rest)
    if name == "player":
        kind, _, rest = rest.partition(":")
        if not kind:
            raise UsageError("which player? write player:NAME, as the environment calls it")
        return _expert(spec, kind, rest)
    if name == "human":
        from mulligan.policy.human import HumanPolicy

        return HumanPolicy()
    if name == "endpoint":
        return _endpoint(rest, endpoint)
    file, colon, attribute = spec.rpartition(":")
    if colon and file.endswith(".py"):
        return _from_file(Path(file), attribute)
    if "/" in spec or Path(spec).exists():
        raise UsageError(_not_a_run(spec))
    raise UnknownName("policy", spec, (*NAMES, *LOCAL))


def _not_a_run(spec: str) -> str:
    path = Path(spec)
    if not path.exists():
        return f"there is no run folder {spec}, and no policy has that name"
    runs = sorted(each.parent.name for each in path.glob("*/config.toml"))[:3]
    if runs:
        return f"{spec} holds runs and is none itself; name one of them, e.g. {path / runs[0]}"
    if path.suffix == ".py":
        return f"{spec!r} is a file; name the policy in it: {spec}:NAME"
    return f"{spec} is not a run folder (it has no config.toml); a model's folder is hf:{spec}"


def _expert(spec: str, name: str, rest: str) -> Policy:
    try:
        shares = [float(part) for part in rest.split(":")] if rest else []
    except ValueError:
        shares = [-1.0]
    if len(shares) > 2 or any(not 0.0 <= share <= 1.0 for share in shares):
        raise ParameterError(
            f"policy {spec!r} is not understood; write {name}, {name}:SKILL or {name}:SKILL:RECALL, 0 to 1"
        )
    return ExpertPolicy(*shares, kind=name)


def _endpoint(model: str, options: dict[str, Any]) -> Policy:
    from mulligan.policy.endpoint import EndpointPolicy

    model = model or str(options.pop("model", "") or "")
    options.pop("model", None)
    if not model or not options.get("base_url"):
        raise UsageError(
            "the endpoint policy needs a model and a URL: --policy endpoint:MODEL --base-url http://…/v1, or in Python "
            'evaluate(…, "endpoint:MODEL", base_url="http://…/v1")'
        )
    body = options.pop("extra_body", None)
    return EndpointPolicy(model, **options, extra_body=_object(body) if isinstance(body, str) else body)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ParameterError(f'extra_body={text!r} is no JSON object; write it like {{"top_k": 20}}')
    return found


def _from_file(path: Path, attribute: str) -> Policy:
    if not path.is_file():
        raise UsageError(f"no file {str(path)!r} to take the policy {attribute!r} from")
    name = f"mulligan_policy_{path.stem}_{derive(str(path.resolve())):x}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise UsageError(f"{str(path)!r} cannot be imported")
    module = sys.modules[name] = importlib.util.module_from_spec(found)  # dataclasses look for their module there
    try:
        found.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{str(path)!r} cannot be imported: {_in_one_line(error)}") from error
    if not hasattr(module, attribute):
        raise UnknownName(
            f"policy in {str(path)!r}", attribute, [key for key in vars(module) if not key.startswith("_")]
        )
    policy = getattr(module, attribute)
    if inspect.isclass(policy):
        try:
            policy = policy()
        except Exception as error:
            raise UsageError(
                f"{attribute} in {str(path)!r} cannot be made without arguments: {_in_one_line(error)}"
            ) from error
    return as_policy(policy)


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
