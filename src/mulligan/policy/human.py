"""A person at a terminal: the board in colour, moves typed without tags, line editing, arrow keys for directions."""

from __future__ import annotations

import contextlib
import importlib
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mulligan.policy.base import Conversation, World
from mulligan.text import visible
from mulligan.types import Completion, Episode, Message, Sampling, Step, Task

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_ARROWS = {"up": "A", "down": "B", "right": "C", "left": "D"}
"""Direction -> last letter of what a terminal sends for that arrow key."""
_FEW = 12
_TAGS = re.compile(r"</?action>")


class QuitGame(KeyboardInterrupt):
    """The person has typed that they want to stop."""


class HumanPolicy:
    """Asks the person at the terminal. `glyphs`: the colour of each character of a board."""

    name = "human"

    def __init__(self, console: Console | None = None, glyphs: Mapping[str, str] | None = None) -> None:
        from rich.console import Console as RichConsole

        self.console, self.glyphs = console or RichConsole(), glyphs or {}

    def start(self, task: Task, seed: int) -> Conversation:
        return _AtTerminal(self, task.turns)


class _AtTerminal:
    retypes = True

    def __init__(self, policy: HumanPolicy, turns: int) -> None:
        self.console, self.glyphs, self.turns = policy.console, policy.glyphs, turns
        self.messages_shown = 0
        self.has_mistyped = self.is_reflecting = False
        self.world: World | None = None

    def watch(self, world: World) -> None:
        self.world = world

    def see(self, step: Step, timeout_reward: float | None = None) -> None:
        if not step.valid:
            self.has_mistyped = True
            self._say("yellow", f"That is not a move here. {self._hint(step.feedback)}".strip())
            self._say("dim", "It took no turn; 'h' lists the moves.")
            return
        if step.done or timeout_reward is not None:
            ending = "\n".join(filter(None, (step.feedback, step.observation)))
            self._show(f"{picture_of(self.world)}{ending}")
            is_versus = getattr(self.world, "kind", "solve") == "versus"
            is_drawn = is_versus and getattr(self.world, "drawn", step.reward == 0)
            outcome = "won" if step.won else "drawn" if is_drawn else "lost"
            self._say("bold", f"Episode {outcome}." if step.done else f"No turns left: all {self.turns} are taken.")

    def ended(self, episode: Episode) -> None:
        self.is_reflecting = True

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        if self.is_reflecting:
            self.is_reflecting = False
            self._say("bold", "\nThe next episode is the same task. What will you remember? (one line, may be empty)")
            note = self._ask("note> ").strip() or "none"
            return Completion(f"<reflection>\nplan: {note}\n</reflection>")
        if not self.has_mistyped:
            if len(messages) <= self.messages_shown or self.messages_shown == 0:
                arrows = " Arrow keys move." if self._bind_arrows() else ""
                self._say("dim", f"Type a move; 'h' lists the legal ones, 'q' quits.{arrows}")
            self._show(f"{picture_of(self.world)}{messages[-1]['content']}")
        self.messages_shown, self.has_mistyped = len(messages), False
        while True:
            typed = self._ask("> ").strip()
            if typed.lower() in ("q", "quit", "exit"):
                raise QuitGame
            if typed.lower() in ("h", "help", "?"):
                self._show_legal()
            elif typed:
                return Completion(typed if "<action>" in typed else f"<action>{typed}</action>")

    def close(self) -> None:
        pass

    def _ask(self, prompt: str) -> str:
        try:
            with _ctrl_c_at_once():
                return input(prompt)
        except (EOFError, KeyboardInterrupt):
            self.console.print()  # the shell's prompt begins on a line of its own
            raise KeyboardInterrupt from None

    def _say(self, style: str, text: str) -> None:
        self.console.print(visible(text), style=style, markup=False, highlight=False)

    def _show(self, text: str) -> None:
        self.console.print(painted(text, self.glyphs), end="", highlight=False)

    def _moves(self) -> list[str]:
        """The legal moves without their tags; none if the environment does not list them."""
        return [_TAGS.sub("", reply) for reply in getattr(self.world, "legal", list)()]

    def _hint(self, feedback: str) -> str:
        """What was wrong; an example where the environment speaks of the tags that agents write and people do not."""
        if "<action>" not in feedback:
            return feedback
        return "".join(f"A move looks like this: {move}" for move in self._moves()[:1])

    def _show_legal(self) -> None:
        moves = self._moves() or ["This environment does not list its moves; its rules say what they look like."]
        more = f"  … and {len(moves) - _FEW} more" if len(moves) > _FEW else ""
        self._say("", "  ".join(moves[:_FEW]) + more)

    def _bind_arrows(self) -> bool:
        """Load line editing; where moves are directions, let each arrow key type one, Enter included."""
        if not sys.stdin.isatty():
            return False
        try:
            readline: Any = importlib.import_module("readline")  # importing it is what gives `input` line editing
        except ImportError:  # Windows
            return False
        directions = _ARROWS.keys() & set(self._moves())
        if not directions or "libedit" in (readline.__doc__ or ""):  # macOS, whose macros are written differently
            return False
        for direction in directions:
            for sequence in ("[", "O"):  # terminals differ in which one they send
                readline.parse_and_bind(f'"\\e{sequence}{_ARROWS[direction]}": "{direction}\\C-m"')
        return True


def picture_of(world: World | None) -> str:
    """The map that an environment draws for people, with an empty line around it; nothing if it draws none."""
    picture = getattr(world, "picture", None)
    return f"\n{picture()}\n\n" if picture is not None else ""


def painted(text: str, glyphs: Mapping[str, str]) -> Text:
    """The text with the board's cells in colour; other lines, and row and column numbers, stay plain."""
    from rich.text import Text

    result = Text()
    is_numbered = False
    for line in visible(text).splitlines():
        words = line.split()
        if words and words == [str(number) for number in range(1, len(words) + 1)]:
            is_numbered = True  # a header of column numbers: the lines below begin with a row number
            result.append(f"{line}\n", style="dim")
            continue
        has_label = is_numbered and words and words[0].isdecimal()
        label = len(line) - len(line.lstrip()) + len(words[0]) if has_label else 0
        result.append(line[:label], style="dim")
        is_board = all(len(word) <= 2 for word in words)
        for character in line[label:]:
            result.append(character, style=glyphs.get(character, "") if is_board else "")
        result.append("\n")
    return result


@contextlib.contextmanager
def _ctrl_c_at_once() -> Iterator[None]:
    """While somebody types, Ctrl-C must interrupt the typing; asyncio's own handler would wait for the next await."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
