"""Set a bar so that the work above it fits the time, for controllers that let the best in first."""

from penstock.core.jit import part
from penstock.core.windows import Floats

DOUBT = 16.0  # promises are taken to be wrong by no more than that


@part
def bar_for(costs: Floats, work: float) -> tuple[float, float, float]:
    """Return the level to exceed, the share of what is on it, and the work of both, given what each level costs."""
    above = 0.0
    for behind in range(costs.size):
        level = costs.size - 1 - behind
        if above + costs[level] > work:
            return float(level), (work - above) / costs[level], work
        above += costs[level]
    return -1.0, 1.0, above


@part
def missed(promised: float, did: float, least: float) -> float:
    """Return what work was done lately over what was promised, but so much at least, if anything was promised."""
    return min(max(did / promised, least), DOUBT) if promised > 0.0 else 1.0
