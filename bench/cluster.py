"""What replication costs: three replicas beside one, and how long a partition can't be written when its leader dies.

    .venv/bin/python bench/cluster.py [--mb 200] [--kills 20] [--plot bench/failover.svg] [--json]

Three brokers on one host share its cores, so rates say little; CPU seconds per GB are the brokers' own and hold anywhere.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "torture"))
sys.path.insert(0, str(Path(__file__).parent))
from load import Used, produce
from real_cluster import RealCluster

MESSAGE_BYTES = 1000
PARTITIONS = 6


def replicated(directory: Path, replicas: int, megabytes: int) -> dict[str, float]:
    """Throughput with acks=all, and the CPU of all brokers together."""
    from confluent_kafka.admin import AdminClient, NewTopic

    count = megabytes * 1_000_000 // MESSAGE_BYTES
    with RealCluster(directory) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic("bench", PARTITIONS, replicas, config={"min.insync.replicas": str(min(2, replicas))})
        admin.create_topics([topic])["bench"].result(30)
        settings = {"acks": "all", "enable.idempotence": True}
        produce(cluster.bootstrap, "bench", count // 10, MESSAGE_BYTES, **settings)
        before = {broker.pid: Used.by(broker.pid).cpu_s for broker in cluster.brokers.values()}
        started = time.perf_counter()
        _, size = produce(cluster.bootstrap, "bench", count, MESSAGE_BYTES, **settings)
        wall_s = time.perf_counter() - started
        time.sleep(1)
        cpu_s = sum(Used.by(pid).cpu_s - used for pid, used in before.items())
    return {
        f"RF {replicas}, acks=all: MB/s": size / wall_s / 1e6,
        f"RF {replicas}, acks=all: CPU-s/GB of all brokers": cpu_s / (size / 1e9),
    }


def failover(directory: Path, kills: int) -> dict[str, Any]:
    from torture import leader_kills

    return leader_kills(directory, kills)


def plot(gaps: list[float], file: Path) -> None:
    """Each dot is one partition whose leader was killed: how long nothing was acknowledged, shortest first."""
    width, height, left, top, bottom = 720, 320, 60, 30, 50
    ordered = sorted(gaps)
    highest = max([1.6, *ordered]) * 1.05

    def x(index: float) -> float:
        return left + (width - left - 20) * index / max(1, len(ordered) - 1)

    def y(seconds: float) -> float:
        return height - bottom - (height - bottom - top) * seconds / highest

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="18" font-size="14">Write gap after kill -9 of a leader (acks=all, 3 replicas), {len(ordered)} partitions</text>',
    ]
    for tick in range(int(highest / 0.25) + 1):
        seconds = tick * 0.25
        parts.append(
            f'<line x1="{left}" x2="{width - 20}" y1="{y(seconds):.1f}" y2="{y(seconds):.1f}" stroke="#ddd"/>'
        )
        parts.append(
            f'<text x="{left - 8}" y="{y(seconds) + 4:.1f}" text-anchor="end">{seconds:.2f} s</text>'
        )
    for share, limit in ((0.5, 0.5), (0.99, 1.5)):
        at = x(share * (len(ordered) - 1))
        parts.append(
            f'<line x1="{left}" x2="{width - 20}" y1="{y(limit):.1f}" y2="{y(limit):.1f}" stroke="#c33" stroke-dasharray="5 4"/>'
            f'<text x="{width - 24}" y="{y(limit) - 4:.1f}" text-anchor="end" fill="#c33">promised for {share:.0%}</text>'
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{height - bottom}" stroke="#999" stroke-dasharray="2 3"/>'
            f'<text x="{at:.1f}" y="{height - bottom + 16}" text-anchor="{"middle" if share < 0.9 else "end"}">p{share * 100:.0f}</text>'
        )
    parts += [
        f'<circle cx="{x(index):.1f}" cy="{y(gap):.1f}" r="3" fill="#1f6fb2"/>'
        for index, gap in enumerate(ordered)
    ]
    parts += [
        f'<text x="{(left + width) / 2}" y="{height - 12}" text-anchor="middle">partitions, shortest gap first</text>',
        "</svg>",
    ]
    file.write_text("\n".join(parts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--plot", type=Path, default=Path(__file__).parent / "failover.svg")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as scratch:
        for replicas in (1, 3):
            results |= replicated(Path(scratch) / f"rf{replicas}", replicas, options.mb)
        if options.kills:
            found = failover(Path(scratch) / "failover", options.kills)
            plot(found.pop("gaps_s"), options.plot)
            results |= {f"failover: {name}": value for name, value in found.items()}
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        for name, value in results.items():
            print(f"{name:50} {value:.2f}" if isinstance(value, float) else f"{name:50} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
