"""Whether what an earlier process found is what is planned now: results of other settings are not passed off as these.

Of a warm start only that counts which its weights and its evaluation depend on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mulligan.errors import MulliganError
from mulligan.sweep.arms import Work, start_name_now
from mulligan.sweep.warm import warm_parts
from mulligan.sweep.worker import RESULT
from mulligan.train.compare import Pairs, apart, in_words
from mulligan.train.resolve import resolve

Found = dict[str, Any]
_SAME = ("settings", "preset", "evaluation")
_MODEL = "model.name"


def read_result(folder: Path) -> Found | None:
    """What the arm in `folder` found; None while it is not done, and where a file cannot be understood."""
    path = folder / RESULT
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:  # written by halves, as on a full disk
        return None
    return found if isinstance(found, dict) and all(name in found for name in _SAME) else None


def matching(work: Sequence[Work]) -> tuple[list[Found], dict[Path, list[str]]]:
    """What those of `work` that are done have found under the planned settings; and folder -> why it is left out.

    What started from a result that is left out is left out too.
    """
    results: list[Found] = []
    left_out: dict[Path, list[str]] = {}
    for each in work:
        found = read_result(each.folder)
        if found is None:
            continue
        otherwise = differences(each, found)
        if not otherwise and each.after in left_out:
            otherwise = [f"it started from {each.after.name}"]
        if otherwise:
            left_out[each.folder] = otherwise
        else:
            results.append(found)
    return results, left_out


def differences(work: Work, found: Mapping[str, Any]) -> list[str]:
    """What was otherwise when `found` was made, by name; empty where it is just what is planned."""
    then = dict(found["settings"])
    if _MODEL in then:
        then[_MODEL] = start_name_now(then[_MODEL], work.after)
    pairs = apart(then, work.settings)
    if found["preset"] != work.preset:
        pairs["preset"] = (found["preset"], work.preset)
    if pairs and work.is_warm_start:
        pairs = _apart_as_warm_starts(work, found["preset"], then)
    pairs |= {f"evaluation.{name}": pair for name, pair in apart(found["evaluation"], work.evaluation).items()}
    return in_words(pairs)


def _apart_as_warm_starts(work: Work, preset: str | None, settings: Mapping[str, str]) -> Pairs:
    """As `apart`, but for settings that neither the weights after a warm start nor its evaluation depend on."""
    now = warm_parts(resolve(work.preset, None, work.settings))
    try:
        then = warm_parts(resolve(preset, None, settings))
    except MulliganError:  # settings or a preset that no longer exist
        return {"preset": (preset, work.preset), **apart(settings, work.settings)}
    return apart(then, now)
