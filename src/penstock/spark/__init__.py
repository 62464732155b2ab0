"""The same step inside Spark: sessions, shards, state, and what comes out of them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.listener import Listener

__all__ = ["Listener"]


def __getattr__(name: str) -> Any:
    if name == "Listener":  # needs Spark, which parts of this room do without
        from penstock.spark.listener import Listener  # noqa: PLC0415

        return Listener
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
