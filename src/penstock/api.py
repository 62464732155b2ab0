"""The front door: check what is given, call one function."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import pyarrow as pa

from penstock.engine import advise as advising
from penstock.engine import compare as comparing
from penstock.engine import completing, offline, pump, truncating
from penstock.engine import multijoin as several
from penstock.engine import refine as refining
from penstock.engine.advise import Advice
from penstock.engine.multijoin import Joined
from penstock.engine.offline import Optimum
from penstock.engine.pump import Result
from penstock.errors import InputError, PolicyError
from penstock.operator import conditions
from penstock.operator import cpu as budgets
from penstock.operator import several as several_settings
from penstock.operator.join import Join, as_table, settings_of
from penstock.operator.multijoin import MultiJoin
from penstock.operator.relations import Truncated
from penstock.operator.settings import on_keys
from penstock.planner import plan as planning
from penstock.planner import statistics
from penstock.planner.plan import Plan
from penstock.planner.statistics import Stream
from penstock.policies import registry
from penstock.policies.registry import Policy
from penstock.policies.statistics import Table
from penstock.quality.books import Report
from penstock.streams import files
from penstock.streams.times import Every, Rows


def join(  # noqa: PLR0913 - the one front door
    left: Any,
    right: Any,
    *,
    on: Any,
    time: Any,
    window: Any,
    lateness: Any = 0,
    memory: Any = None,
    split: Any = "shared",
    policy: Any = "auto",
    importance: Any = None,
    combine: str = "min",
    cpu: Any = None,
    per_key: int | None = None,
    shards: int | None = None,
    seed: int = 0,
    how: str = "inner",
    event_time: str | None = None,
    mode: str = "shed",
) -> Any:
    """Join two streams over a sliding window, inside a memory budget.

    The idea: when the window needs more rows than the budget, the rows that matter least are given up; the
    result is a subset of the exact join.

    Parameters:
        left, right: Arrow tables or pandas DataFrames, each in order of time; or Spark DataFrames, both
            streaming (with a watermark on the time column) or both not.
        on: a column, a list of columns, ("left", "right"), or a list of such pairs. Null keys join nothing. Or a
            condition: ``pen.overlap``, ``set_equal``, ``contains``, ``contained_in``, ``inner_product``, ``band``.
        time: the event-time column, or ("left", "right"); integers are ticks, timestamps are timestamps.
        window: a span ("10 minutes"), ``pen.rows(400)``, a number of ticks, or a pair (left, right). Half-open:
            the older row must be less than its side's span old.
        lateness: how late a row may be and still join, in the words of `window`; on streams of Spark the
            watermark says it.
        memory: rows kept over both sides; "512MB" (Arrow bytes plus 96 a row, MB = 10**6); None = exact.
        split: "shared" (one pool), "fixed" (half each; the left gets the odd row), or (left_rows, right_rows).
        policy: a name or an object made by ``pen.policy``; "auto" learns which rows to keep.
        importance: a column of numbers, or ("left", "right"); adds the column `importance` to the result.
        combine: how the importances of a pair become one: "min", "sum", "product", "max" or "mean".
        cpu: a CPU budget, made by ``pen.cpu``; on streams of Spark, rows then wait for the watermark.
        per_key: at most this many rows of one key and side are kept; the oldest leave first.
        shards: on Spark, how many parts the keys are divided into, each with its part of the memory; default
            ``spark.sql.shuffle.partitions``.
        seed: for policies that draw lots.
        how: "inner"; others are refused, since after shedding a null row could be false.
        event_time: the name of a column to add, last: the time of the pair, which is that of its later row. On
            streams of Spark it carries the watermark, so that windowed aggregations work on the joined rows.
        mode: "shed", or "observe": nothing is shed and every pair returned, and the report and the ledger say what
            the budget would have shed, and the recall it would have cost.

    Returns:
        The joined rows, of the same kind as `left`: keys first and once (unless `on` names pairs), then the left
        columns, then the right ones; names that clash end in `_left` and `_right`.

    Cost: O(1 + matches) per row, plus O(log) per row given up.

    Examples:
        >>> import penstock as pen, pyarrow as pa
        >>> calls = pa.table({"ts": [1, 2, 3], "person": ["ann", "bob", "ann"]})
        >>> trades = pa.table({"ts": [2, 4], "person": ["ann", "ann"], "amount": [10, 20]})
        >>> pen.join(calls, trades, on="person", time="ts", window=3).to_pylist()
        [{'person': 'ann', 'ts_left': 1, 'ts_right': 2, 'amount': 10}, \
{'person': 'ann', 'ts_left': 3, 'ts_right': 4, 'amount': 20}, \
{'person': 'ann', 'ts_left': 3, 'ts_right': 2, 'amount': 10}]

    References: das2003.
    """
    arguments = dict(locals())
    del arguments["left"], arguments["right"]
    settings = settings_of(arguments)
    if _is_spark(left) or _is_spark(right):
        return _on_spark().join(left, right, settings)
    return pump.run(left, right, settings, ledger="off").table


def joining(right: Any, **arguments: Any) -> Callable[[Any], Any]:
    """Make the function that joins a Spark DataFrame with `right`, for chains: ``left.transform(pen.joining(...))``.

    Parameters:
        right, arguments: as for ``penstock.join``.
    """
    settings = settings_of(arguments)
    return lambda left: _on_spark().join(left, right, settings)


def report(query: Any) -> Any:
    """Say what the join of a streaming query has done so far, from the query's progress.

    Parameters:
        query: the StreamingQuery that ``writeStream...start()`` returned, running or ended.

    Returns:
        A ``Report`` with the books of both sides; of several streams, with those of each.

    Raises:
        InputError: if no micro-batch of a join has ended yet, or the query holds several joins.
    """
    from penstock.spark import books  # noqa: PLC0415 - only with Spark

    return books.report_of(query)


def write(
    joined: Any,
    *,
    checkpoint: str,
    results: str | None = None,
    ledger: str | None = None,
    archive: str | None = None,
    trigger: Any = None,
) -> Any:
    """Run a join of streams on Spark and write what comes out of it: one query, one operator, several outputs.

    Each output is a folder of Parquet files in parts `batch=0`, `batch=1`, ...; a micro-batch that is run again
    after a failure writes its part anew, so each is there exactly once.

    Parameters:
        joined: the streaming DataFrame that ``penstock.join`` returned.
        checkpoint: a folder for the state.
        results: a folder for the joined rows.
        ledger: a folder for the rows given up: columns as those of ``Join.ledger``.
        archive: a folder for every row that came, with its side, shard and arrival number.
        trigger: "5 seconds", "available now", or what ``DataStreamWriter.trigger`` takes, as a dict. None: a
            micro-batch begins when the last one has ended, which is best where `cpu` has a latency; a third of the
            latency is the longest interval that it takes.

    Returns:
        The StreamingQuery.

    Raises:
        InputError: if there is nothing to write, or the trigger is too long for a latency.
    """
    from penstock.spark import writing  # noqa: PLC0415 - only with Spark

    return writing.write(
        joined, checkpoint=checkpoint, results=results, ledger=ledger, archive=archive, trigger=trigger
    )


def refine(
    *,
    archive: Any,
    ledger: Any,
    into: Any = None,
    batches: int = 100,
    keep: Any = None,
    spark: Any = None,
    **arguments: Any,
) -> Any:
    """Return the rows of the exact join that a bounded one missed: its result and these are the exact join.

    The idea: a pair is missing if and only if one of its rows was gone when the other came, or was not compared with
    it, and the ledger says when rows were gone and what was left out. So only that is joined again.

    Parameters:
        archive: every row that came: the two inputs of ``penstock.run`` as a pair (left, right) of Arrow tables,
            pandas DataFrames or files, or several by name; or on Spark the folder, or a DataFrame of it, that
            ``penstock.write`` wrote.
        ledger: what was shed: ``Result.ledger``, a file of it, or the folder or DataFrame beside the archive.
        into: on Spark, a folder to write to instead. It gets a part for every so many micro-batches, each once: run
            again, also after a failure or while the stream goes on, only what is new is added.
        batches: how many micro-batches make a part of `into`.
        keep: with `into`, a span: the archive's parts that only rows later than this could need are removed.
        spark: the SparkSession to read folders with; None: the active one.
        arguments: those of the join: `on`, `time`, `window`, `importance` and so on; of several streams `windows`.
            Memory and policy do not matter; that there was a `cpu` budget does.

    Returns:
        The missing rows, with the columns of the result, in any order: a table (pandas if the left input is), or a
        DataFrame; with `into` that of the whole folder.

    Raises:
        InputError: if the ledger is not that of these rows, or cannot tell what is missing: that of
            ``mode="observe"``, ``policy="sample"`` or a CPU budget over entered rows; of windows in rows on Spark,
            with lateness, or of several streams.

    Cost: what was shed, joined with its partners; and reading keys and times of the archive once.

    Examples:
        >>> import penstock as pen
        >>> from penstock.streams.workloads import zipf
        >>> calls, trades, *_ = zipf(2000, keys=50, seed=7)
        >>> how = {"on": "key", "time": "ts", "window": 400}
        >>> result = pen.run(calls, trades, **how, memory=200)
        >>> rest = pen.refine(archive=(calls, trades), ledger=result.ledger, **how)
        >>> result.table.num_rows + rest.num_rows == pen.join(calls, trades, **how).num_rows
        True

    References: das2003 §2.2 (load smoothing).
    """
    checked = several_settings.settings_of if "windows" in arguments else settings_of
    settings = checked(arguments)
    if isinstance(archive, tuple | list | Mapping):
        for name, given in (("into", into), ("keep", keep), ("spark", spark)):
            if given is not None:
                raise InputError(name, repr(given), "it is for folders that pen.write wrote: leave it None")
        return _refine_tables(archive, ledger, settings)
    from penstock.spark.repairs import repair_of  # noqa: PLC0415 - only with Spark

    on_spark: Any = repair_of(settings)
    archive, ledger = (str(rows) if isinstance(rows, Path) else rows for rows in (archive, ledger))
    if into is None:
        if keep is not None:
            raise InputError("keep", repr(keep), "rows are removed once they are refined: give into=")
        return on_spark.refine(archive, ledger, settings, spark)
    return on_spark.refine_into(archive, ledger, str(into), settings, spark=spark, batches=batches, keep=keep).rows


def _refine_tables(archive: Any, ledger: Any, settings: Any) -> Any:
    """Refine a run over tables or files, of two streams or of several by name."""
    shed = files.read(ledger) if isinstance(ledger, str | Path) else ledger
    if isinstance(settings, several_settings.Settings):
        if not isinstance(archive, Mapping):
            raise InputError("archive", type(archive).__name__, "give several streams by name, as to pen.multijoin")
        tables = {name: files.read(rows) if isinstance(rows, str | Path) else rows for name, rows in archive.items()}
        return completing.refine(tables, shed, settings)
    if isinstance(archive, Mapping) or len(archive) != 2:
        raise InputError("archive", f"{len(archive)} inputs", "give (left, right), or a folder of pen.write")
    left, right = (files.read(rows) if isinstance(rows, str | Path) else rows for rows in archive)
    return refining.refine(left, right, shed, settings)


def configure(builder: Any) -> Any:
    """Prepare a SparkSession builder: state in RocksDB, changelog checkpoints, a Java. What is set stays.

    Parameters:
        builder: ``SparkSession.builder``, with the master already named if it is a local one: the number of
            shuffle partitions is set to its cores.

    Returns:
        The builder.
    """
    from penstock.spark import session  # noqa: PLC0415 - only with Spark

    return session.configure(builder)


def _is_spark(frame: Any) -> bool:
    return type(frame).__module__.startswith("pyspark.")


def _on_spark() -> Any:
    from penstock.spark import pipeline  # noqa: PLC0415 - only with Spark

    return pipeline


@overload
def run(left: Mapping[str, Any], **arguments: Any) -> Joined: ...


@overload
def run(left: Any, right: Any, **arguments: Any) -> Result: ...


def run(left: Any, right: Any = None, **arguments: Any) -> Result | Joined:
    """Join as ``penstock.join`` or ``penstock.multijoin`` does, and return the table with its report and its ledger.

    Parameters:
        left, right, arguments: as for ``penstock.join``; or instead of both tables several by name, with arguments as
            for ``penstock.multijoin``. The report of several streams lists each order that they were joined in.
            Of batch DataFrames of Spark table and ledger are DataFrames; Spark keeps the run they are read from
            (``persist``) until ``spark.catalog.clearCache()``.

    Examples:
        >>> import penstock as pen
        >>> from penstock.streams.workloads import zipf
        >>> streams = zipf(2000, keys=50, seed=7)
        >>> result = pen.run(streams.left, streams.right, on="key", time="ts", window=400, memory=400)
        >>> result.report.balanced, result.report.shed["budget"].total == result.ledger.num_rows
        (True, True)
        >>> three = {"a": streams.left, "b": streams.right, "c": streams.left}
        >>> result = pen.run(three, on="key", time="ts", windows=400, memory=600)
        >>> sum(result.report.shed["budget"].values()) == result.ledger.num_rows
        True
    """
    if isinstance(left, Mapping):
        if right is not None:
            raise InputError("right", type(right).__name__, "several streams are one argument, by name")
        if any(_is_spark(rows) for rows in left.values()):
            return Joined(*_run_on_spark(left, several_settings.settings_of(arguments)))
        return several.run(left, several_settings.settings_of(arguments))
    if _is_spark(left) or _is_spark(right):
        return Result(*_run_on_spark({"left": left, "right": right}, settings_of(arguments)))
    return pump.run(left, right, settings_of(arguments), ledger="keep")


def _run_on_spark(frames: Mapping[str, Any], settings: Any) -> tuple[Any, Any, Any]:
    from penstock.spark import recorded  # noqa: PLC0415 - only with Spark

    return recorded.run(frames, settings)


def compare(  # noqa: PLR0913 - the same arguments as join
    left: Any,
    right: Any,
    *,
    on: Any,
    time: Any,
    window: Any,
    policies: Sequence[str | Policy],
    memory: Sequence[Any],
    split: Any = "shared",
    lateness: Any = 0,
    importance: Any = None,
    combine: str = "min",
    per_key: int | None = None,
    count_from: Any = None,
    seed: int = 0,
) -> pa.Table:
    """Score policies and budgets side by side, in one pass over the trace.

    Parameters:
        left, right, on, time, window, lateness, importance, combine, per_key, seed: as for ``penstock.join``.
        policies: names or policy objects; also "exact", "optimum" (the best schedule, for importance where rows
            have one, else for pairs) and "bound" (what nothing exceeds; equal where the optimum is proved).
        memory: a list of budgets.
        split: a split as for ``penstock.join``, or a list of them.
        count_from: the first time whose pairs count (warm-up); a pair counts by the time of its later row.

    Returns:
        One row per policy, split and memory: `policy`, `split`, `memory`, `pairs`, `importance`,
        `share_of_exact`, `seconds`.

    Examples:
        >>> import penstock as pen
        >>> from penstock.streams.workloads import zipf
        >>> streams = zipf(3000, keys=50, seed=1)
        >>> table = pen.compare(streams.left, streams.right, on="key", time="ts", window=400,
        ...                     policies=["rand", "prob", "exact"], memory=[400], count_from=800)
        >>> rand, prob, exact = table["pairs"].to_pylist()
        >>> rand < prob < exact
        True
    """
    settings = settings_of(
        {
            "on": on,
            "time": time,
            "window": window,
            "lateness": lateness,
            "importance": importance,
            "combine": combine,
            "per_key": per_key,
            "seed": seed,
        }
    )
    if isinstance(memory, str) or not isinstance(memory, Sequence):
        raise InputError("memory", repr(memory), "give a list of budgets, e.g. [1000, 2000]")
    if isinstance(policies, str) or not isinstance(policies, Sequence):
        raise PolicyError("policies", repr(policies), 'give a list, e.g. ["rand", "prob"]')
    splits = split if isinstance(split, list) else [split]
    return comparing.compare(
        left, right, on_keys(settings), policies=policies, memory=memory, splits=splits, count_from=count_from
    )


def advise(  # noqa: PLR0913 - the same arguments as join
    left: Any,
    right: Any,
    *,
    on: Any,
    time: Any,
    window: Any,
    recall: float | Sequence[float] = 0.95,
    policy: str | Policy | Sequence[str | Policy] = "auto",
    split: Any = "shared",
    lateness: Any = 0,
    importance: Any = None,
    combine: str = "min",
    per_key: int | None = None,
    sample: float | None = None,
    seed: int = 0,
) -> Advice:
    """Say how much memory it takes to find a share of the pairs, from a small sample of a recorded trace.

    The idea: a tenth of the keys in a tenth of the memory fare like all of them (miniature simulation), if some of
    each kind are among them; of a trace many spans long, some stretches are looked at instead, with all keys.

    Parameters:
        left, right, on, time, window, lateness, importance, combine, per_key, seed: as for ``penstock.join``; Spark
            DataFrames must not be streaming, and are sampled on Spark.
        recall: the share of the pairs to be found, or a list of them.
        policy: a policy, or a list of them.
        split: "shared" or "fixed".
        sample: the share of the rows to look at; None: a 25th, at least 20,000 rows. 1 is a full simulation.

    Returns:
        An ``Advice``: `memory` in rows for the first of these, `needs` and `curve` as tables, with 95 % intervals.

    Cost: the share of the rows, once for each policy and each of 20 budgets.

    Departures: keys are taken of each kind, by how often they come, so the few that carry most of the pairs are among
        them. With `per_key` they are taken by hash alone: a small sample may hold none of these, and nothing tells.

    Examples:
        >>> import penstock as pen
        >>> from penstock.streams.workloads import zipf
        >>> streams = zipf(3000, keys=50, seed=1)
        >>> how = {"on": "key", "time": "ts", "window": 400, "policy": "prob"}
        >>> advice = pen.advise(streams.left, streams.right, recall=0.8, **how)
        >>> report = pen.run(streams.left, streams.right, memory=advice.memory, **how).report
        >>> round(report.recall.mid, 2)
        0.8
    """
    settings = settings_of(
        {
            "on": on,
            "time": time,
            "window": window,
            "memory": 2,
            "split": split,
            "lateness": lateness,
            "importance": importance,
            "combine": combine,
            "per_key": per_key,
            "seed": seed,
        }
    )
    policies = [policy] if isinstance(policy, str | Policy) else list(policy)
    recalls = [recall] if isinstance(recall, int | float) else list(recall)
    drawn = None
    if _is_spark(left) or _is_spark(right):
        from penstock.spark import advising as on_spark  # noqa: PLC0415 - only with Spark

        rows = on_spark.sampled(left, right, settings, advising.share_of(sample), advising.ENOUGH)
        left, right, sample = rows.left, rows.right, 1.0
        if rows.strata is not None:
            drawn = advising.Drawn(rows.strata, rows.places, rows.share)
    return advising.advise(left, right, settings, recall=recalls, policies=policies, share=sample, drawn=drawn)


def optimum(  # noqa: PLR0913 - the same arguments as join
    left: Any,
    right: Any,
    *,
    on: Any,
    time: Any,
    window: Any,
    memory: Any,
    split: Any = "shared",
    objective: str = "count",
    importance: Any = None,
    combine: str = "min",
    count_from: Any = None,
    time_limit: float | None = None,
) -> Optimum:
    """Find the best that any policy could have done, knowing the future, and prove it.

    The idea: a place in memory is a unit of flow through time; the flow that meets the most partners is the best
    schedule, and the prices of places prove it.

    Parameters:
        left, right, on, time, window, split, importance, combine: as for ``penstock.join``; in order of time.
        memory: rows kept over both sides; None for all. Bytes are refused.
        objective: "count" for the most pairs, "importance" for the most important ones.
        count_from: the first time whose pairs count (warm-up); a pair counts by the time of its later row.
        time_limit: seconds after which the best schedule and bound so far are good enough.

    Returns:
        An ``Optimum``: `value` and `bound` (equal when proved), `schedule` (side, row, until), `prices`, and
        ``replay()``, the policy that plays the schedule.

    Cost: a min-cost flow with O(rows) nodes and arcs, whatever the window: about a second for 5,000 rows a side.

    Examples:
        >>> import penstock as pen, pyarrow as pa
        >>> r = pa.table({"ts": range(5), "key": [1, 1, 1, 3, 2]})
        >>> s = pa.table({"ts": range(5), "key": [2, 3, 1, 1, 3]})
        >>> best = pen.optimum(r, s, on="key", time="ts", window=3, memory=2)
        >>> best.value, best.bound
        (6, 6)
        >>> pen.join(r, s, on="key", time="ts", window=3, memory=2, policy=best.replay()).num_rows
        6

    References: das2003 §3.2 (OPT with split="fixed", OPTV with "shared"); importance2006 §4.2 (ESJA).
    """
    settings = settings_of(
        {
            "on": on,
            "time": time,
            "window": window,
            "memory": memory,
            "split": split,
            "importance": importance,
            "combine": combine,
        }
    )
    return offline.optimum(
        left, right, on_keys(settings), objective=objective, count_from=count_from, time_limit=time_limit
    )


def truncate(*relations: Any, on: Any, keep: Any = None, drop: Any = None) -> Truncated:
    """Keep only so many rows of whole relations, and as much of their join as possible: a static join.

    The idea: keys are kept whole or not at all, but for one that is kept in part; which ones is a knapsack.

    Parameters:
        relations: two or more Arrow tables, pandas DataFrames or batch DataFrames of Spark.
        on: a column, a list of columns, a tuple with a column for each relation, or a list of such tuples. Null keys
            join nothing.
        keep: how many rows to keep, in all or as a tuple with a number for each relation. Three relations and more
            need a tuple.
        drop: the same, by the rows to drop.

    Returns:
        A ``Truncated``: `relations` (the retained rows of each, exactly as many as asked for), `pairs` (the results
        of their join) and `bound` (what no choice exceeds; equal when the best is proved, as it is for two relations
        but for few large keys). Of m relations, at most m times as many results are lost as by the best choice.

    Cost: O(rows log rows) to count keys and choose rows, and what ``penstock.optimum.static.plan`` says; a million
        rows a side take a second or two. On Spark the keys are counted there, the program runs on the driver over
        the distinct counts, and the rows are chosen on Spark.

    Examples:
        >>> import penstock as pen, pyarrow as pa
        >>> a = pa.table({"key": [1, 1, 2, 3]})
        >>> b = pa.table({"key": [1, 2, 2, 2]})
        >>> kept = pen.truncate(a, b, on="key", keep=4)
        >>> kept.pairs, kept.bound, [rows["key"].to_pylist() for rows in kept.relations]
        (3, 3, [[2], [2, 2, 2]])

    References: das2003 §3.1.
    """
    if any(_is_spark(rows) for rows in relations):
        from penstock.spark import truncating as on_spark  # noqa: PLC0415 - only with Spark

        return on_spark.truncate(relations, on=on, keep=keep, drop=drop)
    return truncating.truncate(relations, on=on, keep=keep, drop=drop)


def policy(name: str, **options: Any) -> Policy:
    """Make a policy object, its options checked.

    Parameters:
        name: one of ``penstock.policies()``.
        options: as listed there.

    Examples:
        >>> import penstock as pen
        >>> str(pen.policy("life", statistics="window"))
        'life(statistics=window)'
    """
    return registry.policy(name, **options)


def policies() -> pa.Table:
    """List the policies: name, what each does, its paper, its options with their defaults, and its cost.

    Examples:
        >>> import penstock as pen
        >>> pen.policies()["name"].to_pylist()
        ['age', 'arm', 'auto', 'dgl', 'dimpprob', 'life', 'lru', 'oldest', 'prob', 'rand', 'replay', 'sample', \
'simp', 'simpprob']
    """
    return pa.Table.from_pylist(
        [
            {
                "name": entry.name,
                "what": entry.summary,
                "paper": entry.paper,
                "options": ", ".join(f"{key}={option.default!r}" for key, option in entry.options.items()),
                "cost": entry.cost,
            }
            for entry in registry.entries()
        ]
    )


def table(*, left: Mapping[Any, float], right: Mapping[Any, float]) -> Table:
    """Give arrival probabilities to PROB and LIFE instead of estimating them.

    Parameters:
        left: how likely each key is to arrive on the left; a missing key means 0. Keys of several columns are
            tuples, in the order of `on`.
        right: the same for the right.

    Examples:
        >>> import penstock as pen
        >>> str(pen.policy("prob", statistics=pen.table(left={1: 0.9, 2: 0.1}, right={1: 0.5, 2: 0.5})))
        'prob(statistics=table(2 left, 2 right))'
    """
    return Table(left, right)


overlap = conditions.overlap
set_equal = conditions.set_equal
contains = conditions.contains
contained_in = conditions.contained_in
inner_product = conditions.inner_product
band = conditions.band
cpu = budgets.cpu


def rows(count: int) -> Rows:
    """Make a window over the last `count` rows of a side.

    Examples:
        >>> import penstock as pen
        >>> str(pen.rows(400))
        '400 rows'
    """
    return Rows(count)


def every(interval: Any) -> Every:
    """Make a lazy re-evaluation: results are computed once in an interval, not at every arrival.

    Parameters:
        interval: a number, or a span such as "5 seconds".

    Examples:
        >>> import penstock as pen
        >>> str(pen.every("5 seconds"))
        'every 5 seconds'

    References: golab2003 §1, §3.3.
    """
    return Every(interval)


def plan(  # noqa: PLR0913 - one front door
    streams: Sequence[Stream] | Mapping[str, Any],
    *,
    join: str = "nested",
    evaluation: Any = "eager",
    order: Any = None,
    algorithm: str = "auto",
    memory: int | None = None,
    selectivity: Mapping[tuple[str, str], float] | None = None,
    on: Any = None,
    time: Any = None,
    windows: Any = None,
) -> Plan:
    """Say in which order several windows are best joined, and what that costs.

    The idea: new tuples of a stream go through nested loops over the other windows; an order that lets few
    intermediate results through to the inner loops is cheap. Costs are comparisons per unit of time.

    Parameters:
        streams: ``pen.Stream(...)`` for each, 2 to 12; or samples by name with `on`, `time` and `windows`: Arrow
            tables or DataFrames of pandas or Spark, of the same period. Of Spark's, a million rows are brought here,
            those of the first part of the period.
        join: "nested" (indexes are not used), or "hash": windows with `buckets` are indexed, the others scanned.
        evaluation: "eager", or ``pen.every(...)``: results once in an interval.
        order: None: the cheapest; "heuristic": what the paper's heuristic finds; names, the outermost loop first; or
            such an order for the new tuples of each stream, by name.
        algorithm: "eager" or "lazy": new tuples outermost, then one global order; "naive": one order throughout;
            "general": an order for the new tuples of each stream; "auto": "eager", or "general" when evaluation is
            lazy.
        memory: hash buckets to share out over all windows; a window without an index counts as one.
        selectivity: for joins on different attributes, {(name, name): share of pairs that match}; an order then
            joins each stream with one before it.
        on: for samples: as for ``penstock.multijoin``.
        time: for samples: the time column, or one for each by name. Timestamps give rates per second, ticks per tick.
        windows: for samples: one window for all, or one for each by name.

    Returns:
        The plan: ``order``, ``cost``, ``parts`` (C_i, L_i, G_i or H_i), ``orders`` (the loops for the new tuples of
        each stream), and ``costs()``, all orders with their costs, for up to 9 streams. Printed, it shows the tree
        and the loops.

    Cost: the cheapest order is found in O(n^2 2^n).

    Examples:
        >>> import penstock as pen
        >>> streams = [
        ...     pen.Stream("S1", rate=10, window=100, distinct=500),
        ...     pen.Stream("S2", rate=1, window=100, distinct=50),
        ...     pen.Stream("S3", rate=1, window=200, distinct=40),
        ...     pen.Stream("S4", rate=3, window=100, distinct=5),
        ... ]
        >>> best = pen.plan(streams)
        >>> best.order, best.cost
        (('S1', 'S2', 'S3', 'S4'), 16000.0)
        >>> pen.plan(streams, order=["S2", "S1", "S3", "S4"]).cost
        19600.0

    References: golab2003 §4, §5, Appendix A.
    """
    if isinstance(streams, Mapping):
        streams, selectivity = _measured(streams, on=on, time=time, windows=windows, selectivity=selectivity)
    else:
        for name, given in (("on", on), ("time", time), ("windows", windows)):
            if given is not None:
                raise InputError(name, repr(given), "it is for samples: give tables by name instead of pen.Stream")
    return planning.make(
        streams,
        join=join,
        every=statistics.interval(evaluation),
        order=order,
        algorithm=algorithm,
        memory=memory,
        selectivity=selectivity,
    )


def multijoin(  # noqa: PLR0913 - one front door
    streams: Mapping[str, Any],
    *,
    on: Any,
    time: Any,
    windows: Any,
    order: Any = "auto",
    evaluation: Any = "eager",
    expiration: Any = "auto",
    index: Any = "auto",
    algorithm: str = "auto",
    price: Any = 1,
    lateness: Any = 0,
    memory: Any = None,
    policy: Any = "auto",
    importance: Any = None,
    combine: str = "min",
    shards: int | None = None,
    seed: int = 0,
    cross: bool = False,
) -> Any:
    """Join several streams over sliding windows at once, without intermediate state.

    The idea: new rows of a stream go through nested loops over all other windows, in an order chosen from the rates
    and distinct values of the streams. A result appears once, with its last row; each of its rows must be alive in
    its own window at that time.

    Parameters:
        streams: by name, 2 to 12: Arrow tables or pandas DataFrames, each in order of time; or Spark DataFrames, all
            streaming (with a watermark on the time column) or all not.
        on: a column or a list of columns common to all; or a join graph {(name, name): column, (column, column),
            (column, "<", column), or a list of these}; others than "<" are <=, >, >=, = and !=. Nulls join nothing.
        time: the event-time column, or one for each stream by name.
        windows: a span ("10 minutes"), ``pen.rows(400)`` or a number of ticks, for all or for each by name.
        order: "auto": the cheapest; or as for ``penstock.plan``.
        evaluation: "eager": at every tick; or ``pen.every(...)``. The results are the same.
        expiration: "auto": when results are computed; "eager", or ``pen.every(...)``, at most as often as evaluation.
        index: "auto" or "hash": an index on every window; "none": windows are scanned; a number of buckets, each with
            rows of its own, as in the paper; or one of these for each stream by name.
        algorithm: "naive", "eager", "lazy" or "general", as for ``penstock.plan``; "auto": "eager" or "lazy".
        price: what a comparison with a row costs, for all or for each stream by name, where values are costly to
            compare or some streams dear to look at: an order is chosen by that.
        lateness: on streams of Spark, for streams that may be silent: results come as soon as a row later by more
            than this ("10 seconds") has come on *any* stream; what comes later still is late, whatever the watermark
            says. 0: rows wait for the watermark, or for the stream that is behind.
        memory: rows kept over all windows together; "512MB" (Arrow bytes plus 96 a row); None: exact.
        policy: "auto" or "prob": a row is worth the complete results that it can expect, the product of how often its
            key comes on each other stream; along a join graph, of how many partial results come behind each edge.
            "oldest", "rand"; or an object made by ``penstock.policy``, with ``statistics="decayed"`` or "history" and
            ``half_life`` for "prob".
        importance: a column of numbers, at least 0, or one for each stream by name: a row is then worth the
            importance of the results that it can expect. Results get a column `importance`.
        combine: how the importances of a result's rows become one: "min", "sum", "product", "max" or "mean".
        shards: on Spark, how many parts the keys are divided into; the memory is for all together and moves between
            them. Default ``spark.sql.shuffle.partitions``. Without a key common to all, and with windows in rows,
            there is one.
        seed: for "rand".
        cross: whether a join graph may fall apart; its parts then meet as a cross product.

    Returns:
        The joined rows, of the same kind as the first stream: common keys first and once, then the other columns of
        each stream; names that clash end in `_` and the stream's name. Under a budget it is a subset of the exact
        result; ``penstock.run(streams, ...)`` tells what was given up, on Spark ``penstock.report(query)``. On
        streams of Spark results come when the watermark, or `lateness`, has passed their last row.

    Cost: one step for each row that a loop looks at; with indexes O(1 + intermediate results) per row. A row that is
    given up costs O(log keys).

    Examples:
        >>> import penstock as pen, pyarrow as pa
        >>> seen = {name: pa.table({"ts": ts, "id": [7] * len(ts)}) for name, ts in
        ...         {"a": [1, 4], "b": [2], "c": [3, 9]}.items()}
        >>> pen.multijoin(seen, on="id", time="ts", windows=3).to_pylist()
        [{'id': 7, 'ts_a': 1, 'ts_b': 2, 'ts_c': 3}, {'id': 7, 'ts_a': 4, 'ts_b': 2, 'ts_c': 3}]

    References: golab2003 §3; das2003 §3.3.1 (PROB); Law and Zaniolo 2007, "Load shedding for window joins on multiple
        data streams" (worth as a product).
    """
    given = {name: value for name, value in locals().items() if name != "streams"}
    settings = several_settings.settings_of(given)
    if isinstance(streams, Mapping) and any(_is_spark(rows) for rows in streams.values()):
        return _on_spark().multijoin(streams, settings)
    return several.run(streams, settings, ledger="off").table


def _measured(samples: Mapping[str, Any], *, selectivity: Any, **given: Any) -> statistics.Measured:
    for name, value in given.items():
        if value is None:
            raise InputError(name, "nothing", "samples need on=, time= and windows=")
    if selectivity is not None:
        raise InputError("selectivity", repr(selectivity), "it is measured on samples: leave it None")
    if any(_is_spark(rows) for rows in samples.values()):
        from penstock.spark import planning as on_spark  # noqa: PLC0415 - only with Spark

        samples = on_spark.sampled(samples, given["on"], given["time"])
    tables = {}
    for name, rows in samples.items():
        table = as_table(rows, name)
        if table is None:
            raise InputError(name, "None", "give an Arrow table, or a DataFrame of pandas or Spark")
        tables[name] = table
    return statistics.measured(tables, **given)


__all__ = [
    "Advice",
    "Join",
    "MultiJoin",
    "Optimum",
    "Plan",
    "Policy",
    "Report",
    "Result",
    "Stream",
    "Table",
    "Truncated",
    "advise",
    "compare",
    "configure",
    "every",
    "join",
    "joining",
    "multijoin",
    "optimum",
    "plan",
    "policies",
    "policy",
    "refine",
    "report",
    "rows",
    "run",
    "table",
    "truncate",
    "write",
]
