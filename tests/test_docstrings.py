"""Run the examples in the docstrings of every module of the package; each can be imported for that."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import penstock

MODULES = [module.name for module in pkgutil.walk_packages(penstock.__path__, "penstock.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name: str) -> None:
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    told: list[str] = []
    failed = 0
    for test in doctest.DocTestFinder().find(import_module(name), name):
        failed += runner.run(test, out=told.append).failed
    assert failed == 0, "".join(told)


def test_the_front_door_has_examples() -> None:
    found = doctest.DocTestFinder().find(import_module("penstock.api"))
    assert {"penstock.api.join", "penstock.api.policies"} <= {test.name for test in found if test.examples}
