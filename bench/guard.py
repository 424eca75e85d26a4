"""What one unit costs now, against what it cost when that was last written down: fails when a row is dearer by more than 15 %.

    .venv/bin/python bench/guard.py [--record] [--rounds 5] [--allowed 15]

CPU time of the broker's threads per unit (from schedstat, so to the nanosecond), the least of several rounds. A baseline belongs to a kind of
machine (processor, cores, Python, pure or compiled) and is a file of its own, bench/baselines/KIND.json; `--record` writes that of this machine.
Where there is none yet, nothing can be compared, and the exit code is 0.

On a busy machine everything is dearer, up to twice: caches and cores are shared. So each round also does a fixed piece of work that has nothing to do
with the broker (small messages through a socket pair, copies of memory), and a row is dearer only when it is so by more than that
work has become. A regression of 15 % is seen on a quiet machine; on a busy one a row that fails should be run again before it is believed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from load import Pipeline, consume, fetch_frame, produce, produce_frame
from single_node import COMPILED

from headrace.core.compiled import how_it_runs
from headrace.testing.broker_process import BrokerProcess

BASELINES = Path(__file__).parent / "baselines"
REQUESTS = 20_000
IN_FLIGHT = 64
MESSAGES = 100_000
IDLE_S = 5.0
IDLE = "idle: % CPU"
SLACK = {IDLE: 0.1}
"""What a row may be dearer by whatever its share is: an idle broker wakes up once more or less."""
REFERENCE = "a fixed piece of work: s"

Works = dict[str, tuple[float, Callable[[], object]]]
"""By name: how many units, and what does them."""


def machine_kind() -> str:
    found = Path("/proc/cpuinfo")
    lines = found.read_text().splitlines() if found.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    python = ".".join(platform.python_version_tuple()[:2])
    return f"{model or platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {python}"


def baseline_file(kind: str, directory: Path = BASELINES) -> Path:
    return directory / f"{re.sub(r'[^a-z0-9.]+', '-', kind.lower()).strip('-')}.json"


def cpu_s(pid: int) -> float:
    """Of all threads; a thread that ends takes its time with it, so none may come and go while this is measured."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def reference_s() -> float:
    """CPU of a fixed piece of work in this process: system calls, memory and Python, about a tenth of a second."""
    here, there = socket.socketpair()
    source, target = bytearray(1 << 20), bytearray(1 << 20)
    began = time.process_time()
    for _ in range(10_000):
        here.send(b"x" * 200)
        there.recv(4096)
    for _ in range(100):
        target[:] = source
    spent = time.process_time() - began
    here.close()
    there.close()
    return spent


@contextmanager
def works(broker: BrokerProcess) -> Iterator[Works]:
    """Everything that is measured, warm."""
    produce(broker.bootstrap, "small", 1, 100)
    produce(broker.bootstrap, "bulk", MESSAGES, 1000)
    consume(broker.bootstrap, "bulk", 1)  # the first group of all makes the offsets topic, once and for all
    gigabytes = MESSAGES * 1000 / 1e9
    found: Works = {}
    pipelines = []
    for name, frame in {
        "produce of one record, acks=1: µs": produce_frame("small", 1),
        "produce of one record, acks=all: µs": produce_frame("small", -1),
        "fetch of one record: µs": fetch_frame("small", 0, 1),
    }.items():
        pipeline = Pipeline(broker.kafka_port, frame)
        pipeline.run(2_000, IN_FLIGHT)
        pipelines.append(pipeline)
        found[name] = REQUESTS / 1e6, lambda pipeline=pipeline: pipeline.run(REQUESTS, IN_FLIGHT)  # type: ignore[misc]
    found["produce 1 KB in batches, acks=1: s/GB"] = (
        gigabytes,
        lambda: produce(broker.bootstrap, "bulk", MESSAGES, 1000),
    )
    found["consume 1 KB: s/GB"] = gigabytes, lambda: consume(broker.bootstrap, "bulk", MESSAGES)
    try:
        yield found
    finally:
        for pipeline in pipelines:
            pipeline.close()


def measure(broker: BrokerProcess, rounds: int) -> dict[str, list[float]]:
    """All rows in turns, so many times, in order of cost: what disturbs one moment does not take all of one row."""
    pid = broker.pid
    time.sleep(2)  # the start is over
    began = cpu_s(pid)
    time.sleep(IDLE_S)
    rows: dict[str, list[float]] = {IDLE: [(cpu_s(pid) - began) / IDLE_S * 100]}
    with works(broker) as todo:
        for _ in range(rounds):
            rows.setdefault(REFERENCE, []).append(reference_s())
            for name, (units, work) in todo.items():
                before = cpu_s(pid)
                work()
                rows.setdefault(name, []).append((cpu_s(pid) - before) / units)
    return {name: sorted(values) for name, values in rows.items()}


def dearer(now: dict[str, list[float]], before: dict[str, Any], allowed: float) -> dict[str, float]:
    """Rows that cost more than they may, and their ratio; by their least, and beyond what the fixed work has become."""
    then = before["rows"]
    machine = max(1.0, now[REFERENCE][0] / then[REFERENCE][0]) if REFERENCE in then else 1.0
    found = {}
    for name, values in now.items():
        if name == REFERENCE or not then.get(name):
            continue
        limit = then[name][0] * machine * (1 + allowed / 100) + SLACK.get(name, 0.0)
        if values[0] > limit:
            found[name] = values[0] / (then[name][0] * machine) if then[name][0] else float("inf")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--record", action="store_true", help="write down what is found as the baseline of this machine"
    )
    parser.add_argument("--rounds", "--repeat", type=int, default=5)
    parser.add_argument("--allowed", type=float, default=15, help="percent")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with BrokerProcess(environment=COMPILED) as broker:
        found = measure(broker, options.rounds)
    kind = f"{machine_kind()}, {how_it_runs()}"
    file = baseline_file(kind)
    before = json.loads(file.read_text()) if file.exists() else None
    too_dear = dearer(found, before, options.allowed) if before else {}
    show(kind, load, found, before, too_dear)
    if options.record:
        revision = subprocess.run(["git", "describe", "--always"], capture_output=True, text=True, check=False).stdout.strip()  # fmt: skip
        record(file, kind, load, revision, found)
        return
    if before is None:
        print("there is no baseline of this kind of machine; write one with --record on a quiet one")
    sys.exit(bool(too_dear))


def show(kind: str, load: float, found: dict[str, list[float]], before: dict[str, Any] | None, too_dear: dict[str, float]) -> None:  # fmt: skip
    print(f"{kind}; load {load:.1f}" + (f"; baseline of {before['revision']} at load {before['load']}" if before else ""))  # fmt: skip
    for name, values in found.items():
        then = before["rows"].get(name) if before else None
        beside = f"{then[0]:10.3f}  {values[0] / then[0]:6.2f}" if then and then[0] else f"{'–':>10}"
        print(f"{name:42} {values[0]:10.3f} {beside}  {'DEARER' if name in too_dear else ''}")


def record(file: Path, kind: str, load: float, revision: str, found: dict[str, list[float]]) -> None:
    file.parent.mkdir(exist_ok=True)
    told = {
        "machine": kind,
        "date": datetime.now(UTC).date().isoformat(),
        "revision": revision,
        "load": round(load, 1),
        "rows": {name: [round(value, 4) for value in values] for name, values in found.items()},
    }
    file.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    print(f"written to {file}")


if __name__ == "__main__":
    main()
