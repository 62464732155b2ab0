"""Jobs read topics of a real broker and write to them; a job that is killed in a surge loses and repeats nothing."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset as pd
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from brokers import Broker

pytestmark = pytest.mark.kafka

START = 1_700_000_000_000  # milliseconds
SPAN = 2_000
SECONDS = 240
JOB = """
checkpoint = "cp"
trigger = "{trigger}"

[sources.calls]
format = "kafka"
servers = "{address}"
topics = "{calls}"
starting = "earliest"
schema = "ms bigint, key bigint, number bigint"
select = ["timestamp_millis(ms) as ts", "key", "number"]
rows_per_trigger = 1500
watermark = "1 minute"

[sources.trades]
format = "kafka"
servers = ["{address}"]
topics = ["{trades}"]
starting = "earliest"
schema = "ms bigint, key bigint, number bigint"
select = ["timestamp_millis(ms) as ts", "key", "number"]
rows_per_trigger = 1500
watermark = "1 minute"

[join]
on = "key"
time = "ts"
window = "2 seconds"
{memory}

{sink}
"""
FOLDERS = """
[sink]
format = "parquet"
path = "found"
[ledger]
path = "shed"
[archive]
path = "rows"
[refine]
into = "rest"
"""


class Row(NamedTuple):
    ms: int
    key: int
    number: int


def drawn(rows: int, seed: int) -> list[Row]:
    """Return rows of one topic, ten milliseconds apart, few of each key popular."""
    dice = random.Random(seed)  # noqa: S311 - a stream, not a secret
    return [Row(START + 10 * n, min(int(dice.paretovariate(0.6)), 300), n) for n in range(rows)]


def meetings(left: list[Row], right: list[Row]) -> Counter[tuple[int, int]]:
    """Return (left number, right number) of the pairs, each row compared with those of its key."""
    of_key = defaultdict(list)
    for row in right:
        of_key[row.key].append(row)
    return Counter((a.number, b.number) for a in left for b in of_key[a.key] if abs(a.ms - b.ms) < SPAN)


def topics(broker: Broker, *names: str) -> list[str]:
    """Make topics of two partitions, with names nobody has used."""
    made = [f"{name}-{uuid.uuid4().hex[:8]}" for name in names]
    client = AdminClient({"bootstrap.servers": broker.address})
    for done in client.create_topics([NewTopic(name, 2, 1) for name in made]).values():
        done.result(30)
    return made


def send(broker: Broker, topic: str, rows: list[Row]) -> None:
    client = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
    for row in rows:
        client.produce(topic, json.dumps(row._asdict()).encode(), key=str(row.key).encode())
        client.poll(0)
    assert client.flush(60) == 0


def words(command: str, file: Path) -> list[str]:
    return [sys.executable, "-m", "penstock.cli", command, str(file), "--json"]


def completed(command: str, file: Path, broker: Broker) -> dict[str, object]:
    done = subprocess.run(
        words(command, file), capture_output=True, text=True, check=False, env=broker.env, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, object] = json.loads(done.stdout)
    return said


def met(*folders: Path) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for folder in folders:
        table = pd.dataset(folder, format="parquet", exclude_invalid_files=True).to_table(
            columns=["number_left", "number_right"]
        )
        found.update(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    return found


def test_a_job_killed_in_a_surge_loses_nothing_beyond_its_ledger_and_repeats_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    calls, trades = topics(broker, "calls", "trades")
    left, right = drawn(9000, 1), drawn(9000, 2)
    fields = {"address": broker.address, "calls": calls, "trades": trades, "memory": "memory = 200", "sink": FOLDERS}
    file = tmp_path / "job.toml"
    file.write_text(JOB.format(trigger="1 second", **fields), encoding="utf-8")
    send(broker, calls, left[:1000])
    send(broker, trades, right[:1000])
    until = time.monotonic() + SECONDS
    with subprocess.Popen(
        words("run", file), env=broker.env, stdout=subprocess.DEVNULL, start_new_session=True
    ) as job:
        try:
            while not (tmp_path / "found" / "batch=0" / "_SUCCESS").exists():
                assert job.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
            send(broker, calls, left[1000:7000])  # the surge
            send(broker, trades, right[1000:7000])
            while not (tmp_path / "cp" / "offsets" / "2").exists():
                assert time.monotonic() < until
                time.sleep(0.01)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
    send(broker, calls, left[7000:])
    send(broker, trades, right[7000:])
    file.write_text(JOB.format(trigger="available_now", **fields), encoding="utf-8")
    completed("run", file, broker)
    found, exact = met(tmp_path / "found"), meetings(left, right)
    assert 0 < found.total() < exact.total()
    assert max(found.values()) == 1
    assert not found - exact
    completed("refine", file, broker)
    assert met(tmp_path / "found", tmp_path / "rest") == exact


def test_pairs_go_to_a_topic(broker: Broker, tmp_path: Path) -> None:
    calls, trades, pairs = topics(broker, "calls", "trades", "pairs")
    left, right = drawn(800, 3), drawn(800, 4)
    send(broker, calls, left)
    send(broker, trades, right)
    sink = f'[sink]\nformat = "kafka"\nservers = "{broker.address}"\ntopic = "{pairs}"\nkey = "cast(key as string)"'
    fields = {"address": broker.address, "calls": calls, "trades": trades, "memory": "", "sink": sink}
    file = tmp_path / "job.toml"
    file.write_text(JOB.format(trigger="available_now", **fields), encoding="utf-8")
    completed("run", file, broker)
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe([pairs])
    exact = meetings(left, right)
    got: Counter[tuple[int, int]] = Counter()
    until = time.monotonic() + 60
    while got.total() < exact.total() and time.monotonic() < until:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            value = json.loads(message.value())
            assert message.key() == str(value["key"]).encode()
            got[value["number_left"], value["number_right"]] += 1
    consumer.close()
    assert got == exact
