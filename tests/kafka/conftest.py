from collections.abc import Iterator

import pytest

from brokers import Broker, started


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with started(tmp_path_factory.mktemp("kafka")) as running:
        yield running
