"""What a scripted player's reflection says, field by field."""

from __future__ import annotations


def fields_of(reflection: str) -> dict[str, str]:
    lines = reflection.splitlines()
    assert (lines[0], lines[-1]) == ("<reflection>", "</reflection>")
    return dict(line.split(": ", 1) for line in lines[1:-1])


FIELDS = ["strategy", "outcome", "reward", "failed_at", "reasoning", "env_answer", "error_category", "plan"]
