"""Every registered policy passes every check of the contract; a new one is here by being registered."""

import pytest

from penstock.policies.registry import entries
from policies.contract import CHECKS, Subject, play, replayed, settings, subjects

SUBJECTS = list(subjects())


@pytest.mark.parametrize("subject", SUBJECTS, ids=[subject.label for subject in SUBJECTS])
@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
def test_contract(subject: Subject, check: object) -> None:
    assert callable(check)
    check(subject)


def test_every_policy_is_a_subject() -> None:
    assert {entry.name for entry in entries()} == {subject.entry.name for subject in SUBJECTS}


def test_replay_repeats_the_run_its_schedule_came_from() -> None:
    rand = next(subject for subject in SUBJECTS if subject.label == "rand")
    replay = next(subject for subject in SUBJECTS if subject.make is replayed)
    for setting in settings():
        want, got = play(rand, setting, seed=77), play(replay, setting, seed=77)
        assert want.pairs == got.pairs
        assert want.shed == got.shed
