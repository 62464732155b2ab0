"""Jobs that read topics of a broker: the topics, the rows in them, the commands, and what came out."""

import json
import random
import subprocess
import sys
import uuid
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset as pd
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from brokers import Broker

START = 1_700_000_000_000  # milliseconds
SPAN = 2_000
SECONDS = 240
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


SOURCE = """
[sources.{name}]
format = "kafka"
servers = {servers}
topics = {topics}
starting = "earliest"
schema = "ms bigint, key bigint, number bigint"
select = ["timestamp_millis(ms) as ts", "key", "number"]
{more}
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


def sources(broker: Broker, calls: str, trades: str, more: str) -> str:
    """Return the part of a job file that reads two topics: one and a list of one are the same to it."""
    address = f'"{broker.address}"'
    left = SOURCE.format(name="calls", servers=address, topics=f'"{calls}"', more=more)
    return left + SOURCE.format(name="trades", servers=f"[{address}]", topics=f'["{trades}"]', more=more)


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
