"""The table of docs/reliability.md, from what the tests of this folder counted.

python tests/hostile/table.py           prints it, and fails where the page names other attacks or fewer tries
python tests/hostile/table.py --write   puts it into the page
"""

import json
import sys
from pathlib import Path

PAGE = Path("docs/reliability.md")
BEGIN, END = "<!-- made by tests/hostile/table.py -->\n", "<!-- end -->\n"
AREAS = ["Kills", "Files", "Somebody else's folders", "Endpoints", "Environments", "Terminal and pages"]
WAYS = ["unharmed", "told", "lost", "let in"]


def table() -> list[str]:
    rows = [json.loads(path.read_text()) for path in Path("build/hostile").glob("*.json")]
    rows.sort(key=lambda row: (AREAS.index(row["area"]), row["attack"]))
    lines = ["| | attack | tries | unharmed | told | lost | let in |", "|---|---|---|---|---|---|---|"]
    area = ""
    for row in rows:
        counts = [row.get(way, 0) for way in WAYS]
        heading = "" if row["area"] == area else f"**{row['area']}**"
        lines.append(f"| {heading} | {row['attack']} | {sum(counts):,} | {' | '.join(f'{n:,}' for n in counts)} |")
        area = row["area"]
    return lines


def without_ways(lines: list[str]) -> list[str]:
    """Which tries were unharmed and which were told depends on the machine; their number, and the zeros, do not."""
    kept = []
    for line in lines:
        cells = line.split("|")
        kept.append("|".join(cells[:4] + cells[6:]))
    return kept


def main() -> None:
    lines = table()
    sys.stdout.write("\n".join(lines) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    page, _, after = rest.partition(END)
    if "--write" in sys.argv:
        PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after)
    elif without_ways(page.splitlines()) != without_ways(lines):
        sys.exit(f"{PAGE} has another table; python {sys.argv[0]} --write puts this one there")


main()
