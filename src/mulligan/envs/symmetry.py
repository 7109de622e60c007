"""Boards that are the same but for a rotation or a reflection."""

from __future__ import annotations


def least_image(cols: int, cells: str) -> str:
    """The canonical form of a board: the least of its eight images, as ``COLUMNS:CELLS``.

    `cells` are one character each, row by row. The four corners of a 2x2 board with one mine are one world:
    ``least_image(2, "*...") == least_image(2, "...*") == "2:*..."``.
    """
    rows = [cells[start : start + cols] for start in range(0, len(cells), cols)]
    columns = ["".join(column) for column in zip(*rows, strict=True)]
    images = []
    for lines in (rows, columns):
        for turned in (lines, [line[::-1] for line in lines]):
            images += [(len(turned[0]), "".join(turned)), (len(turned[0]), "".join(turned[::-1]))]
    width, least = min(images)
    return f"{width}:{least}"
