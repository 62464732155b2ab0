"""Make the conditions that rows can be joined on beside equal keys, from what a user says."""

from typing import Any

from penstock.errors import InputError
from penstock.operator.settings import pair, positive
from penstock.streams.sets import INDEXES, Condition


def overlap(column: Any, *, at_least: int, index: bool | str = True) -> Condition:
    """Join rows whose sets share at least so many items: ``on=pen.overlap("words", at_least=3)``.

    An item counts once however often it stands in a list. An empty set joins nothing.

    Parameters:
        column: a column of lists (of numbers, strings or whatever can be a key), or ("left", "right").
        at_least: how many items, 1 or more.
        index: find rows by an inverted index whose lists are in order of time; False: compare all (nested loop). To
            compare with, "identifiers": count the work that it takes if lists are in that order instead. They are
            walked to their end then, and to get in and out takes log2 of their length.

    Examples:
        >>> import penstock as pen, pyarrow as pa
        >>> left = pa.table({"ts": [1, 2], "words": [["flood", "dam", "gate"], ["rain"]]})
        >>> right = pa.table({"ts": [3], "words": [["gate", "dam", "dam"]], "id": [7]})
        >>> pen.join(left, right, on=pen.overlap("words", at_least=2), time="ts", window=10).to_pylist()
        [{'ts_left': 1, 'words_left': ['flood', 'dam', 'gate'], 'ts_right': 3, \
'words_right': ['gate', 'dam', 'dam'], 'id': 7}]

    Cost: O(1) to enter or leave per item; a probe visits the postings of its items.

    References: gedik2007 §4.2.
    """
    if isinstance(at_least, bool) or not isinstance(at_least, int) or at_least < 1:
        raise InputError("at_least", repr(at_least), "give a whole number, at least 1")
    return Condition("overlap", pair("overlap", column), float(at_least), known(index))


def set_equal(column: Any, *, index: bool | str = True) -> Condition:
    """Join rows whose sets hold the same items, in whatever order and however often.

    Parameters:
        column, index: as for ``penstock.overlap``.
    """
    return Condition("set_equal", pair("set_equal", column), index=known(index))


def contains(column: Any, *, index: bool | str = True) -> Condition:
    """Join rows whose left set holds every item of the right set, whichever came later.

    Parameters:
        column, index: as for ``penstock.overlap``.
    """
    return Condition("contains", pair("contains", column), index=known(index))


def contained_in(column: Any, *, index: bool | str = True) -> Condition:
    """Join rows whose right set holds every item of the left set, whichever came later.

    Parameters:
        column, index: as for ``penstock.overlap``.
    """
    return Condition("contained_in", pair("contained_in", column), index=known(index))


def inner_product(column: Any, *, at_least: float, index: bool | str = True) -> Condition:
    """Join rows whose weighted sets have an inner product of at least so much.

    Parameters:
        column: a column of maps from items to weights or of lists of (item, weight), or ("left", "right"). Plain
            lists weigh 1 an item. Weights are at least 0; of an item that stands twice the first counts.
        at_least: more than 0.
        index: as for ``penstock.overlap``.
    """
    return Condition("inner_product", pair("inner_product", column), positive("at_least", at_least), known(index))


def band(column: Any, *, within: float) -> Condition:
    """Join rows whose numbers differ by at most so much: ``on=pen.band("price", within=0.5)``.

    Parameters:
        column: a column of numbers, or ("left", "right"). Nulls, NaN and infinities join nothing.
        within: the largest difference, 0 or more.

    Cost: a nested loop over the window.
    """
    return Condition("band", pair("band", column), positive("within", within, zero=True), index=False)


def known(index: Any) -> Any:
    """Return how rows are found, if that is known."""
    if not isinstance(index, bool | str) or index not in INDEXES:
        raise InputError("index", repr(index), 'give True, False, or "identifiers"')
    return index
