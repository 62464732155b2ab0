"""How close to the best choice of rows basic windows come: the analysis φ."""

import numpy as np

from penstock.core.windows import Floats

MOMENTS = 256  # how full the first basic window may be


def optimality(width: float, load: float, density: Floats) -> float:
    """Return φ: the output with basic windows as a share of that with the best rows of the window.

    Parameters:
        width: b / w, the length of a basic window as a share of the window.
        load: r', the share of the window that can be probed; 1 and more: all.
        density: how likely matches are by age, as a histogram with bins of equal width, the newest first.

    Cost: O(bins log bins + windows).

    Examples:
        >>> round(optimality(0.1, 1.2, np.array([3.0, 2.0, 1.0])), 6)
        1.0

    References: gedik2007 §5.1.1, Figure 5.
    """
    height = np.asarray(density, np.float64) / np.sum(density)
    edges = np.linspace(0.0, 1.0, height.size + 1)
    area = np.concatenate([[0.0], np.cumsum(height)])
    count = 1 + int(np.ceil(round(1 / width, 9)))
    full = (np.arange(MOMENTS) + 0.5) / MOMENTS * width
    begins = full[:, None] + (np.arange(count) - 1) * width
    covered = np.interp(np.clip(begins + width, 0, 1), edges, area) - np.interp(np.clip(begins, 0, 1), edges, area)
    ranked = -np.sort(-covered.mean(axis=0))
    whole = min(count, int(round(load / width, 9)))
    part = (load - whole * width) / width if whole < count else 0.0
    used = float(ranked[:whole].sum() + (part * ranked[whole] if whole < count else 0.0))
    best = np.interp(min(1.0, load), edges, np.concatenate([[0.0], np.cumsum(-np.sort(-height))]))
    return min(1.0, used / float(best))
