"""The last part of the demo: a Spark pipeline over the orders just published. Skipped, with a word, without Java or PySpark.

.venv/bin/python examples/demo_spark.py localhost:9092        over a topic "orders" of your own broker
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

console = Console(highlight=False, soft_wrap=True)

SCHEMA = "order bigint, customer bigint, cents bigint"


def run(bootstrap: str, topic: str = "orders") -> bool | None:
    """Archive the topic to Parquet exactly once, then ask archive and topic together. False when it went wrong, None when
    it could not be shown here (F81)."""
    from headrace.spark.session import SparkMissing, require_spark

    try:
        require_spark()
    except SparkMissing as missing:
        console.print(f"  [yellow]not shown:[/] {missing}")
        return None
    from headrace.spark import register
    from headrace.spark.pipelines.definition import parse
    from headrace.spark.pipelines.run import run as run_pipeline
    from headrace.spark.session import local_session

    logging.getLogger("py4j").setLevel(logging.ERROR)
    began = time.perf_counter()
    spark = local_session("headrace demo", master="local[2]", settings={"spark.log.level": "OFF"}, quiet=True)
    register(spark)
    console.print(f"  Spark is up in {time.perf_counter() - began:.1f} s, on this machine, without a jar")
    work = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    try:
        path = work / "archive"
        archive = parse(
            f'kind="archive"\nname="demo-archive"\ntopics=["{topic}"]\npath="{path}"\nbootstrap="{bootstrap}"'
        )
        began = time.perf_counter()
        done = run_pipeline(archive, once=True, spark=spark)
        files = len(list(path.rglob("*.parquet")))
        seconds = time.perf_counter() - began
        console.print(
            f"  archived {done['records']:,} orders exactly once to {files} Parquet files in {seconds:.1f} s"
        )
        return _ask(spark, bootstrap, topic, path, done["records"])
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)


def _ask(spark: Any, bootstrap: str, topic: str, path: Path, archived: int) -> bool:
    from headrace.spark.pipelines.tables import history_and_now

    began = time.perf_counter()
    history_and_now(spark, bootstrap, topic, path).createOrReplaceTempView("history_and_now")
    rows = spark.sql(
        f"""select o.customer, count(*) orders, sum(o.cents) / 100 total, max(o.cents) / 100 largest
        from (select from_json(value, '{SCHEMA}') o from history_and_now) group by o.customer
        order by total desc limit 5"""
    ).collect()
    counted = spark.sql("select count(*) from history_and_now").first()[0]
    table = Table(title="Best customers, over archive and topic as one table")
    for name in ("customer", "orders", "total", "largest"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(str(row.customer), f"{row.orders:,}", f"{row.total:,.2f}", f"{row.largest:,.2f}")
    console.print(table)
    console.print(f"  {counted:,} orders asked in {time.perf_counter() - began:.1f} s")
    return bool(counted == archived)


if __name__ == "__main__":
    sys.exit(0 if run(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092") else 1)
