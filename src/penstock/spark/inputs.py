"""Open streams by the name of their format, and shape them by expressions, with errors that say what is wrong."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.types import StructField, StructType

from penstock.errors import InputError, SessionError

PACKAGES = {  # what a format needs that Spark does not bring
    "kafka": f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",
    "delta": "io.delta:delta-spark_4.2_2.13:4.4.0",
}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
MISSING = re.compile(r"'[\w.$\[\]]+ [\w.$]+\.[\w$<>]+\(.*\)'")  # how the JVM names a method that is not there
ABSENT = ("DATA_SOURCE_NOT_FOUND", "Failed to find", "catalog plugin class")  # how Spark says it


@contextmanager
def told(argument: str, got: object, want: str) -> Iterator[None]:
    """Turn what Spark says about an argument into an error that names it."""
    try:
        yield
    except PySparkException as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(argument, repr(got), f"{want} ({lines[0][:300]})") from error


@contextmanager
def started(places: Mapping[str, str], want: str) -> Iterator[None]:
    """Turn what Spark says when a query starts into an error that names the place it speaks of.

    Parameters:
        places: what may be wrong, by argument.
        want: what would be right.
    """
    try:
        yield
    except Exception as error:
        raw = hasattr(error, "java_exception")  # py4j's, as it came: from where files are, so from the first place
        if not raw and not isinstance(error, PySparkException):
            raise
        lines = [line.strip(" :") for line in str(error).splitlines() if line.strip()][raw:] or [type(error).__name__]
        argument = next((each for each, place in places.items() if place in str(error)), [*places][0 if raw else -1])
        why = next((line for line in lines if places[argument] in line), lines[0])
        raise InputError(argument, repr(places[argument]), f"{want} ({why[:300]})") from error


def opened(
    spark: Any, form: str, options: Mapping[str, str], *, path: str | None = None, schema: str | None = None
) -> Any:
    """Return the stream of a format; without a schema, files have that of those that are there.

    Raises:
        InputError: if the path or the schema will not do.
    """
    reader = spark.readStream.format(form).options(**options)
    if path is None:
        return reader.load()
    if form == "delta":
        with told("path", path, "give the folder of a Delta table"):
            return reader.load(path)
    if schema is None:
        with told("path", path, "give a folder with files in it, or a schema"):
            kind = spark.read.format(form).options(**options).load(path).schema
        if not kind.fields:
            raise InputError("path", repr(path), "there is no column in these files yet: give a schema")
        return reader.schema(kind).load(path)
    with told("schema", schema, 'give columns and types, as in "ts timestamp, person string"'):
        return reader.schema(schema).load(path)


def listed(spark: Any, form: str, path: str) -> list[str]:
    """Return the addresses of the files in a folder, as Spark sees them; none of them is opened."""
    reader = spark.read.format(form)
    if form != "delta":  # a table says itself what its columns are
        reader = reader.schema("unread int")
    with suppress(PySparkException):  # there is no such folder yet
        return sorted(reader.load(path).inputFiles())
    return []


def there(spark: Any, form: str, argument: str = "format") -> None:
    """Raise if a format, named by an argument, is not part of this Spark; nothing of it is opened.

    Raises:
        InputError: naming the package.
    """
    if form in PACKAGES:
        try:
            spark.read.format(form).load().schema  # noqa: B018 - Spark Connect looks only when asked
        except Exception as error:  # anything else is about what it was not told
            if any(word in str(error) for word in ABSENT):
                want = f'this Spark has no connector for it: set packages = ["{PACKAGES[form]}"] in [spark]'
                raise InputError(argument, repr(form), want) from error


def registered(spark: Any, name: str, provider: str, path: str, schema: Any) -> None:
    """Make a table over a folder, if the session knows none by that name; what is in the folder stays.

    To append to a table that is not known would make one, and empty its folder.
    """
    if not spark.catalog.tableExists(name):
        columns = [StructField(field.name, field.dataType) for field in schema]
        spark.catalog.createTable(name, path=path, source=provider, schema=StructType(columns))


def parsed(stream: Any, schema: str) -> Any:
    """Return the values of a stream of Kafka, which are JSON, as columns."""
    with told("schema", schema, 'give columns and types, as in "ts timestamp, person string"'):
        return stream.select(F.from_json(F.col("value").cast("string"), schema).alias("value")).select("value.*")


def keyed(rows: Any, key: str | None) -> Any:
    """Return rows as Kafka takes them: JSON, and a key if an expression says which."""
    columns = [F.to_json(F.struct("*")).alias("value")]
    if key is not None:
        columns.append(F.expr(key).cast("string").alias("key"))
    return rows.select(*columns)


def shaped(stream: Any, where: str | None, select: Sequence[str] | None) -> Any:
    """Return the rows and columns that expressions choose: rows first.

    Raises:
        InputError: if an expression does not look at one row.
    """
    if where is not None:
        with told("where", where, f"give a condition on {', '.join(stream.columns)}"):
            stream = stream.where(F.expr(where))
    if select is not None:
        with told("select", list(select), f"give expressions on {', '.join(stream.columns)}"):
            chosen = [F.expr(each) for each in select]
            stream.select("*", *chosen)  # what counts or sums does not stand beside the columns of a row
            stream = stream.select(*chosen)
    return stream


def watermarked(stream: Any, column: str, delay: str) -> Any:
    """Return a stream whose rows may be so late."""
    if column not in stream.columns:
        raise InputError(
            "select", f"no column {column!r}", f"it is the join's time; there are {', '.join(stream.columns)}"
        )
    kind = stream.schema[column].dataType.simpleString()
    if kind != "timestamp":
        raise InputError(
            "select", f"{kind} in {column!r}", f'make it a timestamp: "timestamp_seconds({column}) as {column}"'
        )
    with told("watermark", delay, 'give a span such as "1 minute"'):
        return stream.withWatermark(column, delay)


def drained(query: Any) -> None:
    """Wait until a query has nothing left to do: what waited for the last watermark goes on in a micro-batch more."""
    with suppress(PySparkException):  # how it failed is asked for later
        query.processAllAvailable()


def failure(query: Any) -> SessionError | None:
    """Return what a query ended with, if it failed."""
    failed = query.exception()
    if failed is None:
        return None
    lines = [line.strip() for line in str(failed).splitlines() if line.strip()]
    told_by_us = [line for line in lines if line.startswith("penstock.errors.")]
    causes = [line for line in lines if line.startswith("Caused by:")]
    why = (told_by_us or causes or lines[:1] or [type(failed).__name__])[-1]  # the deepest cause stands last
    want = "the job goes on from its checkpoint when it is run again"
    if MISSING.fullmatch(why.removeprefix("Caused by: java.lang.NoSuchMethodError: ")):
        made_for = f"a jar calls it that was made for another Spark than {pyspark.__version__}"
        want = f"{made_for}: take its release for this one, or the PySpark that it was made for; then {want}"
    return SessionError("query", why[:2000], want)
