"""How long a micro-batch of a few rows takes, from topic to topic, and where the time goes.

    .venv/bin/python bench/spark_latency.py [--triggers 300] [--json results.json]

Runs what `headrace pipeline run` runs for a `transform` (its session, its query) with `every = "0s"`, at-least-once and
exactly-once, and the same once more with the settings that are safe for pipelines with state (`session.SETTINGS` without
STATELESS_SETTINGS). A process of its own for each, because settings of the JVM are made when it starts. A row comes every 20 ms;
the first triggers (as many as are counted, at most 150) are left out: the JVM compiles what it has seen often enough.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PHASES = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
WARM_UP = 150


def child(settings: str, triggers: int) -> None:
    """One session; prints a JSON document for each delivery."""
    from headrace.spark.connection import ClusterAccess
    from headrace.spark.pipelines import run, streams
    from headrace.spark.pipelines.definition import Transform, parse
    from headrace.spark.sync_client import SyncClient
    from headrace.testing.broker_process import BrokerProcess

    if settings == "safe":
        run.STATELESS_SETTINGS.clear()
    work = Path(tempfile.mkdtemp(prefix="headrace-latency-"))
    spark: Any = None
    try:
        with BrokerProcess() as broker, SyncClient(ClusterAccess(broker.bootstrap)) as client:
            for delivery in ("at-least-once", "exactly-once"):
                client.create_topic(f"in-{delivery}", 2)
                client.create_topic(f"out-{delivery}", 2)
                definition = parse(
                    f'kind="transform"\nname="latency-{delivery}"\ntopics=["in-{delivery}"]\ntarget="out-{delivery}"\n'
                    f'sql="select key, value from source"\nevery="0s"\ndelivery="{delivery}"\n'
                    f'bootstrap="{broker.bootstrap}"\nstate="{work}/{delivery}"\n[spark]\nmaster="local[2]"\n'
                )
                assert isinstance(definition, Transform)
                spark = spark or run.make_session(definition)
                spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
                query = streams.start(spark, definition, once=False)
                told = _triggers(query, client, f"in-{delivery}", triggers)
                query.stop()
                print(json.dumps({"settings": settings, "delivery": delivery, "told": told}), flush=True)
    finally:
        if spark is not None:
            spark.stop()
        shutil.rmtree(work, ignore_errors=True)


def _triggers(query: Any, client: Any, topic: str, count: int) -> list[dict[str, int]]:
    """What Spark says of each trigger that had rows, behind the warm-up."""
    import numpy as np

    from headrace.core.ids import TopicPartition
    from headrace.spark.columns.encode import BytesColumn, ProducerStamp, encode_batches
    from headrace.spark.columns.ragged import Ragged
    from headrace.spark.producer import idempotent_producer

    producer, tp = idempotent_producer(client), TopicPartition(topic, 0)
    value = BytesColumn(Ragged(np.zeros(100, dtype=np.uint8), np.array([0, 100])))
    warm_up = min(count, WARM_UP)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        stamp = ProducerStamp(*producer.identity, producer.next_sequence(tp, 1))
        for batch in encode_batches(None, value, np.array([1]), max_batch_bytes=1000, producer=stamp):
            producer.send(tp, batch)
        producer.flush()
        time.sleep(0.02)
        last = query.lastProgress
        if last is not None and last["batchId"] >= warm_up + count:
            break
    full = [progress["durationMs"] for progress in query.recentProgress if progress["numInputRows"]]
    return full[min(warm_up, len(full) // 2) :]


def measure(triggers: int) -> list[dict[str, Any]]:
    rows = []
    for settings in ("pipeline", "safe"):
        command = [sys.executable, __file__, "--child", settings, "--triggers", str(triggers)]
        shown = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        rows += [_row(json.loads(line)) for line in shown.stdout.splitlines() if line.startswith("{")]
    return rows


def _row(measured: dict[str, Any]) -> dict[str, Any]:
    told = measured["told"]
    total = sorted(one["triggerExecution"] for one in told)
    settings = (
        "as `headrace pipeline` has it" if measured["settings"] == "pipeline" else "safe for state, too"
    )
    row = {
        "what": f"micro-batch, {measured['delivery']}, {settings}",
        "p50_ms": statistics.median(total),
        "p95_ms": total[int(len(total) * 0.95)],
        "batches": len(total),
        "phases_p50_ms": {name: statistics.median(one.get(name, 0) for one in told) for name in PHASES},
        "load": round(os.getloadavg()[0], 1),
    }
    phases = ", ".join(f"{name} {value:.0f}" for name, value in row["phases_p50_ms"].items())
    print(
        f"{row['what']}: p50 {row['p50_ms']:.0f} ms, p95 {row['p95_ms']:.0f} ms of {len(total)}  ({phases}; "
        f"load {row['load']})   goal 100 / 200 ms",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--triggers", type=int, default=300)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=("pipeline", "safe"))
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.triggers)
        return
    rows = measure(arguments.triggers)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
