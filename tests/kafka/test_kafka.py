"""Jobs read topics of a real broker and write to them; a job that is killed in a surge loses and repeats nothing."""

import json
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from brokers import Broker
from clusters import end
from topics import FOLDERS, SECONDS, completed, drawn, meetings, met, send, sources, topics, words

pytestmark = pytest.mark.kafka

JOB = """
checkpoint = "cp"
trigger = "{trigger}"

{sources}
[join]
on = "key"
time = "ts"
window = "2 seconds"
{memory}

{sink}
"""
QUIET = 3  # looks in vain, a second each
ADMITTED = 'rows_per_trigger = 1500\nwatermark = "1 minute"'


def sink(broker: Broker, topic: str) -> str:
    return f'[sink]\nformat = "kafka"\nservers = "{broker.address}"\ntopic = "{topic}"\nkey = "cast(key as string)"'


def test_a_job_killed_in_a_surge_loses_nothing_beyond_its_ledger_and_repeats_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    calls, trades = topics(broker, "calls", "trades")
    left, right = drawn(9000, 1), drawn(9000, 2)
    fields = {"sources": sources(broker, calls, trades, ADMITTED), "memory": "memory = 200", "sink": FOLDERS}
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
            end(job)
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


def told(broker: Broker, topic: str, pairs: int) -> Counter[tuple[int, int]]:
    """Return the pairs in a topic, once there are so many and no more come."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got: Counter[tuple[int, int]] = Counter()
    until, quiet = time.monotonic() + 60, 0
    while (got.total() < pairs or quiet < QUIET) and time.monotonic() < until:
        message = consumer.poll(1.0)
        quiet += message is None
        if message is not None and message.error() is None:
            value = json.loads(message.value())
            assert message.key() == str(value["key"]).encode()
            got[value["number_left"], value["number_right"]] += 1
    consumer.close()
    return got


def test_pairs_go_to_a_topic(broker: Broker, tmp_path: Path) -> None:
    calls, trades, pairs = topics(broker, "calls", "trades", "pairs")
    left, right = drawn(800, 3), drawn(800, 4)
    send(broker, calls, left)
    send(broker, trades, right)
    fields = {"sources": sources(broker, calls, trades, ADMITTED), "memory": "", "sink": sink(broker, pairs)}
    file = tmp_path / "job.toml"
    file.write_text(JOB.format(trigger="available_now", **fields), encoding="utf-8")
    completed("run", file, broker)
    exact = meetings(left, right)
    assert told(broker, pairs, exact.total()) == exact


def test_what_a_topic_lacks_is_in_the_ledger_and_repaired(broker: Broker, tmp_path: Path) -> None:
    calls, trades, pairs = topics(broker, "calls", "trades", "pairs")
    left, right = drawn(3000, 5), drawn(3000, 6)
    send(broker, calls, left)
    send(broker, trades, right)
    kept = FOLDERS[FOLDERS.index("[ledger]") :]  # beside the topic
    fields = {"sources": sources(broker, calls, trades, ADMITTED), "memory": "memory = 100"}
    file = tmp_path / "job.toml"
    job = JOB.format(trigger="available_now", sink=f"{sink(broker, pairs)}\n{kept}", **fields)
    file.write_text(job, encoding="utf-8")
    said = completed("run", file, broker)
    got, exact = told(broker, pairs, said["report"]["pairs"]), meetings(left, right)  # type: ignore[index]
    assert 0 < got.total() < exact.total()
    completed("refine", file, broker)
    assert got + met(tmp_path / "rest") == exact
