"""Whether it matters in which order the proof takes episodes in: `PYTHONPATH=src python results/journal/order.py`.

Episodes begin in batches, half of them with the journal. Outcomes are 1 with the same chance in both arms: there is no
effect. With the journal failures end first, and without it successes. The interval is looked at after every eighth end,
over the episodes that have ended: in the order of their ends, or in that of their beginnings as far as no earlier one
is open, as the journal takes them.
"""

from __future__ import annotations

import numpy as np
from journal_tables import write

from mulligan.journal.proof import Proof

STREAMS, LENGTH = 100, 480
BATCHES = {"480 at once": 480, "48 at once": 48, "8 at once": 8}


def looks(batch: int, rng: np.random.Generator) -> dict[str, bool]:
    """Whether an interval ever excluded the truth, and whether the class was ever switched off, by order."""
    on, outcome = rng.random(LENGTH) < 0.5, (rng.random(LENGTH) < 0.6).astype(float)
    began = np.arange(LENGTH) // batch * 10.0
    slow = np.where(on, outcome == 1, outcome == 0)
    ended = began + np.where(slow, 5.0, 0.0) + rng.random(LENGTH)
    by_end = np.argsort(ended)
    wrong = {"ends: excluded 0": False, "ends: off": False, "beginnings: excluded 0": False, "beginnings: off": False}
    proofs = {"ends": Proof(), "beginnings": Proof()}
    done = np.zeros(LENGTH, dtype=bool)
    taken = 0
    for start in range(0, LENGTH, 8):
        now = by_end[start : start + 8]
        done[now] = True
        complete = LENGTH if done.all() else int(np.argmin(done))
        fresh = {"ends": now, "beginnings": np.arange(taken, complete)}
        taken = complete
        for order, proof in proofs.items():
            members = fresh[order]
            proof.observe(on[members].tolist(), outcome[members].tolist(), [0.5] * len(members))
            found = proof.uplift()
            wrong[f"{order}: excluded 0"] |= bool(found.low > 0 or found.high < 0)
            wrong[f"{order}: off"] |= bool(proof.switches)
    return wrong


def main() -> None:
    rows = []
    for name, batch in BATCHES.items():
        streams = [looks(batch, np.random.default_rng([batch, seed])) for seed in range(STREAMS)]
        shares = {key: 100 * float(np.mean([stream[key] for stream in streams])) for key in streams[0]}
        rows.append({"begun": name, **{f"by {key}, %": value for key, value in shares.items()}})
    title = f"No effect, 95 % intervals: wrong at any look, of {STREAMS} streams of {LENGTH} episodes"
    write(__file__, "PYTHONPATH=src python results/journal/order.py", {title: rows})


if __name__ == "__main__":
    main()
