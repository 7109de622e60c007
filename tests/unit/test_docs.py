"""The design's layout lists every source file, once, under its folder."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "mulligan"


def test_the_layout_lists_every_file() -> None:
    text = (ROOT / "docs" / "design.md").read_text()
    block = text[text.index("src/mulligan/\n") :].partition("```")[0].splitlines()[1:]
    folders: list[str] = []
    listed = []
    for line in block:
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        if depth == 0:  # what lies beside the source
            break
        folders = [*folders[: depth - 1], name]
        if name.endswith(".py"):
            listed.append("".join(folders))
    files = [path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if not path.name.startswith("__")]
    assert sorted(listed) == sorted(files)
