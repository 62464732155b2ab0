"""The demo runs on a Spark of its own, and its numbers are the join's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import penstock as pen
from penstock.report import demo as showing
from penstock.streams.workloads import surge


def test_the_demo_on_spark(tmp_path: Path) -> None:
    """Nobody's session is in the way, so it is another process."""
    words = ["demo", "--engine", "spark", "--rows", "6000", "--memory", "600", "--seconds", "2", "--policy", "oldest"]
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", *words, "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PENSTOCK_ENGINES": str(tmp_path / "engines")},
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    streams = surge(6000, keys=showing.KEYS, factor=showing.FACTOR, at=showing.SURGE, seed=0)
    exact = pen.join(streams.left, streams.right, on="key", time="ts", window=showing.WINDOW)
    report = shown["report"]
    assert shown["engine"] == "spark"
    assert shown["exact_pairs"] == exact.num_rows > report["pairs"] > 0
    assert shown["recall"] == report["pairs"] / exact.num_rows
    for side in ("left", "right"):
        left_over = report["live"][side] + report["expired"][side]
        assert report["arrivals"][side] == 6000 == left_over + sum(count[side] for count in report["shed"].values())
    assert list(tmp_path.iterdir()) == [tmp_path / "engines"]
