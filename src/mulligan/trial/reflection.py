"""Reflections: the parts that are asked for, and the parser of what the agent writes.

A reflection stands between ``<reflection>`` and ``</reflection>``, as ``name: text`` lines, as JSON, or as free text.
What does not parse is kept as text and marked invalid: the next episode still sees it.
"""

from __future__ import annotations

import json
import re

from mulligan.types import Completion, Reflection

FIELDS = {
    "strategy": "what you tried",
    "outcome": "how it ended",
    "reward": "the reward you got",
    "failed_at": "the turn or move at which it went wrong",
    "reasoning": "why you chose that move",
    "env_answer": "what the environment answered",
    "error_category": "none, misread, wrong-move, invalid-reply, bad-luck, out-of-turns or other",
    "plan": "what you will do differently next time",
}
"""The parts of a reflection, with what each should say."""
BOUNDARIES = {"applies": "when this holds", "not_when": "when it does not"}
"""Two parts more, of a reflection that outlives its trial: see `mulligan.journal`."""
ERROR_CATEGORIES = ("none", "misread", "wrong-move", "invalid-reply", "bad-luck", "out-of-turns", "other")

_NAMES = {name: name for name in (*FIELDS, *BOUNDARIES)} | {
    "applies when": "applies", "applies_when": "applies", "not when": "not_when", "does not apply": "not_when",
    "where it failed": "failed_at", "where_it_failed": "failed_at", "failed": "failed_at", "reason": "reasoning",
    "environment": "env_answer", "environment_answer": "env_answer", "feedback": "env_answer",
    "error": "error_category", "category": "error_category", "next": "plan", "next_plan": "plan",
}  # fmt: skip
_OPEN, _CLOSE = "<reflection>", "</reflection>"
_LINE = re.compile(r"[\s\-*#]*([A-Za-z][A-Za-z _]{1,24}?)\**\s*[:=]\s*(.*)")
_LONGEST = 100_000


def parse_reflection(completion: Completion, *, bare: bool = False) -> Reflection:
    """The reflection in a reply; never raises. `bare`: all of the reply is the reflection, with or without tags."""
    if bare:
        text = completion.text.replace(_OPEN, "").replace(_CLOSE, "").strip()
        return Reflection(text, bool(text), completion=completion)
    inside = _between_tags(completion.text)
    if inside is None:
        return Reflection(completion.text.strip(), False, completion=completion)
    looks_like_json = inside.lstrip("` \n").removeprefix("json").lstrip().startswith("{")
    fields = _read_json(inside) if looks_like_json else _read_lines(inside)
    if fields and "error_category" in fields:
        name = fields["error_category"].strip().lower().replace("_", "-").replace(" ", "-")
        fields["error_category"] = next((each for each in ERROR_CATEGORIES if name.startswith(each)), "other")
    return Reflection(inside, bool(inside) and fields is not None, fields or {}, completion)


def _between_tags(text: str) -> str | None:
    """The last tagged part; None without one, or with tags inside it."""
    if len(text) > _LONGEST:
        return None
    close = text.rfind(_CLOSE)
    start = text.rfind(_OPEN, 0, close) if close >= 0 else -1
    if start < 0:
        return None
    inside = text[start + len(_OPEN) : close].strip()
    return None if _CLOSE in inside else inside


def _read_json(text: str) -> dict[str, str] | None:
    try:
        parts = json.loads(text.strip("` \n").removeprefix("json"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(parts, dict):
        return None
    named = {_NAMES.get(str(key).strip().lower()): value for key, value in parts.items()}
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in named.items() if key}


def _read_lines(text: str) -> dict[str, str]:
    """``name: text`` lines; a line that names no field goes on with the one before."""
    fields: dict[str, list[str]] = {}
    current = ""
    for line in text.splitlines():
        match = _LINE.fullmatch(line) if len(line) < 2_000 else None
        name = _NAMES.get(match[1].strip().lower()) if match else None
        if match and name:
            current, fields[name] = name, [match[2].strip()]
        elif current and line.strip():
            fields[current].append(line.strip())
    return {name: " ".join(parts).strip() for name, parts in fields.items()}
