"""A person at a terminal: the board in colour, what is legal, and answers typed without tags."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mulligan.policy.base import Conversation, World
from mulligan.types import Completion, Episode, Message, Sampling, Step, Task

if TYPE_CHECKING:
    from rich.console import Console

HELP = "Type a move; 'h' lists the legal ones, 'q' quits."
_FEW = 12


class QuitGame(KeyboardInterrupt):
    """The person wants to stop; ends the run as Ctrl-C does."""


class HumanPolicy:
    """Asks the person at the terminal. `read` stands in for typing in tests."""

    name = "human"

    def __init__(
        self,
        console: Console | None = None,
        read: Callable[[str], str] | None = None,
        glyphs: Mapping[str, str] | None = None,
    ) -> None:
        from rich.console import Console as RichConsole

        self.console = console or RichConsole()
        self.read = read or self.console.input
        self.glyphs = dict(glyphs or {})

    def start(self, task: Task, seed: int) -> Conversation:
        return _AtTerminal(self, task.turns)


class _AtTerminal:
    def __init__(self, policy: HumanPolicy, turns: int) -> None:
        self.policy = policy
        self.turns = turns
        self.taken = 0
        self.world: World | None = None
        self.shown = 0
        self.over = False

    def watch(self, world: World) -> None:
        self.world = world

    def see(self, step: Step, timeout_reward: float | None = None) -> None:
        self.taken += 1
        if step.done or self.taken == self.turns:
            self._show("\n".join(filter(None, (step.feedback, step.observation))))
            if not step.done:
                self.policy.console.print(f"[bold]No turns left:[/] all {self.turns} are taken.", highlight=False)
            self.taken = 0

    def ended(self, episode: Episode) -> None:
        self.over = True

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        if self.over:
            self.over = False
            return self._note()
        if len(messages) <= self.shown or self.shown == 0:
            self.policy.console.print(f"[dim]{HELP}[/]", highlight=False)
        self.shown = len(messages)
        self._show(messages[-1]["content"])
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

    def _note(self) -> Completion:
        self.policy.console.print(
            "\n[bold]The next episode is the same task.[/] What will you remember? (one line, may be empty)"
        )
        note = self._ask("note> ").strip() or "none"
        return Completion(f"<reflection>\nplan: {note}\n</reflection>")

    def _ask(self, prompt: str) -> str:
        try:
            with _ctrl_c_at_once():
                return self.policy.read(prompt)
        except (EOFError, KeyboardInterrupt):
            self.policy.console.print()  # what comes next begins on a line of its own
            raise QuitGame from None

    def _show(self, text: str) -> None:
        """The text with the board's cells in colour; other lines, and row and column numbers, stay plain."""
        from rich.text import Text

        painted = Text()
        numbered = False
        for line in text.splitlines():
            words = line.split()
            if words and words == [str(number) for number in range(1, len(words) + 1)]:
                numbered = True  # a header of column numbers: the lines below begin with a row number
                painted.append(f"{line}\n", style="dim")
                continue
            label = len(line) - len(line.lstrip()) + len(words[0]) if numbered and words and words[0].isdecimal() else 0
            painted.append(line[:label], style="dim")
            board = all(len(word) <= 2 for word in words)
            for character in line[label:]:
                painted.append(character, style=self.policy.glyphs.get(character, "") if board else "")
            painted.append("\n")
        self.policy.console.print(painted, end="", highlight=False)

    def _show_legal(self) -> None:
        legal = getattr(self.world, "legal", None)
        if legal is None:
            self.policy.console.print("This environment does not list its moves; its rules say what they look like.")
            return
        moves = [reply.replace("<action>", "").replace("</action>", "") for reply in legal()]
        more = f"  … and {len(moves) - _FEW} more" if len(moves) > _FEW else ""
        self.policy.console.print("  ".join(moves[:_FEW]) + more, markup=False, highlight=False)


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
