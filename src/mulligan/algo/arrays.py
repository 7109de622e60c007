"""The array operations that returns and advantages share. No loop runs over rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def starts(lengths: IntArray) -> IntArray:
    """Where each of the consecutive runs begins. lengths: [run] -> [run]."""
    return np.cumsum(lengths) - lengths


def next_values(values: FloatArray, lengths: IntArray) -> FloatArray:
    """The value that follows each entry of its run, 0 after the last. values: [entry]; lengths: [run] -> [entry].

    Values 1 2 3 4 5 in runs of 3 and 2: 2 3 0 5 0.
    """
    following = np.append(values[1:], 0.0)[: len(values)]
    following[np.cumsum(lengths)[lengths > 0] - 1] = 0.0
    return following


def discounted_suffix_sums(terms: FloatArray, discounts: FloatArray, lengths: IntArray) -> FloatArray:
    """``x_i = terms_i + discounts_i · x_{i+1}`` inside each run; nothing follows the last entry of a run.

    terms, discounts: [entry]; lengths: [run], consecutive runs that make up the entries -> [entry].
    """
    sums = np.array(terms, dtype=np.float64)
    # With the longest run first, the runs that have an entry k before their end are a prefix of the list, so that one
    # vector operation serves all of them, and the arithmetic is that of the plain backward loop. Runs of 1, 3 and 2
    # entries: `ends` is [4, 6, 1]; one before the end only the first two have an entry (2 and 4), two before it only
    # the first (1).
    order = np.argsort(-lengths, kind="stable")
    ends, descending = np.cumsum(lengths)[order], -lengths[order]
    longest = int(lengths.max(initial=0))
    reaching = np.searchsorted(descending, -np.arange(longest), side="left")
    for back in range(1, longest):
        index = ends[: reaching[back]] - 1 - back
        sums[index] += discounts[index] * sums[index + 1]
    return sums


def dense_ids(*columns: IntArray) -> tuple[IntArray, IntArray]:
    """Number the distinct rows of `columns` 0, 1, …; returns ``(id of each row, first row with each id)``.

    columns: [row] each, with entries of at least -1; the product of their ranges must fit 63 bits.
    """
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        code = code * (int(column.max(initial=-1)) + 2) + column + 1
    _, first, ids = np.unique(code, return_index=True, return_inverse=True)
    return ids.astype(np.int64, copy=False), first.astype(np.int64, copy=False)


def mean_by(ids: IntArray, first: IntArray, values: FloatArray) -> FloatArray:
    """Mean of `values` for each id. ids, values: [row]; first: [id], as `dense_ids` returns them -> [id].

    Taken relative to the first value of each id, so that equal values have exactly that value as their mean.
    """
    origin = values[first]
    total = np.bincount(ids, weights=values - origin[ids], minlength=len(first))
    return origin + total / np.bincount(ids, minlength=len(first))


def deviation_by(ids: IntArray, first: IntArray, values: FloatArray) -> FloatArray:
    """Standard deviation (ddof 1) of `values` for each id; 0 where an id has a single value. -> [id]."""
    centred = values - mean_by(ids, first, values)[ids]
    squares = np.bincount(ids, weights=centred * centred, minlength=len(first))
    return np.sqrt(squares / np.maximum(np.bincount(ids, minlength=len(first)) - 1, 1))
