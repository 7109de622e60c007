"""Any turn-based game for two of OpenSpiel: ``openspiel:connect_four``, ``openspiel:hex(board_size=5)``."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from mulligan.envs.adapters import action_with_arrows, nearest
from mulligan.envs.openspiel import Match, Move, State, load_game, pick, settle_seat, spiel
from mulligan.errors import ParameterError, UnknownName, UsageError
from mulligan.seeding import generator
from mulligan.types import Episode, ParamValue, Step, Task

OPPONENTS = ("random", "mcts:K")
EXPLORATION = 2.0
"""The constant of UCT's exploration term."""
_MOST_TURNS, _MOST_LISTED, _MOST_SIMULATIONS, _SAMPLES = 200, 60, 100_000, 8


def adapt(ident: str) -> type:
    """The environment of OpenSpiel's game `ident`, with its parameters in brackets as OpenSpiel writes them."""
    name = f"openspiel:{ident}"
    library = spiel(name)
    if ident.partition("(")[0] not in library.registered_names():
        raise UnknownName("game of OpenSpiel", ident, nearest(ident.partition("(")[0], library.registered_names()))
    try:
        game = load_game(name, ident)
    except library.SpielError as error:
        said = str(error).strip().splitlines()[-1]
        raise UsageError(f"OpenSpiel cannot load {ident!r}: {said}") from None
    about = game.get_type()
    if about.dynamics != library.GameType.Dynamics.SEQUENTIAL or game.num_players() != 2:
        raise UsageError(f"{name}: only games in which two players move in turn can be played")
    body = {
        "__doc__": f"{about.long_name} (OpenSpiel) against one opponent.",
        "__module__": __name__,
        "name": name,
        "game": game,
        "turns": min(_MOST_TURNS, _most_moves(game)),
        "timeout_reward": float(game.min_utility()),
    }
    return type("Adapted", (SpielGame,), body)


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
    defaults: ClassVar[dict[str, ParamValue]] = {"opponent": "random", "seat": 0}
    name: ClassVar[str]
    game: ClassVar[Any]
    turns: ClassVar[int]
    timeout_reward: ClassVar[float]

    def __init__(self, task: Task) -> None:
        self.task, self.seat = task, task.integer("seat")
        self.reset()
        self.example = "<action>MOVE</action>" if self.match.over else self.legal()[0]

    @classmethod
    def settle(cls, params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        opponent = str(params["opponent"])
        kind, _, count = opponent.partition(":")
        if kind not in ("random", "mcts"):
            raise UnknownName(f"opponent of {cls.name}", opponent, OPPONENTS)
        if kind == "mcts" and not (count.isascii() and count.isdecimal() and 1 <= int(count[:9]) <= _MOST_SIMULATIONS):
            raise ParameterError(f"{cls.name}: opponent={opponent!r} cannot be; give for example 'mcts:100'")
        if kind == "mcts" and not cls._is_open():
            raise ParameterError(f"{cls.name}: MCTS would see what is hidden; the opponent can only be 'random'")
        return settle_seat(cls.name, params, seed)

    @classmethod
    def task_class(cls, params: Mapping[str, ParamValue]) -> str:
        return f"{cls.name}/vs-{params['opponent']}"

    @classmethod
    def _is_open(cls) -> bool:
        return bool(cls.game.get_type().information == spiel(cls.name).GameType.Information.PERFECT_INFORMATION)

    def rules(self) -> str:
        order = "first" if self.seat == 1 else "second"
        worst, best = self.game.min_utility(), self.game.max_utility()
        return (
            f"{self.game.get_type().long_name}, a game for two; you move {order}. It is over after "
            f"{self.game.max_game_length()} moves at the latest and pays you {worst:g} to {best:g}.\n"
            "Each turn shows the game as you see it and your legal moves.\n"
            f"Answer with one of them, as it is written: {self.example}"
        )

    def reset(self, chance: int = 0) -> str:
        rng = generator(self.task.seed, "chance", chance)
        self.match = Match(self.game, self.seat, self._opponent(rng), rng)
        self.ended, self.paid = False, 0.0
        return self._observe()

    def step(self, reply: str) -> Step:
        if self.ended:
            return Step(self._observe(), valid=False, state_key=self._seen(), feedback="The game is over.")
        if self.match.over:  # the opponent has ended it before this seat's first move: any reply takes the result
            return self._told()
        said = action_with_arrows(reply)
        move = None if said is None else self._named(said)
        if move is None:
            why = "The answer names none of the legal moves."
            return Step(self._observe(), valid=False, state_key=self._seen(), feedback=why)
        self.match.play(move)
        return self._told()

    def _told(self) -> Step:
        whole, self.ended = self.match.reward, self.match.over
        reward, self.paid = whole - self.paid, whole  # some games pay while they last; OpenSpiel tells the sum
        return Step(self._observe(), reward, self.ended, self.ended and whole > 0, state_key=self._seen())

    def legal(self) -> Sequence[str]:
        if self.match.over:
            return [] if self.ended else ["<action>ok</action>"]
        return [f"<action>{self._say(move)}</action>" for move in self._actions()]

    def digest(self, episode: Episode) -> str:
        played = [action_with_arrows(turn.reply.text) or turn.reply.text for turn in episode.turns if turn.valid]
        result = "won" if episode.won else "not won"
        return f"You moved {'first' if self.seat == 1 else 'second'}: {' | '.join(played) or 'nothing'}; {result}."

    def _opponent(self, rng: random.Random) -> Move:
        name, _, count = self.task.text("opponent").partition(":")
        if name == "random":
            return lambda state: pick(rng, state.legal_actions())
        library, seed = spiel(self.name), int(rng.random() * 2**31)
        evaluator = library.RandomRolloutEvaluator(1, seed)
        bot = library.MCTSBot(self.game, evaluator, EXPLORATION, int(count), 64, True, seed, False)
        step: Callable[[State], int] = bot.step
        return step

    def _actions(self) -> list[int]:
        return list(self.match.state.legal_actions(self.seat - 1))

    def _say(self, move: int) -> str:
        return str(self.match.state.action_to_string(self.seat - 1, move))

    def _named(self, said: str) -> int | None:
        """The legal move of that name, however it is spaced; however it is cased too, where that names one alone."""
        names = {move: "".join(self._say(move).split()) for move in self._actions()}
        wanted = "".join(said.split())
        exact = [move for move, name in names.items() if name == wanted]
        alike = [move for move, name in names.items() if name.lower() == wanted.lower()]
        return exact[0] if exact else alike[0] if len(alike) == 1 else None

    def _seen(self) -> str:
        """The game as the seat may see it."""
        state, about = self.match.state, self.game.get_type()
        if self._is_open():
            return str(state)
        if about.provides_information_state_string:
            return str(state.information_state_string(self.seat - 1))
        return str(state.observation_string(self.seat - 1))

    def _observe(self) -> str:
        if self.match.over:
            return f"{self._seen()}\nThe game is over; it paid you {self.match.reward:g}."
        moves = [self._say(move) for move in self._actions()]
        more = f" and {len(moves) - _MOST_LISTED} more" if len(moves) > _MOST_LISTED else ""
        return f"{self._seen()}\nLegal moves: {', '.join(moves[:_MOST_LISTED])}{more}"
