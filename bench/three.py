"""Three brokers of one tree with a coordinator of their own, and the work that turns.py gives to two such clusters.

All of it on one host, so rates say little; CPU is that of the three brokers together, and of the leader and its followers apart
where one partition is written.

    .venv/bin/python bench/three.py bulk|paced|crowd|alone|idle --spy PATH-OF-py-spy [--seconds 10]    # profiles of all three
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "torture"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))
import confluent_kafka.admin as admin
from guard import cpu_s
from load import Crowd, percentile, produce, produce_frame
from peers.rows_bulk import paced
from real_cluster import RealCluster

Work = Callable[[], tuple[int, int]]


class Three:
    """A cluster as one side of a turn."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        quiet = {"HEADRACE_LOG_LEVEL": "warning", "HEADRACE_DEFAULT_REPLICATION_FACTOR": "1"}
        self._cluster = RealCluster(directory, settings={**quiet, **environment})

    def __enter__(self) -> Three:
        self._cluster.start()
        self._client = admin.AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.stop()

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self._cluster.brokers.values()]

    def create(self, name: str, partitions: int) -> None:
        topic = admin.NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"})
        self._client.create_topics([topic])[name].result(60)
        produce(self.bootstrap, name, partitions * 20, 100, acks="all")

    def leader_port(self, topic: str) -> int:
        found = self._client.list_topics(topic, timeout=30).topics[topic]
        return self._cluster.brokers[found.partitions[0].leader].kafka_port


def bulk(three: Three, megabytes: int) -> Work:
    count = megabytes * 1000
    three.create("bulk", 6)

    def work() -> tuple[int, int]:
        done = produce(three.bootstrap, "bulk", count, 1000, acks="all", **{"enable.idempotence": True})
        time.sleep(0.5)  # the third replica takes what the ack did not wait for
        return done

    return work


def crowd(three: Three, connections: int, count: int) -> Work:
    topic = f"crowd-{connections}"
    three.create(topic, 1)
    found = Crowd.of(three.leader_port(topic), produce_frame(topic, -1), connections)
    return lambda: found.run(count)


class Paced:
    """A thousand messages a second, one at a time, from the call of produce to the hand of a consumer."""

    def __init__(self, three: Three, count: int) -> None:
        self._three, self._count = three, count
        self._seen: list[tuple[float, float]] = []
        three.create("paced", 1)
        paced(three.bootstrap, 100)

    def __call__(self) -> tuple[int, int]:
        late = paced(self._three.bootstrap, self._count)
        self._seen.append((percentile(late, 50) * 1e3, percentile(late, 99) * 1e3))
        return self._count, 0

    def __str__(self) -> str:
        middles, ends = zip(*self._seen, strict=True)
        return f"p50 {min(middles):.1f} / {statistics.median(middles):.1f}, p99 {min(ends):.1f} / {statistics.median(ends):.1f} ms"


def idle(seconds: float) -> tuple[int, int]:
    began = time.perf_counter()
    time.sleep(seconds)
    return round((time.perf_counter() - began) * 1e6), 0


def profile(pids: list[int], work: Work, spy: str, seconds: int, native: bool) -> list[Counter[str]]:
    """py-spy on each broker while the work is done again and again; stacks and how often they were seen, CPU time only."""
    with tempfile.TemporaryDirectory(prefix="spy-") as scratch:
        files = [Path(scratch) / f"{pid}.txt" for pid in pids]
        command = [spy, "record", "--rate", "200", "--duration", str(seconds), "--format", "raw", *(["--native"] if native else [])]  # fmt: skip
        spies = [
            subprocess.Popen([*command, "--pid", str(pid), "--output", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for pid, file in zip(pids, files, strict=True)
        ]  # fmt: skip
        while any(each.poll() is None for each in spies):
            work()
        return [_stacks(file.read_text()) for file in files]


def _stacks(text: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if (
            "Threads._work" not in stack.rpartition(";")[2]
        ):  # py-spy takes a thread that waits for a queue for one at work
            found[stack] += int(count)
    return found


_ROOTS = re.compile(r"click/core|headrace/cli|threading\.py|runpy|__main__|asyncio/runners")
"""Below these is everything."""


def show(stacks: Counter[str], most: int) -> None:
    """Functions by what they and those below them took, and by themselves."""
    total = sum(stacks.values())
    below: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for stack, count in stacks.items():
        frames = [re.sub(r":\d+\)$", ")", frame) for frame in stack.split(";")]
        for frame in set(frames):
            below[frame] += count
        alone[frames[-1]] += count
    for name, counted in (("with what is below", below), ("alone", alone)):
        print(f"  {name}")
        for frame, count in [each for each in counted.most_common(most + 30) if not _ROOTS.search(each[0])][:most]:  # fmt: skip
            print(f"    {count / total:6.1%}  {frame}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", choices=["idle", "bulk", "paced", "crowd", "alone"])
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--spy", default="py-spy", help="where py-spy is")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--most", type=int, default=40)
    options = parser.parse_args()
    environment = {"PYTHONPATH": str(options.tree.resolve() / "src")}
    with tempfile.TemporaryDirectory(prefix="three-") as scratch, Three(Path(scratch), environment) as three:
        work: Work = {
            "idle": lambda: lambda: idle(1.0),
            "bulk": lambda: bulk(three, 60),
            "paced": lambda: Paced(three, 2_000),
            "crowd": lambda: crowd(three, 64, 6_000),
            "alone": lambda: crowd(three, 1, 500),
        }[options.work]()
        before = [cpu_s(pid) for pid in three.pids]
        count, size = work()
        spent = [cpu_s(pid) - then for pid, then in zip(three.pids, before, strict=True)]
        print(f"without the profiler: {count} of {size} bytes, CPU s of each broker: {', '.join(f'{each:.3f}' for each in spent)}")  # fmt: skip
        for number, stacks in enumerate(profile(three.pids, work, options.spy, options.seconds, options.native), 1):  # fmt: skip
            print(f"broker {number}")
            show(stacks, options.most)


if __name__ == "__main__":
    main()
