"""The torture runs: leader kills under load, drawn faults for minutes, rolling restart, the coordinator away.

python tests/torture/torture.py --minutes 10 [--seed 1] [--loopback] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from books import Bulk, Witness, audit, gaps
from faults import Tormentor
from real_cluster import Namespaces, RealCluster
from real_disk import RealDisk

from headrace.testing.checker import check

TOPIC = "torture"
WITNESSED = "witnessed"
SIGNS = {"disk full": "until there is more", "fsync failure": "fsync failed"}
"""What a broker whose disk has that trouble says of it."""
DISK_FAULTS = ("power loss", "disk full", "fsync failure") * 2


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def leader_kills(
    directory: Path, kills: int, *, partitions: int = 6, per_second: int = 600
) -> dict[str, Any]:
    """Kill -9 the leader of a partition, again and again, and measure how long each partition it led could not write."""
    with RealCluster(directory) as cluster:
        tormentor = Tormentor(cluster, TOPIC, 1)
        tormentor.create_topic(partitions)
        bulk = Bulk(cluster.bootstrap, TOPIC, partitions, per_second).start()
        time.sleep(3)
        silences: list[float] = []
        of_all: list[float] = []
        for number in range(kills):
            tormentor.wait_whole()
            time.sleep(1)
            led = tormentor.leaders()
            victim, at = tormentor.kill_leader(number % partitions)
            time.sleep(3)
            found = gaps(bulk.books.times, at, time.monotonic())
            silences += [gap for partition, gap in found.items() if led.get(partition) == victim.number]
            of_all += found.values()
            print(f"kill {number + 1} of broker {victim.number}: {_rounded(found)}", flush=True)
            victim.start()
        tormentor.wait_whole()
        books = bulk.stop()
        report = audit(cluster.bootstrap, TOPIC, partitions, books)
    return {
        "kills": kills,
        "acked": report.acked,
        "lost": report.lost,
        "duplicated": report.duplicated,
        "moved": report.moved,
        "disordered": report.disordered,
        "failures": books.failures[:3],
        "gap_p50_s": round(percentile(silences, 0.5), 3),
        "gap_p99_s": round(percentile(silences, 0.99), 3),
        "gap_max_s": round(max(of_all, default=0), 3),
        "gaps_s": [round(gap, 4) for gap in silences],
    }


def torment(
    directory: Path,
    minutes: float,
    seed: int,
    *,
    namespaces: Namespaces | None,
    per_second: int = 2500,
    disks: bool = False,
) -> dict[str, Any]:
    partitions = 6
    with RealCluster(directory, namespaces=namespaces, disks=disks) as cluster:
        tormentor = Tormentor(cluster, TOPIC, seed)
        tormentor.create_topic(partitions)
        watched = Tormentor(cluster, WITNESSED, seed)
        watched.create_topic(2)
        bulk = Bulk(cluster.bootstrap, TOPIC, partitions, per_second).start()
        witness = Witness(cluster.bootstrap, WITNESSED, 2).start()
        dice, until = random.Random(seed), time.monotonic() + minutes * 60
        try:
            while time.monotonic() < until:
                # A quarter of the time nothing happens, so that the cluster can recover.
                time.sleep(dice.uniform(0.1, 2) if dice.random() < 0.75 else 5)
                kind = tormentor.once()
                print(
                    f"{until - time.monotonic():6.0f} s left: {kind}; {len(bulk.books.acked)} acked",
                    flush=True,
                )
            tormentor.wait_whole(120)
            watched.wait_whole(120)
            books = bulk.stop()
            history = witness.stop()
            report = audit(cluster.bootstrap, TOPIC, partitions, books)
        except BaseException:
            print(cluster.log())
            raise
    checked = check(history.operations)
    return {
        "minutes": minutes,
        "faults": sum(tormentor.done.values()),
        "kinds": dict(tormentor.done),
        "acked": report.acked,
        "there": report.there,
        "lost": report.lost,
        "duplicated": report.duplicated,
        "moved": report.moved,
        "disordered": report.disordered,
        "failures": len(books.failures),
        "first_failures": books.failures[:3],
        "history": checked.describe(),
        "operations": len(history.operations),
        "clean": report.is_clean and checked.is_valid,
    }


def failing_disks(directory: Path, kinds: Sequence[str], per_second: int = 500) -> dict[str, Any]:
    """Power loss, a full disk and a failed sync, one broker after the other, under load with acks=all."""
    with RealCluster(directory, disks=True) as cluster:
        tormentor = Tormentor(cluster, TOPIC, 1)
        tormentor.create_topic(3)
        bulk = Bulk(cluster.bootstrap, TOPIC, 3, per_second).start()
        time.sleep(2)
        noticed: dict[str, bool] = {}
        try:
            for number, kind in enumerate(kinds):
                tormentor.wait_whole()
                time.sleep(0.5)
                victim = cluster.brokers[number % len(cluster.brokers) + 1]
                tormentor.trouble_disk(kind, victim)
                noticed[kind] = SIGNS.get(kind, "") in victim.log()
                print(f"{kind} of broker {number % len(cluster.brokers) + 1}", flush=True)
            tormentor.wait_whole(90)
        except BaseException:
            print(cluster.log())
            raise
        books = bulk.stop()
        report = audit(cluster.bootstrap, TOPIC, 3, books)
    return {
        "faults": list(kinds), "noticed": noticed, "acked": report.acked, "lost": report.lost, "duplicated": report.duplicated,
        "moved": report.moved, "disordered": report.disordered, "failures": books.failures[:3],
    }  # fmt: skip


def rolling_restart(directory: Path) -> dict[str, Any]:
    """Every broker is stopped and started in turn; a client that retries sees nothing of it."""
    with RealCluster(directory) as cluster:
        tormentor = Tormentor(cluster, TOPIC, 1)
        tormentor.create_topic(3)
        bulk = Bulk(cluster.bootstrap, TOPIC, 3, 500).start()
        time.sleep(2)
        longest = 0.0
        for broker in cluster.brokers.values():
            tormentor.wait_whole()
            at = time.monotonic()
            code = broker.stop()
            assert code == 0, f"broker {broker.number} ended with {code}"
            broker.start()
            tormentor.wait_whole()
            longest = max([longest, *gaps(bulk.books.times, at, time.monotonic()).values()])
        books = bulk.stop()
        report = audit(cluster.bootstrap, TOPIC, 3, books)
    return {
        "acked": report.acked, "lost": report.lost, "duplicated": report.duplicated, "moved": report.moved,
        "failures": books.failures[:3], "longest_gap_s": round(longest, 3),
    }  # fmt: skip


def coordinator_away(directory: Path, seconds: float) -> dict[str, Any]:
    """R36: etcd is gone; acks=all goes on, and afterwards everything is as before."""
    with RealCluster(directory) as cluster:
        tormentor = Tormentor(cluster, TOPIC, 1)
        tormentor.create_topic(3)
        bulk = Bulk(cluster.bootstrap, TOPIC, 3, 500).start()
        time.sleep(2)
        assert cluster.etcd is not None
        at = time.monotonic()
        cluster.etcd.kill()
        time.sleep(seconds)
        during = gaps(bulk.books.times, at, time.monotonic())
        cluster.etcd.start()
        tormentor.wait_whole()
        alive = [broker.number for broker in cluster.brokers.values() if broker._process.poll() is None]  # type: ignore[union-attr]
        time.sleep(8)
        tormentor.wait_whole()
        books = bulk.stop()
        report = audit(cluster.bootstrap, TOPIC, 3, books)
    return {
        "seconds": seconds, "longest_gap_s": round(max(during.values()), 3), "alive": alive, "acked": report.acked,
        "lost": report.lost, "duplicated": report.duplicated, "failures": books.failures[:3],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=2500)
    parser.add_argument("--loopback", action="store_true", help="No network namespaces, so no cut links.")
    parser.add_argument("--only", choices=("kills", "faults", "rolling", "outage", "disks"))
    parser.add_argument(
        "--no-disks", action="store_true", help="No file systems of our own, so no failing disks."
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--outage-s", type=float, default=120)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    has_disks = not options.no_disks and RealDisk.are_possible()
    with tempfile.TemporaryDirectory(prefix="torture-") as scratch:
        home = Path(scratch)
        if options.only in (None, "kills"):
            results["kills"] = _show("kills", leader_kills(home / "kills", options.kills))
        if options.only in (None, "rolling"):
            results["rolling"] = _show("rolling restart", rolling_restart(home / "rolling"))
        if options.only in (None, "outage"):
            results["outage"] = _show("coordinator away", coordinator_away(home / "outage", options.outage_s))
        if options.only in (None, "disks") and has_disks:
            results["disks"] = _show("failing disks", failing_disks(home / "disks", DISK_FAULTS))
        if options.only in (None, "faults"):
            results["faults"] = _show("faults", _in_namespaces(home / "faults", options, has_disks))
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))
    return 0


def _in_namespaces(directory: Path, options: argparse.Namespace, disks: bool) -> dict[str, Any]:
    def run(spaces: Namespaces | None) -> dict[str, Any]:
        return torment(
            directory,
            options.minutes,
            options.seed,
            namespaces=spaces,
            per_second=options.rate,
            disks=disks,
        )

    if options.loopback or not Namespaces.are_possible():
        return run(None)
    spaces = Namespaces(["n1", "n2", "n3"])
    try:
        spaces.build()
        spaces.enter_bridge_namespace()
        return run(spaces)
    finally:
        spaces.remove()


def _rounded(found: dict[int, float]) -> dict[int, float]:
    return {partition: round(gap, 3) for partition, gap in found.items()}


def _show(name: str, result: dict[str, Any]) -> dict[str, Any]:
    print(name, json.dumps({key: value for key, value in result.items() if key != "gaps_s"}), flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
