"""Games of TextArena for one or two players: ``textarena:Sokoban-v0``, ``textarena:KuhnPoker-v0``.

TextArena draws its luck from Python's and numpy's global generators. Each game here has them to itself while it is
asked something, so that the seed alone decides what happens, however many games are played at once. A move that the
game refuses is taken back, with the count of errors that TextArena keeps: here an invalid reply changes nothing.
"""

from __future__ import annotations

import copy
import math
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TextIO, cast

from mulligan.envs import registry
from mulligan.envs.adapters import action_with_arrows, library, nearest
from mulligan.envs.versus import settle_seat
from mulligan.errors import UnknownName, UsageError
from mulligan.seeding import derive, generator
from mulligan.types import Episode, ParamValue, Step, Task

Answer = Callable[[str, random.Random], str]
"""An opponent: what it reads and its luck in, its move out."""
_TURNS = 50
_PATIENCE = 20
"""Moves of an opponent that the game may refuse, one after another, before it forfeits."""
_LONGEST_MOVE = 60.0
"""Seconds; a game that has had the global generators for longer does not give them back."""
_OFFERED = re.compile(r"\[[^\[\]\n]{1,40}\]")
_ENDLESS = re.compile(r"\d{1000}")


def adapt(ident: str) -> type:
    """The game that TextArena registers as `ident`."""
    arena = library("textarena", f"textarena:{ident}")
    known = arena.envs.registration.ENV_REGISTRY
    if ident not in known:
        raise UnknownName("game of TextArena", ident, nearest(ident, known))
    players = _players(ident)
    limit = known[ident].kwargs.get("max_turns")
    base = Solo if players == 1 else Duel
    turns = int(limit) if isinstance(limit, int) and 0 < limit <= 1000 else _TURNS
    body = {"__doc__": f"{ident} of TextArena.", "ident": ident, "turns": turns}
    return type("Adapted", (base,), {**body, "deals": players == 2 and _deals(ident)})


def _make(ident: str) -> Any:
    """The game without wrappers: its messages one by one."""
    arena = library("textarena", f"textarena:{ident}")
    raw = ident if ident.endswith("-raw") else f"{ident}-raw"
    try:
        return arena.make(raw if raw in arena.envs.registration.ENV_REGISTRY else ident)
    except Exception as error:
        said = next((line for line in str(error).splitlines() if line.strip(" *")), type(error).__name__)
        raise UsageError(f"TextArena cannot make {ident}: {said.strip()}") from error


def _players(ident: str) -> int:
    """1 or 2: how many the game takes."""
    with _own_luck(random.Random(0).getstate(), None):
        for count in (1, 2):
            try:
                _make(ident).reset(num_players=count, seed=0)
            except (AssertionError, ValueError):  # how games say that they are not for so many
                continue
            except OSError as error:
                raise UsageError(f"TextArena cannot begin {ident}: {error}") from error
            return count
    raise UsageError(f"textarena:{ident} is for more than two players: only games for one or two can be played")


def _deals(ident: str) -> bool:
    """Whether the prompt tells what luck has dealt the player, and so is not the same in every game."""
    prompts = {tuple(each for each in _Game(ident, 2, seed).unread(0) if each.kind == "PROMPT") for seed in range(4)}
    return len(prompts) > 1


class _Luck:
    """The global generators, which one game has at a time.

    With a time limit (`env_timeout`) worlds are asked in threads of their own, and one that hangs is given up with its
    thread, which keeps them: the others are told so instead of waiting for ever.
    """

    def __init__(self) -> None:
        self.lock, self.since = threading.Lock(), math.inf

    def __enter__(self) -> None:
        while not self.lock.acquire(timeout=0.1):
            if time.monotonic() - self.since > _LONGEST_MOVE:
                raise TimeoutError(
                    f"another game of TextArena has not answered for more than {_LONGEST_MOVE:g} s and keeps Python's "
                    "random numbers, so that no other can be played in this process; start again"
                )
        self.since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.since = math.inf
        self.lock.release()


_LUCK = _Luck()


class _Muted:
    """Standard output as it was, without what this thread writes: others may write while a game is asked, or hangs."""

    def __init__(self, real: TextIO) -> None:
        self.real, self.thread = real, threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self.thread else self.real.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@contextmanager
def _own_luck(python: Any, numbers: Any) -> Iterator[list[Any]]:
    """Inside, the global generators are in these states; what they have become is in the list afterwards.

    What a game prints there is dropped: it would stand in the middle of a result.
    """
    import numpy

    with _LUCK, redirect_stdout(cast(TextIO, _Muted(sys.stdout))):
        before, before_numbers = random.getstate(), numpy.random.get_state()  # noqa: NPY002 (TextArena uses it)
        left: list[Any] = []
        random.setstate(python)
        if numbers is not None:
            numpy.random.set_state(numbers)  # noqa: NPY002
        try:
            yield left
        finally:
            left += [random.getstate(), numpy.random.get_state()]  # noqa: NPY002
            random.setstate(before)
            numpy.random.set_state(before_numbers)  # noqa: NPY002


class _Message(NamedTuple):
    """What a player is told."""

    speaker: Any
    """The number of the player who said it; something else for the game itself."""
    kind: str
    text: str


class _Game:
    """A game of TextArena under way, and the luck that is its own."""

    def __init__(self, ident: str, players: int, seed: int) -> None:
        import numpy

        numbers = numpy.random.RandomState(seed % 2**32).get_state()
        with _own_luck(random.Random(seed).getstate(), numbers) as left:
            self.env = _make(ident)
            self.env.reset(num_players=players, seed=seed % 2**31)
        self.luck = left

    @property
    def mover(self) -> int:
        return int(self.env.state.current_player_id)

    @property
    def over(self) -> bool:
        return bool(self.env.state.done)

    def reward(self, player: int) -> float:
        found = self.env.state.rewards or {}
        return float(found.get(player, 0.0))

    def unread(self, player: int) -> list[_Message]:
        """What the player has not read yet."""
        found = [
            # Countdown and others hand over a move in the wrong order: what should be its kind is its text.
            _Message(speaker, getattr(kind, "name", "PLAYER_ACTION"), _dedented(str(text)))
            for speaker, text, kind in self.env.state.observations[player]
        ]
        self.env.state.observations[player] = []
        return found

    def told(self, messages: Sequence[_Message], player: int) -> str:
        """Messages as an observation of the player's; its own words are left out, the other's are marked as such."""
        other = 1 - player
        mark = f"[{self.env.state.role_mapping.get(other, f'Player {other}')}] "
        said = [mark + each.text if each.speaker == other else each.text for each in messages if _is_news(each, other)]
        return "\n".join(said).strip("\n")

    def play(self, move: str) -> str | None:
        """Make a move; None, or why it was refused: then nothing has happened."""
        before, luck, state = copy.deepcopy(self.env), self.luck, self.env.state
        refused: list[str] = []
        real = state.set_invalid_move

        def noted(*args: Any, **given: Any) -> None:
            refused.append(str(given.get("reason") or next((text for text in args if isinstance(text, str)), "")))
            real(*args, **given)

        state.error_count, state.set_invalid_move = 0, noted
        with _own_luck(*luck) as left:
            self.env.step(move)
        del state.set_invalid_move
        if refused:
            self.env = before
            return refused[0] or "That is not a legal move."
        self.luck = left
        return None


class _Arena:
    """What games for one and for two share."""

    ident: ClassVar[str]
    turns: ClassVar[int] = _TURNS
    deals: ClassVar[bool] = False
    """Whether the prompt belongs to one game alone: it is an observation then, since rules are said once a trial."""
    task: Task
    game: _Game
    me = 0
    prompt = seen = ""
    ended = False
    """Whether the player knows that the game is over."""

    def rules(self) -> str:
        how = "Give your move inside tags, with the brackets that the game asks for: <action>[...]</action>"
        return f"{self.prompt}\n{how}".lstrip("\n")

    def begin(self, players: int, seed: int) -> None:
        """A new game; what its prompt says to this player becomes the rules."""
        self.game = _Game(self.ident, players, seed)
        found = self.game.unread(self.me)
        rules = [] if self.deals else [message for message in found if message.kind == "PROMPT"]
        self.prompt = "\n".join(message.text for message in rules)
        self.ended = False
        self.let_others_move()
        news = [message for message in found if message not in rules] + self.game.unread(self.me)
        self.seen = self.game.told(news, self.me)

    def let_others_move(self) -> None:
        """Until it is this player's turn, or the game is over."""

    def result(self) -> float | None:
        """What the game paid this player; None while it goes on."""
        return self.game.reward(self.me) if self.game.over else None

    def step(self, reply: str) -> Step:
        said = action_with_arrows(reply)
        if self.ended:
            return self._invalid("The game is over.")
        if self.result() is not None:  # the others have ended it before this player's first move
            return self._told_step()
        if said is None:
            return self._invalid("No move could be read; give it as <action>[...]</action>.")
        if _ENDLESS.search(said):  # which games turn into a number, and Python refuses to
            return self._invalid("No move has so many digits.")
        refused = self.game.play(bracketed(said))
        if refused is not None:
            return self._invalid(refused)
        self.let_others_move()
        self.seen = self.game.told(self.game.unread(self.me), self.me)
        return self._told_step()

    def _told_step(self) -> Step:
        reward = self.result()
        self.ended = reward is not None
        if reward is None:
            return Step(self.seen, state_key=self.seen)
        return Step(self.seen, reward, True, self.is_win(reward), state_key=self.seen)

    def is_win(self, reward: float) -> bool:
        return reward >= 1

    def digest(self, episode: Episode) -> str:
        played = [
            action_with_arrows(turn.reply.text) or turn.reply.text.strip()  # bare replies have no tags
            for turn in episode.turns
            if turn.valid
        ]
        return f"moves {' '.join(played) or 'none'}\n{episode.final}"

    def _invalid(self, why: str) -> Step:
        return Step(self.seen, valid=False, state_key=self.seen, feedback=why)


class Solo(_Arena):
    """A game of TextArena for one player."""

    kind: ClassVar[str] = "solve"

    def __init__(self, task: Task) -> None:
        self.task = task
        self.reset()

    @classmethod
    def task_class(cls, params: Mapping[str, ParamValue]) -> str:
        return f"textarena/{cls.ident}"

    def reset(self, chance: int = 0) -> str:
        self.begin(1, derive(self.task.seed, self.ident))
        return self.seen


class Duel(_Arena):
    """A game of TextArena for two, against an opponent.

    opponent  "random" picks among the moves in brackets that it was last offered; or path/to/file.py:function, which
              gets what the opponent has read and a `random.Random`, and returns a move.
    """

    kind: ClassVar[str] = "versus"
    timeout_reward: ClassVar[float] = -1.0
    defaults: ClassVar[dict[str, ParamValue]] = {"opponent": "random", "seat": 0}

    def __init__(self, task: Task) -> None:
        self.task, self.me = task, task.integer("seat") - 1
        self.answer = _opponent(self.ident, task.text("opponent"))
        self.reset()

    @classmethod
    def settle(cls, params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        _opponent(cls.ident, str(params["opponent"]))
        return settle_seat(f"textarena:{cls.ident}", params, seed)

    @classmethod
    def task_class(cls, params: Mapping[str, ParamValue]) -> str:
        return f"textarena/{cls.ident}/vs-{params['opponent']}"

    def reset(self, chance: int = 0) -> str:
        self.rng = generator(self.task.seed, "opponent", chance)
        self.heard: list[str] = []
        self.forfeited = False
        self.begin(2, derive(self.task.seed, self.ident, chance))
        return self.seen

    def let_others_move(self) -> None:
        other, refused = 1 - self.me, 0
        while not self.game.over and not self.forfeited and self.game.mover == other:
            self.heard += [message.text for message in self.game.unread(other)]
            if self.game.play(bracketed(self.answer("\n".join(self.heard), self.rng))) is None:
                refused = 0
            else:
                refused += 1
                self.forfeited = refused > _PATIENCE

    def result(self) -> float | None:
        return 1.0 if self.forfeited else super().result()

    def is_win(self, reward: float) -> bool:
        return reward > 0


def bracketed(move: str) -> str:
    """A move in the brackets that TextArena's games look for."""
    return move if "[" in move else f"[{move}]"


def _opponent(ident: str, name: str) -> Answer:
    if name == "random":
        return _any_offered
    file, colon, function = name.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise UnknownName(f"opponent of textarena:{ident}", name, ["random", "path/to/file.py:function"])
    return cast(Answer, registry.load_from_file(Path(file), function))


def _any_offered(heard: str, rng: random.Random) -> str:
    """One of the moves on the last line that names some."""
    for line in reversed(heard.splitlines()):
        offered = [str(each) for each in _OFFERED.findall(line) if each.lower() not in _TAGS]
        if offered:
            return offered[int(rng.random() * len(offered))]
    return ""


_TAGS = ("[game]", "[player]", "[player 0]", "[player 1]")


def _is_news(message: _Message, other: int) -> bool:
    """Not so a player's own move, which some games repeat as if they had said it themselves."""
    return message.kind != "PLAYER_ACTION" or message.speaker == other


def _dedented(text: str) -> str:
    return "\n".join(line.strip() if line.startswith("        ") else line.rstrip() for line in text.splitlines())
