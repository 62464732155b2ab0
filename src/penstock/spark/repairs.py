"""Choose what completes the results of a join on Spark."""

from types import ModuleType

from penstock.operator import several
from penstock.operator.settings import Settings
from penstock.spark import completing, refine, uncompared
from penstock.streams.sets import Condition


def repair_of(settings: Settings | several.Settings) -> ModuleType:
    """Return the module with ``refine`` and ``refine_into`` for a join."""
    if isinstance(settings, several.Settings):
        return completing
    return uncompared if settings.cpu is not None or isinstance(settings.on, Condition) else refine
