"""Any turn-based game for two of OpenSpiel: ``openspiel:connect_four``, ``openspiel:hex(board_size=5)``.

Parameters (`--env.NAME`):

opponent  ``random``; where nothing is hidden, ``mcts:100``, which looks ahead with so many simulations, and in small
          games ``minimax``, which never goes wrong; ``cfr``, the equilibrium of small games with hidden cards, which
          tosses coins; or one with a habit, where the game has them (``mulligan.envs.adapters.spiel_opponents``); or
          several, or one that changes (`mulligan.envs.opponents`)
pool      what the opponent was drawn from, which is filled in
seat      1 moves first, 2 second; 0 lets the seed decide
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, ClassVar, Self

from mulligan.envs.adapters import Listed, action_with_arrows, nearest
from mulligan.envs.adapters.spiel_opponents import Habit, habits_of, solved
from mulligan.envs.base import ORDER, draw, library, pick, settle_seat
from mulligan.envs.opponents import ask_move, at_episode, guest_mover, is_guest, settle_opponent, simulations_of
from mulligan.errors import ParameterError, UnknownName, UsageError
from mulligan.seeding import generator
from mulligan.types import Episode, ParamValue, Step, Task

_EXPLORATION = 2.0
"""The constant of UCT's exploration term."""
_MOST_TURNS, _MOST_LISTED, _SAMPLES = 200, 60, 8


def _spiel(env: str) -> Any:
    """The module ``pyspiel``, imported only now; `env` needs it."""
    return library("pyspiel", env, extra="games")


def adapt(ident: str) -> type:
    """The environment of OpenSpiel's game `ident`, with its parameters in brackets as OpenSpiel writes them."""
    name = f"openspiel:{ident}"
    spiel = _spiel(name)
    if ident.partition("(")[0] not in spiel.registered_names():
        raise UnknownName("game of OpenSpiel", ident, nearest(ident.partition("(")[0], spiel.registered_names()))
    try:
        game = load_game(name, ident)
    except spiel.SpielError as error:
        raise UsageError(f"OpenSpiel cannot load {ident!r}: {str(error).strip().splitlines()[-1]}") from None
    kind = game.get_type()
    if not _is_playable(kind) or game.num_players() != 2:
        raise UsageError(f"{name}: only games in which two players move in turn can be played")
    body = {
        "__doc__": f"{kind.long_name} (OpenSpiel) against one opponent.",
        "__module__": __name__,
        "name": name,
        "game_name": ident,
        "is_open": kind.information == spiel.GameType.Information.PERFECT_INFORMATION,
        "turns": min(_MOST_TURNS, _most_moves(game)),
        "timeout_reward": float(game.min_utility()),
    }
    return type("Adapted", (SpielGame,), body)


def catalogue() -> Iterator[Listed]:
    """Every game that can be played without parameters."""
    for kind in _spiel("openspiel").registered_games():
        players = kind.parameter_specification.get("players") or kind.min_num_players
        if _is_playable(kind) and players == 2 and kind.default_loadable:
            yield Listed(kind.short_name, 2, kind.long_name)


def _is_playable(kind: Any) -> bool:
    return bool(kind.dynamics == _spiel("openspiel").GameType.Dynamics.SEQUENTIAL)


@lru_cache(maxsize=8)
def load_game(env: str, name: str) -> Any:
    """OpenSpiel's game `name`, one object for the whole process; `env` needs it."""
    return _spiel(env).load_game(name)


def mcts(env: str, game_name: str, simulations: int, rng: random.Random) -> Callable[[Sequence[int]], int]:
    """An opponent that searches: from the actions that were played so far to its own."""
    spiel, game, seed = _spiel(env), load_game(env, game_name), int(rng.random() * 2**31)
    evaluator = spiel.RandomRolloutEvaluator(1, seed)
    bot = spiel.MCTSBot(game, evaluator, _EXPLORATION, simulations, 64, True, seed, False)

    def search(history: Sequence[int]) -> int:
        state = game.new_initial_state()
        for action in history:
            state.apply_action(action)
        return int(bot.step(state))

    return search


def _most_moves(game: Any) -> int:
    """Moves that one player may make: half of the game's, unless some random games show one who moves again."""
    rng = generator(0, "openspiel turns")
    for _ in range(_SAMPLES):
        state, mover = game.new_initial_state(), None
        for _ in range(_MOST_TURNS):
            if state.is_terminal():
                break
            if not state.is_chance_node():
                if state.current_player() == mover:
                    return int(game.max_game_length())
                mover = state.current_player()
            state.apply_action(pick(rng, state.legal_actions()))
    return (int(game.max_game_length()) + 1) // 2


class SpielGame:
    """A game of OpenSpiel against one opponent."""

    kind: ClassVar[str] = "versus"
    defaults: ClassVar[dict[str, ParamValue]] = {"opponent": "random", "seat": 0, "pool": ""}
    name: ClassVar[str]
    game_name: ClassVar[str]
    """As OpenSpiel calls it."""
    is_open: ClassVar[bool]
    """Whether nothing is hidden from the players."""
    turns: ClassVar[int]
    timeout_reward: ClassVar[float]

    def __init__(self, task: Task) -> None:
        self.task, self.seat = task, task.integer("seat")
        self.game = load_game(self.name, self.game_name)
        self.reset()
        self.example = "<action>MOVE</action>" if self.over else self.legal()[0]

    @classmethod
    def settle(cls, params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        return settle_opponent(cls.name, settle_seat(cls.name, params, seed), seed, cls.check_opponent, cls.members)

    @classmethod
    def members(cls, part: str) -> Sequence[str]:
        """The opponents that a part of a pool stands for: itself, or those of a group."""
        return (part,)

    @classmethod
    def check_opponent(cls, opponent: str) -> None:
        habits = [*habits_of(cls.game_name), *([] if cls.is_open else ["cfr"])]
        if opponent.partition(":")[0] == "mcts":
            simulations_of(cls.name, opponent)
            if not cls.is_open:
                names = " or ".join(map(repr, dict.fromkeys(habits)))
                raise ParameterError(f"{cls.name}: opponent must be {names}, since MCTS would see what is hidden")
        elif cls.habit_named(opponent) is None:
            names_of_open_games = ["minimax", "mcts:K"] if cls.is_open else []
            raise UnknownName(f"opponent of {cls.name}", opponent, dict.fromkeys([*habits, *names_of_open_games]))

    @classmethod
    def habit_named(cls, opponent: str) -> Habit | None:
        """The chances of an opponent's actions; None of one that has none, or none that can be told."""
        if habit := habits_of(cls.game_name).get(opponent):
            return habit
        if opponent == ("minimax" if cls.is_open else "cfr"):
            return solved(cls.name, cls.game_name)
        return None

    @classmethod
    def task_class(cls, params: Mapping[str, ParamValue]) -> str:
        return f"{cls.name}/vs-{params['opponent']}"

    def rules(self) -> str:
        worst, best = self.game.min_utility(), self.game.max_utility()
        return (
            f"{self.game.get_type().long_name}, a game for two; you move {ORDER[self.seat]}. It is over after "
            f"{self.game.max_game_length()} moves at the latest and pays you {worst:g} to {best:g}.\n"
            "Each turn shows the game as you see it and your legal moves.\n"
            f"Answer with one of them, as it is written: {self.example}"
        )

    def reset(self, chance: int = 0) -> str:
        self.rng = generator(self.task.seed, "chance", chance)
        self.state = self.game.new_initial_state()
        self.opponent_name = at_episode(self.task.text("opponent"), chance)
        self.opponent = self._opponent(chance)
        self.ended, self.paid = False, 0.0
        """Whether the player knows that the game is over, and what it has been paid so far."""
        self._let_others_move()
        return self.observe()

    def step(self, reply: str) -> Step:
        # A game that the opponent has ended before the first move: any reply takes the result.
        move, why = (None, "") if self.over else self.named(reply)
        if self.ended or (move is None and not self.over):
            why = "The game is over." if self.ended else why
            return Step(self.observe(), valid=False, state_key=self._seen(), feedback=why)
        if move is not None:
            self.state.apply_action(move)
            self._let_others_move()
        # Some games pay while they last, and OpenSpiel tells the sum.
        total, self.ended = self.total, self.over
        reward, self.paid = total - self.paid, total
        return Step(self.observe(), reward, self.ended, self.ended and total > 0, state_key=self._seen())

    def named(self, reply: str) -> tuple[int | None, str]:
        """The move that a reply names, or None and why."""
        move = self._named(action_with_arrows(reply) or "")
        return move, "" if move is not None else "The answer names none of the legal moves."

    def switched(self, params: Mapping[str, ParamValue]) -> Self:
        """The game as the opponent sees it; an example of a reply is one of its own moves, where it is to move."""
        other = copy(self)
        other.seat = 3 - self.seat
        if not self.over and (moves := other.legal()):
            other.example = moves[0]
        return other

    def position(self) -> Step:
        """What the player is told now, with what the game has paid so far."""
        total = self.total
        return Step(self.observe(), total, self.over, self.over and total > 0, state_key=self._seen())

    @property
    def over(self) -> bool:
        return bool(self.state.is_terminal())

    @property
    def total(self) -> float:
        """What the game has paid the seat so far."""
        return float(self.state.player_return(self.seat - 1))

    def _let_others_move(self) -> None:
        """Until it is the seat's turn, or the game is over."""
        state = self.state
        while not state.is_terminal() and state.current_player() != self.seat - 1:
            if state.is_chance_node():
                state.apply_action(self._drawn(state.chance_outcomes()))
            else:
                legal = state.legal_actions()
                state.apply_action(ask_move(self.name, self.opponent_name, self.opponent, legal))

    def _opponent(self, chance: int) -> Callable[[], int]:
        name = self.opponent_name
        if is_guest(name):
            return guest_mover(self, name, chance)
        if name == "random":
            return lambda: pick(self.rng, self.state.legal_actions())
        if habit := self.habit_named(name):
            return lambda: self._drawn(habit(self.state).items())
        search = mcts(self.name, self.game_name, simulations_of(self.name, name), self.rng)
        return lambda: search(self.state.history())

    def _drawn(self, chances: Iterable[tuple[int, float]]) -> int:
        actions, weights = zip(*chances, strict=True)
        return int(actions[draw(self.rng, weights)])

    def legal(self) -> Sequence[str]:
        if self.over:
            return [] if self.ended else ["<action>ok</action>"]
        return [f"<action>{name}</action>" for name in self._moves().values()]

    def digest(self, episode: Episode) -> str:
        played = [action_with_arrows(turn.reply.text) or turn.reply.text for turn in episode.turns if turn.valid]
        result = "won" if episode.won else "not won"
        return f"You moved {ORDER[self.seat]}: {' | '.join(played) or 'nothing'}; {result}."

    def _moves(self) -> dict[int, str]:
        seat = self.seat - 1
        return {move: str(self.state.action_to_string(seat, move)) for move in self.state.legal_actions(seat)}

    def _named(self, name: str) -> int | None:
        """The legal move of that name, whatever its spaces; where only one matches, whatever its case too."""
        names = {move: "".join(each.split()) for move, each in self._moves().items()}
        wanted = "".join(name.split())
        exact = [move for move, each in names.items() if each == wanted]
        alike = [move for move, each in names.items() if each.lower() == wanted.lower()]
        return exact[0] if exact else alike[0] if len(alike) == 1 else None

    def _seen(self) -> str:
        """The game as the seat may see it."""
        if self.is_open:
            return str(self.state)
        has_text = self.game.get_type().provides_information_state_string
        return str((self.state.information_state_string if has_text else self.state.observation_string)(self.seat - 1))

    def observe(self) -> str:
        if self.over:
            return f"{self._seen()}\nThe game is over; it paid you {self.total:g}."
        moves = list(self._moves().values())
        more = f" and {len(moves) - _MOST_LISTED} more" if len(moves) > _MOST_LISTED else ""
        return f"{self._seen()}\nLegal moves: {', '.join(moves[:_MOST_LISTED])}{more}"
