"""The archive metric: how much work it takes to complete an answer from archived streams."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.windows import Ints

NEVER = int(np.iinfo(np.int64).max)


def missed(left: Ints, right: Ints, ledger: pa.Table) -> npt.NDArray[Any]:
    """Say of every exact pair whether the run that wrote this ledger missed it.

    Parameters:
        left, right: row numbers of the exact pairs.
        ledger: what the run shed, as ``Result.ledger``.

    Cost: O(pairs + ledger).
    """
    gone = [np.full(int(rows.max(initial=-1)) + 1, NEVER) for rows in (left, right)]
    sides = np.array(ledger["side"].to_pylist(), dtype=object)
    arrival, until = ledger["arrival"].to_numpy(), ledger["shed_at_arrival"].to_numpy()
    for which, name in enumerate(("left", "right")):
        mine = (sides == name) & (arrival < gone[which].size)
        gone[which][arrival[mine]] = until[mine]
    return (right >= gone[0][left]) | (left >= gone[1][right])


def archive_metric(left: Ints, right: Ints, ledger: pa.Table) -> int:
    """Return ArM: how many tuples of both sides take part in at least one missed pair.

    Those are the tuples that must be read back from the archive. A tuple without partners is complete.

    Parameters:
        left, right: row numbers of the exact pairs (``exact_pairs``).
        ledger: what the run shed, as ``Result.ledger``.

    Cost: O(pairs + ledger).

    Departures: the printed sum counts complete tuples and has index errors; this is what the text defines.

    References: das2003 §2.2.
    """
    lost = missed(left, right, ledger)
    return int(np.unique(left[lost]).size + np.unique(right[lost]).size)
