"""The guide works as written: its Python, block after block, as one program."""

from __future__ import annotations

import re
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "journal.md"


def test_the_guide_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    program: dict[str, object] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{GUIDE.name}, block {number + 1}", "exec"), program)
    output = capsys.readouterr().out
    assert "20 outcomes; uplift Estimate(" in output
    assert "confirmed | strategy: answered at once | plan: look up the order before answering" in output
    shown = re.search(r"^```\n(What earlier attempts.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert shown is not None
    journal = program["journal"]
    records = list(journal.episodes("refund"))  # type: ignore[attr-defined]
    assert any(shown[1].strip() in record.transcript[0]["content"] for record in records)
    journal.close()  # type: ignore[attr-defined]
