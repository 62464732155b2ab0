"""Rate adaptation: how much of the windows there is time for."""


def adapt(share: float, *, fetched: float, arrived: float, boost: float = 1.2) -> float:
    """Return the share of the windows to probe in the next period.

    The idea: if only a part of the rows that came could be fetched, that part of the work is done from now on;
    if all could be, there may be time for more.

    Parameters:
        share: r, that of the last period.
        fetched: rows taken from the queue in the last period.
        arrived: rows that came in the last period.
        boost: the fraction boost factor δ_r.

    Cost: O(1).

    Examples:
        >>> adapt(1.0, fetched=50, arrived=200), adapt(0.25, fetched=200, arrived=200)
        (0.25, 0.3)

    References: gedik2007 §4.1, Algorithm 1.
    """
    if arrived <= 0:
        return share
    taken = fetched / arrived
    return taken * share if taken < 1 else min(1.0, boost * share)
