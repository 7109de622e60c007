"""Games of TextArena for one or two players: ``textarena:Sokoban-v0``, ``textarena:KuhnPoker-v0``.

TextArena draws its luck from Python's and numpy's global generators. Each game here has them to itself while it is
asked something, so that the seed alone decides what happens, however many games are played at once. A move that the
game refuses is taken back, with the count of errors that TextArena keeps: here an invalid reply changes nothing.

Parameters of games for two (`--env.NAME`):

opponent  ``random`` picks among the moves in brackets that it was last offered; or path/to/file.py:function, which gets
          what the opponent has read and a `random.Random`, and returns a move
seat      1 moves first, 2 second; 0 lets the seed decide
"""

from __future__ import annotations

import copy
import io
import random
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TextIO, cast

from mulligan.envs import registry
from mulligan.envs.adapters import Listed, action_with_arrows, nearest
from mulligan.envs.base import library, pick, settle_seat
from mulligan.envs.opponents import ask
from mulligan.errors import UnknownName, UsageError
from mulligan.seeding import derive, generator
from mulligan.types import Episode, ParamValue, Step, Task

Answer = Callable[[str, random.Random], str]
"""An opponent: what it reads and its luck in, its move out."""
_TURNS = 50
_PATIENCE = 20
"""Moves of an opponent that the game may refuse, one after another, before it forfeits."""
_LONGEST_WAIT = 60.0
"""Seconds to wait for the global generators; a game that hangs in a thread of its own never gives them back."""
_OFFERED = re.compile(r"\[[^\[\]\n]{1,40}\]")
_TAGS = ("[game]", "[player]", "[player 0]", "[player 1]")
_ENDLESS = re.compile(r"\d{1000}")


def adapt(ident: str) -> type:
    """The game that TextArena registers as `ident`."""
    games = _registered(f"textarena:{ident}")
    if ident not in games:
        raise UnknownName("game of TextArena", ident, nearest(ident, games))
    limit = games[ident].kwargs.get("max_turns")
    turns = int(limit) if isinstance(limit, int) and 0 < limit <= 1000 else _TURNS
    body = {"__doc__": f"{ident} of TextArena.", "__module__": __name__, "ident": ident, "turns": turns}
    if _players(ident) == 2:
        body |= {"kind": "versus", "timeout_reward": -1.0, "defaults": {"opponent": "random", "seat": 0}}
        begun = [_Game(ident, 2, seed).unread(0) for seed in range(4)]
        body["is_dealt"] = len({tuple(each for each in news if each.kind == "PROMPT") for news in begun}) > 1
    return type("Adapted", (ArenaGame,), body)


def catalogue() -> Iterator[Listed]:
    """Every game that can be played here, with its variants."""
    variants: dict[str, list[str]] = {}
    for ident, entry in _registered("textarena").items():
        if not ident.endswith(("-raw", "-train")):
            variants.setdefault(str(entry.entry_point), []).append(ident)
    for idents in variants.values():
        ident, *others = sorted(idents, key=len)
        with suppress(UsageError):  # more players, or something that the game needs is missing
            yield Listed(ident, _players(ident), f"also {', '.join(sorted(others))}" if others else "")


def _textarena(env: str) -> Any:
    """The module ``textarena``, imported only now; `env` needs it."""
    if "textarena" in sys.modules:
        return library("textarena", env)
    with redirect_stderr(io.StringIO()):  # which nltk keeps, and would tell of every word list that it cannot download
        return library("textarena", env)


def _registered(env: str) -> dict[str, Any]:
    return dict(_textarena(env).envs.registration.ENV_REGISTRY)


def _make(ident: str) -> Any:
    """The game without wrappers: its messages one by one."""
    raw = ident if ident.endswith("-raw") else f"{ident}-raw"
    env = f"textarena:{ident}"
    try:
        return _textarena(env).make(raw if raw in _registered(env) else ident)
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if line.strip(" *")), type(error).__name__)
        raise UsageError(f"TextArena cannot make {ident}: {reason.strip()}") from error


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


_LUCK = threading.Lock()
"""Held by the game that has the global generators."""


class _Muted:
    """Standard output without what this thread writes."""

    def __init__(self, real: TextIO) -> None:
        self.real, self.thread = real, threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self.thread else self.real.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@contextmanager
def _own_luck(python_state: Any, numpy_state: Any) -> Iterator[list[Any]]:
    """Inside, the global generators are in these states and nothing is printed; their new states are in the list."""
    import numpy

    if not _LUCK.acquire(timeout=_LONGEST_WAIT):
        raise TimeoutError(f"another game of TextArena has not answered for {_LONGEST_WAIT:g} s; start again")
    before = random.getstate(), numpy.random.get_state()  # noqa: NPY002 (TextArena uses it)
    states: list[Any] = []
    try:
        random.setstate(python_state)
        if numpy_state is not None:
            numpy.random.set_state(numpy_state)  # noqa: NPY002
        with redirect_stdout(cast(TextIO, _Muted(sys.stdout))):
            yield states
    finally:
        states += [random.getstate(), numpy.random.get_state()]  # noqa: NPY002
        random.setstate(before[0])
        numpy.random.set_state(before[1])  # noqa: NPY002
        _LUCK.release()


class _Message(NamedTuple):
    """What a player is told; the speaker is a player's number, or something else for the game itself."""

    speaker: Any
    kind: str
    text: str


class _Game:
    """A game of TextArena under way, with the states of its own generators."""

    def __init__(self, ident: str, players: int, seed: int) -> None:
        import numpy

        numpy_state = numpy.random.RandomState(seed % 2**32).get_state()
        with _own_luck(random.Random(seed).getstate(), numpy_state) as states:
            self.env = _make(ident)
            self.env.reset(num_players=players, seed=seed % 2**31)
        self.luck = states

    def unread(self, player: int) -> list[_Message]:
        observations = self.env.state.observations
        news, observations[player] = observations[player], []
        # Countdown and others hand over a move in the wrong order: what should be its kind is its text.
        return [
            _Message(speaker, getattr(kind, "name", "PLAYER_ACTION"), _dedented(str(text)))
            for speaker, text, kind in news
        ]

    def observation(self, messages: Sequence[_Message], player: int) -> str:
        """Messages as the player reads them, without its own moves and with the other's words marked."""
        other = 1 - player
        mark = f"[{self.env.state.role_mapping.get(other, f'Player {other}')}] "
        news = [each for each in messages if each.kind != "PLAYER_ACTION" or each.speaker == other]
        return "\n".join(mark + each.text if each.speaker == other else each.text for each in news).strip("\n")

    def play(self, move: str) -> str | None:
        """Make a move, in the brackets that games look for; None, or why it was refused: then nothing has happened."""
        before, state = copy.deepcopy(self.env), self.env.state
        reasons: list[str] = []
        set_invalid_move = state.set_invalid_move

        def note(*args: Any, **options: Any) -> None:
            reasons.append(str(options.get("reason") or next((text for text in args if isinstance(text, str)), "")))
            set_invalid_move(*args, **options)

        state.error_count, state.set_invalid_move = 0, note
        with _own_luck(*self.luck) as states:
            self.env.step(move if "[" in move else f"[{move}]")
        del state.set_invalid_move
        if reasons:
            self.env = before
            return reasons[0] or "That is not a legal move."
        self.luck = states
        return None


class ArenaGame:
    """A game of TextArena for one player, or for two against an opponent."""

    ident: ClassVar[str]
    kind: ClassVar[str] = "solve"
    turns: ClassVar[int] = _TURNS
    is_dealt: ClassVar[bool] = False
    """Whether the prompt belongs to one game alone: it is an observation then, since rules are said once a trial."""

    def __init__(self, task: Task) -> None:
        self.task, self.seat_index = task, (task.seat or 1) - 1
        self.answer = _opponent(self.ident, task.opponent or "random")
        self.reset()

    @classmethod
    def settle(cls, params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        if cls.kind == "solve":
            return params
        _opponent(cls.ident, str(params["opponent"]))
        return settle_seat(f"textarena:{cls.ident}", params, seed)

    @classmethod
    def task_class(cls, params: Mapping[str, ParamValue]) -> str:
        return f"textarena/{cls.ident}" + (f"/vs-{params['opponent']}" if cls.kind == "versus" else "")

    def rules(self) -> str:
        how = "Give your move inside tags, with the brackets that the game asks for: <action>[...]</action>"
        return f"{self.prompt}\n{how}".lstrip("\n")

    def reset(self, chance: int = 0) -> str:
        """A new game; what its prompt says to this player becomes the rules."""
        self.rng = generator(self.task.seed, "opponent", chance)
        self.opponent_read: list[str] = []
        self.forfeited = self.ended = False
        """Whether the opponent makes no move, and whether the player knows that the game is over."""
        luck = (chance,) if self.kind == "versus" else ()
        self.game = _Game(self.ident, 1 + len(luck), derive(self.task.seed, self.ident, *luck))
        messages = self.game.unread(self.seat_index)
        rules = [] if self.is_dealt else [message for message in messages if message.kind == "PROMPT"]
        self.prompt = "\n".join(message.text for message in rules)
        self._let_opponent_move()
        news = [message for message in messages if message not in rules] + self.game.unread(self.seat_index)
        self.seen = self.game.observation(news, self.seat_index)
        return self.seen

    def _let_opponent_move(self) -> None:
        """Until it is this player's turn, or the game is over."""
        other, refused = 1 - self.seat_index, 0
        while self.result() is None and self.game.env.state.current_player_id == other:
            self.opponent_read += [message.text for message in self.game.unread(other)]
            name = self.task.opponent or "random"
            move = ask(name, self.answer, "\n".join(self.opponent_read), self.rng)
            refused = 0 if self.game.play(move) is None else refused + 1
            self.forfeited = refused > _PATIENCE

    def result(self) -> float | None:
        """What the game paid this player; None while it goes on."""
        state = self.game.env.state
        if self.forfeited:
            return 1.0
        return float((state.rewards or {}).get(self.seat_index, 0.0)) if state.done else None

    def step(self, reply: str) -> Step:
        if self.ended:
            return self._invalid("The game is over.")
        if self.result() is None:  # otherwise the others have ended it before this player's first move
            move = action_with_arrows(reply)
            if move is None:
                return self._invalid("No move could be read; give it as <action>[...]</action>.")
            too_long = _ENDLESS.search(move)  # games turn it into a number, and Python refuses to
            refused = "No move has so many digits." if too_long else self.game.play(move)
            if refused is not None:
                return self._invalid(refused)
            self._let_opponent_move()
            self.seen = self.game.observation(self.game.unread(self.seat_index), self.seat_index)
        result = self.result()
        self.ended, reward = result is not None, result or 0.0
        won = reward > 0 if self.kind == "versus" else reward >= 1
        return Step(self.seen, reward, self.ended, won, state_key=self.seen)

    def digest(self, episode: Episode) -> str:
        replies = [turn.reply.text for turn in episode.turns if turn.valid]
        played = [action_with_arrows(reply) or reply.strip() for reply in replies]  # bare replies have no tags
        return f"moves {' '.join(played) or 'none'}\n{episode.final}"

    def _invalid(self, feedback: str) -> Step:
        return Step(self.seen, valid=False, state_key=self.seen, feedback=feedback)


def _opponent(ident: str, name: str) -> Answer:
    if name == "random":
        return _any_offered
    file, colon, function = name.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise UnknownName(f"opponent of textarena:{ident}", name, ["random", "path/to/file.py:function"])
    return cast(Answer, registry.load_from_file(Path(file), function))


def _any_offered(text: str, rng: random.Random) -> str:
    """One of the moves on the last line that names some."""
    for line in reversed(text.splitlines()):
        offered = [str(move) for move in _OFFERED.findall(line) if move.lower() not in _TAGS]
        if offered:
            return pick(rng, offered)
    return ""


def _dedented(text: str) -> str:
    return "\n".join(line.strip() if line.startswith("        ") else line.rstrip() for line in text.splitlines())
