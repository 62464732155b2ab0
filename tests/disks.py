"""A disk that fills up, for tests of what is then left behind."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes: a disk that fills up."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
