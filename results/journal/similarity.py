"""Whether a task in other words finds the note of the same task, and what looking for it costs.

One class of 24 support tasks, a note for each, confirmed and without a record. Then each task comes 20 times in other
words, and is shown as many notes as fit beside the right one: 1, 3 or 6 of the 24. Words and plans were written before
anything was measured, and not changed since.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from tempfile import TemporaryDirectory
from zlib import crc32

import numpy as np
from journal_tables import Rows, write

from mulligan.journal.context import Similarity
from mulligan.journal.journal import Journal
from mulligan.journal.similarity import WordVectors

TASKS = {
    "refund for an order that arrived broken": (
        "a customer wants money back because the parcel was damaged", "ask for a photo, then pay at once"),
    "cancel a subscription before the next payment": (
        "stop the monthly plan so that nothing more is charged", "check the notice period first"),
    "the password reset mail never arrives": (
        "user cannot log in, no e-mail for a new password comes", "look into the bounce list"),
    "change the delivery address of a package": (
        "send the parcel to another street than the one given", "only while its state is packed"),
    "invoice shows the wrong company name": (
        "correct the billing details on the bill", "make a credit note and a new one"),
    "fix a failing unit test in the parser": (
        "repair the broken test case of the syntax analyser", "run it alone with the seed of the log"),
    "translate the product page into German": (
        "produce a German version of the item description", "keep units and names as they are"),
    "find a flight from Paris to Rome": (
        "look for a plane ticket between Paris and Rome", "sort by arrival, not by price"),
    "schedule a meeting with the sales team": (
        "arrange an appointment with the people who sell", "propose three times at once"),
    "summarise a research paper on proteins": (
        "write a short overview of a scientific article about proteins", "begin with the figure captions"),
    "upgrade the database server to a new version": (
        "move our SQL machine to the latest release", "take a dump and rehearse on the replica"),
    "a coupon code is rejected at checkout": (
        "the discount voucher does not work when paying", "compare the currency of cart and coupon"),
    "two-factor authentication code is not accepted": (
        "the second login step says that the six digits are invalid", "let them set the clock of the phone"),
    "book a hotel room near the conference": (
        "reserve a place to sleep close to the congress centre", "filter by walking time"),
    "delete a user account and its data": (
        "a person asks that their profile and everything stored is erased", "open the form of the privacy office"),
    "the mobile app crashes on startup": (
        "our phone application closes as soon as it is opened", "ask for the version of the system"),
    "write unit tests for the payment module": (
        "add automated checks to the code that charges cards", "use the recorded answers of the bank"),
    "order lunch for twenty people": (
        "get food delivered at noon for a group of 20", "ask about allergies before anything else"),
    "convert a spreadsheet into a chart": (
        "make a diagram from the table of numbers", "drop the row of totals"),
    "late delivery of a birthday gift": (
        "the present did not come in time for the party", "offer the express fee back"),
    "explain the warranty of a washing machine": (
        "what does the guarantee of this laundry appliance cover", "the date on the receipt decides"),
    "reduce the memory use of a Python script": (
        "a program in Python takes too much RAM", "read the file in pieces"),
    "find a recipe without gluten": (
        "suggest a dish for somebody who must not eat wheat", "exclude oats as well"),
    "renew an expired TLS certificate": (
        "the web server's https certificate has run out", "reload all front ends afterwards"),
}  # fmt: skip
TIMES = 20


def character_pairs(task: str, texts: Sequence[str]) -> list[float]:
    """Likeness without any package: cosine of hashed groups of three characters. Ours, to compare with."""

    def vector(text: str) -> np.ndarray:
        counts = np.zeros(4096)
        padded = f" {text.lower()} "
        for start in range(len(padded) - 2):
            counts[crc32(padded[start : start + 3].encode()) % 4096] += 1
        return counts / max(float(np.linalg.norm(counts)), 1e-9)

    asked = vector(task)
    return [min(1.0, float(vector(text) @ asked) / 0.5) for text in texts]


WAYS: dict[str, Similarity | None] = {
    "none": None,
    "groups of three characters": character_pairs,
    "wordllama": WordVectors(),
}


def filled(folder: str, similarity: Similarity | None) -> Journal:
    journal = Journal(f"{folder}/agent.db", hold_out=0.0, similarity=similarity)
    for task, (_, plan) in TASKS.items():
        with journal.episode(task, "support") as ep:
            ep.finish(0.5, reflection={"plan": plan})
        journal.confirm(journal.notes()[0].id)
    return journal


def found(journal: Journal, asked: Callable[[str], str]) -> dict[int, float]:
    """The share of episodes in which the right note is among the first 1, 3 and 6."""
    places = []
    for task, (_, plan) in TASKS.items():
        for number in range(TIMES):
            with journal.episode(asked(task), "support", id=f"{asked(task)} {number}") as ep:
                lines = ep.context(100_000).splitlines()
            places.append(next(index for index, line in enumerate(lines[2:]) if plan in line))
        journal.delete(task=asked(task)) if asked(task) not in TASKS else None
    return {first: float(np.mean(np.array(places) < first)) for first in (1, 3, 6)}


def seconds(notes: int, similarity: Similarity | None) -> tuple[float, float]:
    """Processor time of `context()`: the first, and the median of the next 50."""
    with TemporaryDirectory() as folder, Journal(f"{folder}/a.db", hold_out=0.0, similarity=similarity) as journal:
        for number in range(notes):
            journal.add_note("support", plan=f"look up order {number} first, then ask for a photo of the damage")
        taken = []
        for number in range(51):
            with journal.episode(f"refund for order {number}", "support") as ep:
                began = time.process_time()
                ep.context()
                taken.append(time.process_time() - began)
    return taken[0], median(taken[1:])


def main() -> None:
    finding: Rows = []
    for words, asked in (("the same words", str), ("other words", lambda task: TASKS[task][0])):
        for name, similarity in WAYS.items():
            with TemporaryDirectory() as folder, filled(folder, similarity) as journal:
                shares = found(journal, asked)
            columns = {f"among the first {first}": f"{share:.0%}" for first, share in shares.items()}
            finding.append({"task in": words, "similarity": name, **columns})
    costs: Rows = []
    for notes in (10, 100, 1_000):
        for name in ("none", "wordllama"):
            first, later = seconds(notes, None if name == "none" else WordVectors())
            row = {
                "notes": notes,
                "similarity": name,
                "first ms": f"{1e3 * first:.1f}",
                "later ms": f"{1e3 * later:.1f}",
            }
            costs.append(row)
    began = time.process_time()
    WordVectors()
    loading = f"{1e3 * (time.process_time() - began):.0f} ms to load, once a process"
    titles = (
        f"The right one of {len(TASKS)} notes, {TIMES} episodes each",
        f"Processor time of `context()` ({loading})",
    )
    write(
        __file__,
        "PYTHONPATH=src python results/journal/similarity.py",
        dict(zip(titles, (finding, costs), strict=True)),
    )


if __name__ == "__main__":
    main()
