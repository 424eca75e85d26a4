"""What one broker costs: throughput, latency, and the broker's own CPU per GB and per request.

    .venv/bin/python bench/single_node.py [--mb 500] [--requests 100000] [--json]

CPU figures are the broker process's own (user + system), so they hold on a busy machine too; rates and latencies do not.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from load import Pipeline, Used, consume, fetch_frame, measure, percentile, produce, produce_frame

from headrace.testing.broker_process import BrokerProcess

# As installed: with bytecode. Some environments forbid writing it, and then every start compiles everything again.
COMPILED = {
    "PYTHONDONTWRITEBYTECODE": "",
    "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "headrace-bench-pyc"),
}

LIMITS = {
    "produce 1 KB, batches to 1 MB, acks=1: CPU-s/GB": 1.8 * 1.5,
    "consume 1 KB: CPU-s/GB": 0.4 * 1.5,
    "produce of one record, acks=1: µs CPU": 20 * 1.5,
    "start: s": 0.6,
    "start: CPU-s": 0.6,
    "idle: MB": 80.0,
    "idle: % CPU": 1.0,
}
"""Within 1.5 times the prototype's figures (issue 2)."""


def startup(repeat: int) -> dict[str, float]:
    walls, cpus = [], []
    with BrokerProcess(environment=COMPILED):
        pass
    for _ in range(repeat):
        started = time.perf_counter()
        with BrokerProcess(environment=COMPILED) as broker:
            walls.append(time.perf_counter() - started)
            cpus.append(Used.by(broker.pid).cpu_s)
    return {"start: s": min(walls), "start: CPU-s": min(cpus)}


def idle(broker: BrokerProcess, seconds: float) -> dict[str, float]:
    before = Used.by(broker.pid)
    time.sleep(seconds)
    after = Used.by(broker.pid)
    return {"idle: MB": after.rss_bytes / 1e6, "idle: % CPU": (after.cpu_s - before.cpu_s) / seconds * 100}


def bulk(broker: BrokerProcess, megabytes: int) -> dict[str, float]:
    count = megabytes * 1000
    found: dict[str, float] = {}
    for acks in (1, "all"):
        topic = f"bulk-{acks}"
        made = measure(broker.pid, lambda: produce(broker.bootstrap, topic, count, 1000, acks=acks))  # noqa: B023
        name = f"produce 1 KB, batches to 1 MB, acks={acks}"
        found |= {
            f"{name}: CPU-s/GB": made.cpu_s_per_gb,
            f"{name}: MB/s": made.mb_per_s,
            f"{name}: messages/s": made.per_s,
        }
    consume(broker.bootstrap, "bulk-1", 1)  # the first group of all makes the offsets topic, once and for all
    read = measure(broker.pid, lambda: consume(broker.bootstrap, "bulk-1", count))
    found |= {
        "consume 1 KB: CPU-s/GB": read.cpu_s_per_gb,
        "consume 1 KB: MB/s": read.mb_per_s,
        "consume 1 KB: messages/s": read.per_s,
    }
    return found


def small_requests(broker: BrokerProcess, count: int) -> dict[str, float]:
    produce(broker.bootstrap, "small", 1, 100)
    found: dict[str, float] = {}
    kinds = {
        "produce of one record, acks=1": produce_frame("small", 1),
        "produce of one record, acks=all": produce_frame("small", -1),
        "fetch of one record": fetch_frame("small", 0, 1),
    }
    for name, frame in kinds.items():
        pipeline = Pipeline(broker.kafka_port, frame)
        pipeline.run(2_000, 64)
        made = measure(broker.pid, lambda: pipeline.run(count, 64))  # noqa: B023
        found |= {f"{name}: µs CPU": made.us_per_request, f"{name}: requests/s": made.per_s}
        ordered = pipeline.latencies(500)
        found |= {f"{name}: p{percent} ms": percentile(ordered, percent) * 1e3 for percent in (50, 95, 99)}
        pipeline.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=int, default=500, help="how much to produce and consume")
    parser.add_argument("--requests", type=int, default=100_000, help="how many small requests")
    parser.add_argument("--only", choices=["start", "idle", "bulk", "small"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, float] = {}
    if options.only in (None, "start"):
        found |= startup(3)
    with BrokerProcess(environment=COMPILED) as broker:
        if options.only in (None, "idle"):
            found |= idle(broker, 5)
        if options.only in (None, "small"):
            found |= small_requests(broker, options.requests)
        if options.only in (None, "bulk"):
            found |= bulk(broker, options.mb)
        found["after the load: MB"] = Used.by(broker.pid).rss_bytes / 1e6
    show(found, as_json=options.json)


def show(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for name, value in found.items():
        limit = LIMITS.get(name)
        verdict = "" if limit is None else f"   (at most {limit:g}: {'ok' if value <= limit else 'TOO MUCH'})"
        print(f"{name:55} {value:12,.2f}{verdict}")


if __name__ == "__main__":
    main()
