"""Join-direction adaptation: which window is worth more, and how the work is shared out."""


def shares(share: float, spans: tuple[float, float], output: tuple[float, float]) -> tuple[float, float]:
    """Return the share of each window to probe: as much as possible of the more profitable one.

    The comparisons stay the same: ``share * (w1 + w2) == r1 * w1 + r2 * w2``.

    Parameters:
        share: r, for both windows alike.
        spans: w1, w2.
        output: o1, o2, pairs to be expected from one comparison with a row of each window.

    Cost: O(1).

    Examples:
        >>> shares(0.25, (10, 10), (0.5, 0.1)), shares(0.75, (10, 10), (0.1, 0.5))
        ((0.5, 0.0), (0.5, 1.0))

    Departures: line 7 of the algorithm reads ``r2 = r (w1 + w2) / w2 - r1 w1 / w2``, as the constraint wants it.

    References: gedik2007 §5.2, Algorithm 4.
    """
    first, second = spans
    work = share * (first + second)
    mine = min(1.0, work / first) if output[0] >= output[1] else max(0.0, (work - second) / first)
    return mine, min(1.0, max(0.0, (work - mine * first) / second))
