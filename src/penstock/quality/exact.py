"""The exact join: every pair, by row numbers."""

import numpy as np

from penstock.core.exact import ExactJoin
from penstock.core.hooks import Unlimited
from penstock.core.join import WindowJoin
from penstock.core.step import Plan
from penstock.core.windows import Ints
from penstock.streams.intake import Intake, Side

UNLIMITED = int(np.iinfo(np.int64).max)


def exact_pairs(
    sides: tuple[Side, Side], *, span: tuple[int, int], by_rows: bool, lateness: int = 0
) -> tuple[Ints, Ints]:
    """Return the row numbers of all pairs, left and right.

    Parameters:
        sides: the rows of each side in order of arrival.
        span: the window of each side, in ticks or rows.
        by_rows: whether windows are in rows.
        lateness: how late a row may be and still join, in ticks.

    Cost: O(rows + pairs).
    """
    plan = Plan(
        span=np.array(span, np.int64),
        limit=np.full(2, UNLIMITED),
        shared=1,
        by_rows=int(by_rows),
        ahead=0 if by_rows else 1 - lateness,
        patient=0,
        per_key=UNLIMITED,
    )
    in_order = by_rows or lateness == 0
    join = ExactJoin(plan) if in_order else WindowJoin(plan, Unlimited(0), weighted=0, important=0, own=True)
    intake = Intake(lateness, whole=by_rows)
    plain = tuple(side._replace(weight=side.weight[:0], importance=side.importance[:0]) for side in sides)
    found = []
    for ready in (intake.take((plain[0], plain[1])), intake.advance(None)):
        left, right = join.push(ready.batch, ready.code)
        found.append((left.copy(), right.copy()))
    return np.concatenate([left for left, _ in found]), np.concatenate([right for _, right in found])
