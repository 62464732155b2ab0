"""Set a bar so that the work above it fits the time, for controllers that let the best in first."""

import numpy as np

from penstock.core.windows import Floats

DOUBT = 16.0  # promises are taken to be wrong by no more than that


def bar_for(costs: Floats, work: float) -> tuple[float, float, float]:
    """Return the level to exceed, the share of what is on it, and the work of both, given what each level costs."""
    above = np.cumsum(costs[::-1])[::-1]  # of this level and those above
    if above[0] <= work:
        return -1.0, 1.0, float(above[0])
    bar = int(np.flatnonzero(above > work)[-1])
    return float(bar), float((work - (above[bar] - costs[bar])) / costs[bar]), work


def missed(promised: float, did: float) -> float:
    """Return what work was done lately over what was promised."""
    return float(min(max(did / promised, 1 / DOUBT), DOUBT)) if promised > 0.0 and did > 0.0 else 1.0
