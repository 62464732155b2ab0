"""Time-correlation adaptation: which basic windows are worth probing."""

import numpy as np

from penstock.core.windows import Floats, Ints


def output(matched: Floats, tried: Floats) -> Floats:
    """Return o_j: the pairs to be expected from one comparison with a row of each basic window; unseen ones give 0.

    Departures: the comparisons of full processing are counted, where the paper estimates them from the rates.

    References: gedik2007 §5.1, Algorithm 2.
    """
    return np.divide(matched, tried, out=np.zeros(len(tried)), where=tried > 0)


def order(expected: Floats, before: Ints) -> Ints:
    """Return the basic windows, the most profitable first, and of equal ones the newest.

    Nothing expected from any of them: the order stays as it was.

    Cost: O(n log n).

    Examples:
        >>> order(np.array([0.0, 0.3, 0.1, 0.3]), np.arange(4)).tolist()
        [1, 3, 2, 0]

    References: gedik2007 §5.1, Algorithm 2.
    """
    if not expected.any():
        return before
    return np.argsort(-expected, kind="stable")
