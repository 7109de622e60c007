"""Players that do what their notes say, for the tests of writers."""

from __future__ import annotations


def does_as_noted(messages: list[dict[str, str]]) -> str:
    """In I-spy: says the first letter of the note it is shown; without one, a."""
    note = messages[-1]["content"].partition("\n")[0].strip()
    return note[:1] if "\n" in messages[-1]["content"] and note else "a"
