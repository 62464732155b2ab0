"""Settings for all tests; its place puts this folder on the path, so that tests can import `oracles` and `traces`."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("repeatable")
