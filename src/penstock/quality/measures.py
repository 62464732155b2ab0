"""How alike an approximate and an exact result are: the set measures of the literature, over multisets of rows."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.windows import Floats, Ints
from penstock.errors import SchemaError

Row = dict[str, Any]
Distance = Callable[[Row, Row], float]


@dataclass(frozen=True)
class Measures:
    """Measures between two multisets X and Y of rows.

    `max_subset` is the number of rows that only one of them has. When X is a part of Y, as after shedding, most of
    them are maximised together. `emd` and `mac` need a distance.
    """

    max_subset: int
    matching: int
    dice: float
    jaccard: float
    cosine: float
    overlap: float
    emd: float | None = None
    mac: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the measures by name."""
        return asdict(self)


def measures(approximate: pa.Table, exact: pa.Table, distance: Distance | None = None) -> Measures:
    """Compare two results of the same columns.

    Parameters:
        approximate, exact: the rows; their order does not matter, how often each comes does.
        distance: how far two rows, given as dicts, are from each other: a number, 0 for equal rows. Without it, EMD
            and MAC are not computed.

    Returns:
        The measures. Of two empty results the coefficients are 1.

    Cost: O(rows); with a distance a matrix of all pairs of rows, and O(n**3) for n rows.

    Departures: the cosine coefficient divides by sqrt(|X| * |Y|), which is printed with a plus.

    References: das2003 §2.2.
    """
    mine, theirs = _counted(approximate, exact)
    sizes = int(mine.sum()), int(theirs.sum())
    both = int(np.minimum(mine, theirs).sum())

    def share(whole: float) -> float:
        return both / whole if whole else 1.0

    found = Measures(
        max_subset=sum(sizes) - 2 * both,
        matching=both,
        dice=2 * share(sum(sizes)) if sum(sizes) else 1.0,
        jaccard=share(sum(sizes) - both),
        cosine=share(math.sqrt(sizes[0] * sizes[1])) if sum(sizes) else 1.0,
        overlap=share(min(sizes)),
    )
    if distance is None:
        return found
    matrix = _distances(approximate, exact, distance)
    return Measures(**{**found.to_dict(), "emd": earth_movers(matrix), "mac": match_and_compare(matrix)})


def _counted(approximate: pa.Table, exact: pa.Table) -> tuple[Ints, Ints]:
    """Return how often each distinct row comes in either."""
    if approximate.schema.names != exact.schema.names or approximate.schema.types != exact.schema.types:
        got = f"columns {dict(zip(approximate.schema.names, map(str, approximate.schema.types), strict=True))}"
        want = f"the exact result has {dict(zip(exact.schema.names, map(str, exact.schema.types), strict=True))}"
        raise SchemaError("approximate", got, want)
    names = [str(at) for at in range(exact.num_columns)]  # any names will do, and none clashes with these
    parts = []
    for side, rows in enumerate((approximate, exact)):
        ones = [pa.array(np.full(rows.num_rows, int(which == side))) for which in range(2)]
        parts.append(pa.table([*rows.columns, *ones], [*names, "mine", "theirs"]))
    groups = pa.concat_tables(parts).group_by(names).aggregate([("mine", "sum"), ("theirs", "sum")])
    return groups["mine_sum"].to_numpy(), groups["theirs_sum"].to_numpy()


def _distances(approximate: pa.Table, exact: pa.Table, distance: Distance) -> Floats:
    mine, theirs = approximate.to_pylist(), exact.to_pylist()
    return np.array([[distance(row, other) for other in theirs] for row in mine], np.float64).reshape(
        len(mine), len(theirs)
    )


def earth_movers(distance: Floats) -> float:
    """Return EMD: the least work that turns the smaller multiset into a part of the larger.

    Parameters:
        distance: (row of X, row of Y).

    Cost: O(n**3).

    References: das2003 §2.2.
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - only these measures need it

    return float(distance[linear_sum_assignment(distance)].sum())


def match_and_compare(distance: Floats) -> float:
    """Return MAC: the distances of a cheapest cover, each times the number of edges at its busier end.

    A multiset that has nothing to be matched with is infinitely far away.

    Parameters:
        distance: (row of X, row of Y).

    Cost: O(n**3).

    Departures: the paper names the parts of the function, not the function. A cheapest cover need not be the only
        one; ties are broken by position.

    References: das2003 §2.2.
    """
    if not all(distance.shape):
        return 0.0 if not any(distance.shape) else math.inf
    cover = cheapest_cover(distance)
    mine, theirs = np.nonzero(cover)
    busier = np.maximum(cover.sum(axis=1)[mine], cover.sum(axis=0)[theirs])
    return float((distance[mine, theirs] * busier).sum())


def cheapest_cover(distance: Floats) -> npt.NDArray[np.bool_]:
    """Return the edges of a cheapest cover of a complete bipartite graph: every row has at least one.

    The idea: let every row take its cheapest edge. Two rows that share one instead save both of those and pay for it;
    which should is an assignment.
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - only these measures need it

    nearest = distance.argmin(axis=1), distance.argmin(axis=0)
    alone = distance.min(axis=1)[:, None] + distance.min(axis=0)
    saved = np.minimum(0.0, distance - alone)
    cover = np.zeros(distance.shape, np.bool_)
    mine, theirs = linear_sum_assignment(saved)
    worth = saved[mine, theirs] < 0
    cover[mine[worth], theirs[worth]] = True
    bare = ~cover.any(axis=1)
    cover[np.flatnonzero(bare), nearest[0][bare]] = True
    bare = ~cover.any(axis=0)
    cover[nearest[1][bare], np.flatnonzero(bare)] = True
    return cover
