"""Run Flink SQL's interval join over CSV files and print its seconds and rows as JSON; needs apache-flink alone."""

import json
import sys
import time
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

SETTINGS = {
    "parallelism.default": "2",
    "table.exec.mini-batch.enabled": "true",  # so that a count is not told after every row
    "table.exec.mini-batch.allow-latency": "5 s",
    "table.exec.mini-batch.size": "1000000",
    "table.exec.source.idle-timeout": "1 s",
}


def main(folder: Path, span: int) -> None:
    """Join the files in two folders, `span` in milliseconds."""
    flink = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in SETTINGS.items():
        flink.get_config().set(name, value)
    for name in ("left", "right"):
        flink.execute_sql(
            f"CREATE TABLE {name}_rows (`key` BIGINT, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), "
            f"WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) "
            f"WITH ('connector' = 'filesystem', 'path' = 'file://{folder / name}', 'format' = 'csv')"
        )
    flink.execute_sql("CREATE TABLE counted (pairs BIGINT) WITH ('connector' = 'print')")
    near = f"INTERVAL '{(span - 1) / 1000:.3f}' SECOND"
    begin = time.perf_counter()
    flink.execute_sql(
        "INSERT INTO counted SELECT COUNT(*) FROM left_rows l JOIN right_rows r ON l.`key` = r.`key` "  # noqa: S608
        f"AND l.ts BETWEEN r.ts - {near} AND r.ts + {near}"
    ).wait()
    print(json.dumps({"seconds": time.perf_counter() - begin}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
