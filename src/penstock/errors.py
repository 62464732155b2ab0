"""Say what was wrong with an argument, what was got, and what would work."""

from typing import Any


class PenstockError(Exception):
    """The root of every error that Penstock raises on purpose."""


class InputError(PenstockError, ValueError):
    """An argument, a file or a batch is not what it must be; nothing was started."""

    def __init__(self, argument: str, got: object, want: str) -> None:
        super().__init__(f"{argument}: got {got}; {want}")
        self.argument = argument
        self.got = got
        self.want = want

    def __reduce__(self) -> tuple[Any, ...]:  # so that it survives the way back from another process
        return type(self), (self.argument, self.got, self.want)


class ColumnError(InputError):
    """A column is missing, or its name clashes with another."""


class KeyTypeError(InputError):
    """The key columns of the two sides cannot be compared without loss."""


class TimeError(InputError):
    """A time column is of the wrong type, holds nulls, or is out of range."""


class OrderError(InputError):
    """Rows are out of time order where order is required."""


class WindowError(InputError):
    """The window is no span of time or number of rows."""


class BudgetError(InputError):
    """The memory budget or its split cannot be kept."""


class PolicyError(InputError):
    """No such policy, or no such option of it."""


class ImportanceError(InputError):
    """An importance is missing, NaN or negative."""


class ConditionError(InputError):
    """The condition of a join does not fit its columns, or a value in them is none that it can take."""


class LatencyWarning(UserWarning):
    """A batch takes longer than was asked for, although nothing is compared any more."""


class SchemaError(InputError):
    """A batch has other columns than the stream it belongs to."""


class StateError(InputError):
    """A saved state cannot be read by this version."""


class SessionError(InputError):
    """A Spark session lacks what Penstock's operator needs."""


class JavaError(InputError):
    """Spark has no Java to run on."""


class OutputError(PenstockError, OSError):
    """A result could not be written; nothing half-written was left behind."""

    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.why)
