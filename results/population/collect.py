"""The table of populations in Kuhn poker: what the best agent wins, beside one agent of a run alone.

    python results/population/collect.py runs/population/kuhn     # adds what the sweep has
    python results/population/collect.py                          # table.md anew

One agent alone has the rows of `results/opponents/table.json`: the same preset, seeds and tasks, as many episodes in
total. The columns are those of `results/opponents/collect.py`.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from mulligan.app.sweep.rows import as_table
from mulligan.report.files import replace_file

HERE = Path(__file__).parent
OPPONENTS = HERE.parent / "opponents"
ALONE = ("meta-RL, history", "RL, history")


def main(folders: list[Path]) -> None:
    script = runpy.run_path(str(OPPONENTS / "collect.py"))
    earlier = [path for path in [HERE / "table.json"] if path.is_file()]
    own = [row for row in script["read"]([*earlier, *folders]) if row["method"] not in ALONE]
    alone = [row for row in script["read"]([OPPONENTS / "table.json"]) if row["game"] == "kuhn"]
    rows = [*(row for row in alone if row["method"] in ALONE), *own]
    replace_file(HERE / "table.json", as_table(rows).encode())
    replace_file(HERE / "table.md", script["text"](rows).encode())
    sys.stdout.write(script["text"](rows))


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
