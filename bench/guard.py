"""What one unit costs now, against what it cost when that was last written down: fails when a row is dearer by more than 15 %.

    .venv/bin/python bench/guard.py [--record] [--repeat 5] [--allowed 15]

CPU time of the broker's threads per unit (from schedstat, so to the nanosecond), the least of several repetitions: what else the machine does
moves it by some percent, not by half. A baseline belongs to a kind of machine (processor, cores, Python) and lies in bench/baseline.json;
`--record` writes the one of this machine. Where there is none yet, nothing can be compared, and the exit code is 0.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from load import Pipeline, consume, fetch_frame, produce, produce_frame
from single_node import COMPILED

from headrace.testing.broker_process import BrokerProcess

BASELINE = Path(__file__).parent / "baseline.json"
REQUESTS = 20_000
IN_FLIGHT = 64
MESSAGES = 100_000
IDLE_S = 5.0


def machine_kind() -> str:
    found = Path("/proc/cpuinfo")
    lines = found.read_text().splitlines() if found.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{model or platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def cpu_s(pid: int) -> float:
    """Of all threads; a thread that ends takes its time with it, so none may come and go while this is measured."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def least(pid: int, repeat: int, units: float, work: Callable[[], object]) -> float:
    found = []
    for _ in range(repeat):
        before = cpu_s(pid)
        work()
        found.append((cpu_s(pid) - before) / units)
    return min(found)


def measure(broker: BrokerProcess, repeat: int) -> dict[str, float]:
    pid = broker.pid
    rows: dict[str, float] = {"idle: % CPU": least(pid, 1, IDLE_S / 100, lambda: time.sleep(IDLE_S))}
    produce(broker.bootstrap, "small", 1, 100)
    for name, frame in {
        "produce of one record, acks=1: µs": produce_frame("small", 1),
        "produce of one record, acks=all: µs": produce_frame("small", -1),
        "fetch of one record: µs": fetch_frame("small", 0, 1),
    }.items():
        pipeline = Pipeline(broker.kafka_port, frame)
        pipeline.run(2_000, IN_FLIGHT)
        rows[name] = least(pid, repeat, REQUESTS / 1e6, lambda: pipeline.run(REQUESTS, IN_FLIGHT))  # noqa: B023
        pipeline.close()
    gigabytes = MESSAGES * 1000 / 1e9
    rows["produce 1 KB in batches, acks=1: s/GB"] = least(
        pid, repeat, gigabytes, lambda: produce(broker.bootstrap, "bulk", MESSAGES, 1000)
    )
    consume(broker.bootstrap, "bulk", 1)  # the first group of all makes the offsets topic, once and for all
    rows["consume 1 KB: s/GB"] = least(
        pid, repeat, gigabytes, lambda: consume(broker.bootstrap, "bulk", MESSAGES)
    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--record", action="store_true", help="write down what is found as the baseline of this machine"
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--allowed", type=float, default=15, help="percent")
    options = parser.parse_args()
    with BrokerProcess(environment=COMPILED) as broker:
        time.sleep(2)  # the start is over
        found = measure(broker, options.repeat)
    kind, load = machine_kind(), f"{os.getloadavg()[0]:.1f}"
    baselines = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    known = baselines.get(kind, {}).get("rows", {})
    dearer = [
        name
        for name, value in found.items()
        if name in known and value > known[name] * (1 + options.allowed / 100)
    ]
    print(f"{kind}; load {load}")
    for name, value in found.items():
        before = f"{known[name]:10.2f}  {value / known[name]:6.2f}" if known.get(name) else f"{'–':>10}"
        print(f"{name:42} {value:10.2f} {before}  {'DEARER' if name in dearer else ''}")
    if options.record:
        baselines[kind] = {"load": load, "rows": {name: round(value, 3) for name, value in found.items()}}
        BASELINE.write_text(json.dumps(baselines, indent=2, ensure_ascii=False) + "\n")
        print(f"written to {BASELINE}")
        return
    if not known:
        print("there is no baseline of this kind of machine; write one with --record on a quiet one")
    sys.exit(bool(dearer))


if __name__ == "__main__":
    main()
