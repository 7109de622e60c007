"""Attacks are counted: every test here says of each try how it ended, and `make test-hostile` makes a table of it."""

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

FOLDER = Path("build/hostile").absolute()


@dataclass
class Row:
    """One attack of the table. Each try ends in exactly one of four ways."""

    area: str
    """Heading that it stands under: "Files", "Endpoints" …"""
    attack: str
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    """What the tries looked like that went wrong."""

    def unharmed(self) -> None:
        """The result is what it would have been without the attack."""
        self.counts["unharmed"] += 1

    def told(self) -> None:
        """Refused, or done as far as possible; one line says what was lost or left out."""
        self.counts["told"] += 1

    def lost(self, example: str) -> None:
        """A traceback, a wrong result, or something lost without a word."""
        self.counts["lost"] += 1
        self.examples.append(example)

    def let_in(self, example: str) -> None:
        """Foreign code ran, a secret left, a foreign file was written, memory or time without bounds."""
        self.counts["let in"] += 1
        self.examples.append(example)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder is for `make test-hostile`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("hostile")


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], Row]]:
    """``row("Files", "one flipped bit in trials")`` begins a row of the table; a try lost or let in fails the test."""
    rows: list[Row] = []

    def begin(area: str, attack: str) -> Row:
        rows.append(Row(area, attack))
        return rows[-1]

    yield begin
    assert rows, "a test of this folder counts its tries"
    FOLDER.mkdir(parents=True, exist_ok=True)
    for one in rows:
        assert one.counts, f"{one.attack}: nothing was tried"
        text = json.dumps({"area": one.area, "attack": one.attack, **one.counts})
        (FOLDER / f"{zlib.crc32(f'{one.area} {one.attack}'.encode()):08x}.json").write_text(text)
    for one in rows:
        assert not one.examples, f"{one.attack}: {one.examples[:5]}"
