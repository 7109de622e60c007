"""A setting: a field of a dataclass, annotated with its help text and its range.

``lr: Annotated[float, "Learning rate of AdamW.", POSITIVE] = 6e-4`` is all there is to write. TOML files, the command
line, Python and the help texts read it from there. A field whose type is a dataclass (`Sampling`) is a group: its
fields stand beside the others. Fields without a help text are no settings.

Pydantic would do the parsing. It costs 125 ms of import before ``mulligan eval`` answers and a compiled dependency of
the core, and its errors of several lines would have to be worded again.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, reduce
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from mulligan.errors import ParameterError

_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text on one line"}

Section = TypeVar("Section")


@dataclass(frozen=True)
class Range:
    """The numbers that a setting takes."""

    low: float
    high: float = math.inf
    without: float | None = None
    """An end that is not part of the range."""

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high and value != self.without

    def __str__(self) -> str:
        at_least = f"{'>' if self.without == self.low else '>='} {self.low:g}"
        at_most = f" and {'<' if self.without == self.high else '<='} {self.high:g}"
        return at_least if self.high == math.inf else at_least + at_most


AT_LEAST_0, AT_LEAST_1, SHARE = Range(0), Range(1), Range(0, 1)
POSITIVE, LESS_THAN_1 = Range(0, without=0), Range(0, 1, without=1)


@dataclass(frozen=True)
class Setting:
    """One setting of a section."""

    name: str
    path: tuple[str, ...]
    """Attributes that lead to it from the section: ``("sampling", "temperature")``."""
    kind: type
    """int, float, bool or str."""
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    """The values it may have, where they are named; empty otherwise."""
    optional: bool = False
    """Whether it may be None."""
    range: Range | None = None

    @property
    def none_word(self) -> str:
        return "default" if "none" in self.choices else "none"

    @property
    def allowed(self) -> str:
        """What it takes, in words."""
        words = f"one of {', '.join(self.choices)}" if self.choices else _KINDS[self.kind]
        return f"{words}, or {self.none_word!r}" if self.optional else words

    def shown(self, value: object) -> str:
        """A value as one would type it."""
        if value is None:
            return self.none_word
        return str(value).lower() if self.kind is bool else str(value)

    def of(self, section: object) -> Any:
        return reduce(getattr, self.path, section)

    def parse(self, text: str, where: str = "") -> Any:
        """The value that `text` spells on the command line."""
        if self.optional and text.lower() == self.none_word:
            return None
        try:
            value: object = _BOOLEANS[text.lower()] if self.kind is bool else self.kind(text)
        except (KeyError, ValueError):
            raise self._refusal(text, where) from None
        return self.check(value, where)

    def check(self, value: Any, where: str = "") -> Any:
        """`value` in the setting's type; NumPy numbers become Python's. `where` names the source in errors."""
        if value is None and self.optional:
            return None
        if hasattr(value, "dtype") and hasattr(value, "item"):
            value = value.item()
        if self.kind is float and type(value) is int:
            value = float(value)
        elif self.kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        if self.optional and isinstance(value, str) and value.lower() == self.none_word:
            return None
        is_unknown = bool(self.choices) and value not in self.choices
        is_odd_text = isinstance(value, str) and not is_one_line(value)
        if type(value) is not self.kind or value != value or is_unknown or is_odd_text:
            raise self._refusal(value, where)
        if self.range is not None and isinstance(value, int | float) and value not in self.range:
            raise ParameterError(f"{self.name}{where} must be {self.range} (got {value:g})")
        return value

    def _refusal(self, value: object, where: str) -> ParameterError:
        return ParameterError(f"{self.name}{where} must be {self.allowed} (got {value!r})")


def settings_of(kind: Any, prefix: str = "") -> Mapping[str, Setting]:
    """Every setting of a section (a dataclass) by name, in the order of its fields; names begin with `prefix`."""
    return _read(kind, prefix)


@cache  # reading annotations takes a millisecond, and trials are made by the thousand
def _read(kind: type, prefix: str) -> Mapping[str, Setting]:
    return {setting.name: setting for setting in _settings(kind, prefix, ())}


def _settings(kind: type, prefix: str, path: tuple[str, ...]) -> Iterator[Setting]:
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        hint = hints[field.name]
        if is_dataclass(hint) and isinstance(hint, type):
            yield from _settings(hint, prefix, (*path, field.name))
        notes = getattr(hint, "__metadata__", ())
        text = next((note for note in notes if isinstance(note, str)), None)
        if text is None:
            continue
        bounds = next((note for note in notes if isinstance(note, Range)), None)
        base = get_args(hint)[0]
        if optional := type(None) in get_args(base):
            (base,) = (part for part in get_args(base) if part is not type(None))
        choices = get_args(base) if get_origin(base) is Literal else ()
        setting_path, value_kind = (*path, field.name), str if choices else base
        yield Setting(prefix + field.name, setting_path, value_kind, field.default, text, choices, optional, bounds)


def check_fields(section: Any) -> None:
    """Check the settings of a frozen section, and convert NumPy numbers; for its ``__post_init__``."""
    for setting in settings_of(type(section)).values():
        if len(setting.path) == 1:  # a group checks its own
            object.__setattr__(section, setting.name, setting.check(getattr(section, setting.name)))


def with_values(section: Section, values: Mapping[str, Any]) -> Section:
    base: Any = section
    groups: dict[str, dict[str, Any]] = {}
    changes: dict[str, Any] = {}
    for name, value in values.items():
        *group, field_name = settings_of(type(base))[name].path
        (groups.setdefault(group[0], {}) if group else changes)[field_name] = value
    changes |= {name: replace(getattr(base, name), **group_values) for name, group_values in groups.items()}
    result: Section = replace(base, **changes)
    return result


def is_one_line(text: str) -> bool:
    """Whether a TOML string in UTF-8 can hold it as it is: no control characters, no broken encoding."""
    return not any(unicodedata.category(character) in ("Cc", "Cs") for character in text)
