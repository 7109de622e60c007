"""Which official game a task plays, and which set of tasks the game is for.

The files' own split decides: games of ``train`` are for training, of ``valid_train`` (in rooms of training) for
validation, of ``valid_seen`` and ``valid_unseen`` for evaluation. A trial that stands in ``train`` and in a ``valid_*``
is not trained on. A split is named by a folder, a file (``valid_seen.jsonl.gz``) or the beginning of a game's id. Games
of no split have no set, and their worlds are split as those of generated games are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from mulligan.envs.alfworld.games import (
    DATA,
    LINES,
    SPLITS,
    Place,
    Unsolvable,
    find,
    ident,
    kind_by_name,
    load,
    name_of,
    plan_length,
)
from mulligan.envs.alfworld.pddl import GameError
from mulligan.envs.alfworld.world import World
from mulligan.seeding import derive

TRAIN = "train"
SETS = {TRAIN: TRAIN, "valid_train": "validation", "valid_seen": "eval", "valid_unseen": "eval"}
"""Split of the official games -> set of tasks."""


class Listing(NamedTuple):
    """The games that a task may have."""

    places: tuple[Place, ...]
    sets: tuple[str | None, ...]
    """The set of tasks that each is for; None where no file says."""
    by_set: dict[str | None, list[int]]
    """Numbers of the games for each set."""


def pick(games: str, number: int, seed: int, kinds: tuple[str, ...], longest: int) -> tuple[int, World]:
    """Game number `number` of `games`; where it is negative, the first from the seed on that fits.

    `games` is ``official`` (all under ALFWORLD_DATA), one of its splits such as ``valid_seen``, or a path. A game fits
    when it is of one of `kinds` and its plan has at most `longest` steps; an asked-for number must fit too.
    """
    listed = listing(games)
    places = listed.places
    if number >= len(places):
        raise GameError(f"alfworld: game={number} is beyond the {len(places)} of games={games!r}")
    if number >= 0:
        world = load(places[number])
        if world.goal.kind not in kinds:
            raise GameError(f"{places[number]}: its task is {world.goal.kind!r}, and kind asks for {', '.join(kinds)}")
        if (steps := plan_length(places[number])) > longest:
            raise GameError(f"{places[number]}: its plan has {steps} steps; give plan={steps} and turns={steps + 2}")
        return number, world
    for candidate in _candidates(listed, seed):
        if kind_by_name(places[candidate]) not in (*kinds, ""):
            continue
        try:
            world = load(places[candidate])
        except Unsolvable:
            continue
        if world.goal.kind in kinds and plan_length(places[candidate]) <= longest:
            return candidate, world
    raise GameError(
        f"alfworld: none of the {len(places)} games of games={games!r} is of kind {', '.join(kinds)} with a plan of at "
        f"most {longest} steps; give a larger plan, or another kind"
    )


def seed_set(games: str, number: int) -> str | None:
    """The set of tasks that game `number` of `games` is for; None where the files do not say."""
    return listing(games).sets[number]


def listing(games: str) -> Listing:
    """The games behind the parameter `games`, numbered.

    ``train`` has the games of ``valid_train`` too, after its own: a run that trains on the former is validated on the
    latter.
    """
    root = os.environ.get(DATA, "") if games in (*SPLITS, "official") else games
    return _listing(games, root, Path(root).stat().st_mtime_ns if Path(root).exists() else 0)


@lru_cache(maxsize=16)
def _listing(games: str, root: str, stamp: int) -> Listing:
    places = find(games)
    beside = _beside(Path(root))
    if games == TRAIN:
        places += tuple(place for place in beside if split_of(place) == "valid_train")
    apart = _kept_apart(beside)
    sets = tuple(apart.get(name_of(place, ident(place))) or SETS.get(split_of(place)) for place in places)
    by_set: dict[str | None, list[int]] = {}
    for number, seed_set in enumerate(sets):
        by_set.setdefault(seed_set, []).append(number)
    return Listing(places, sets, by_set)


def _beside(root: Path) -> tuple[Place, ...]:
    """All games of the data that `root` is part of: beside a split, those of the other splits."""
    if root.name in SPLITS:
        return find(str(root.parent))
    if not (root.is_file() and _named(root) in SPLITS):
        return find(str(root))
    files = [file for file in sorted(root.parent.iterdir()) if _named(file) in SPLITS and file.name.endswith(LINES)]
    return tuple(place for file in files for place in find(str(file)))


def _named(file: Path) -> str:
    """The name of a file without its endings."""
    return file.name.partition(".")[0]


def _kept_apart(places: Iterable[Place]) -> dict[str, str]:
    """The set of every game of a ``valid_*`` split, by name, wherever else the game stands."""
    splits = ((place, split_of(place)) for place in places)
    return {name_of(place, ident(place)): SETS[split] for place, split in splits if split not in ("", TRAIN)}


def split_of(place: Place) -> str:
    """The official split that a game belongs to, "" for none: ``valid_*`` before ``train`` where names disagree."""
    path = Path(place.file).absolute()
    named = [part for part in (ident(place).partition("/")[0], _named(path)) if part in SPLITS]
    named += [part for part in reversed(path.parts[:-1]) if part in SPLITS][:1]
    return next((split for split in named if split != TRAIN), TRAIN if named else "")


def _candidates(listed: Listing, seed: int) -> Iterator[int]:
    """Numbers of games from the seed on: those of one set, which the seed draws, then those of the others.

    Each set is drawn about equally often, so that a small one among thousands of games is found in a few draws.
    """
    sets = list(listed.by_set)
    first = derive(seed, "alfworld set") % len(sets) if len(sets) > 1 else 0
    for name in sets[first:] + sets[:first]:
        numbers = listed.by_set[name]
        start = seed % len(numbers)
        yield from numbers[start:] + numbers[:start]
