"""Settings for all tests; its place puts this folder on the path, so that tests can import `oracles` and `traces`."""

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("repeatable")

# The Sparks of tests live for seconds, also in processes of their own: code that is compiled quickly is enough.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
