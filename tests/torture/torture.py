"""The torture runs: leader kills under load, drawn faults for minutes, rolling restart, the coordinator away.

python tests/torture/torture.py --minutes 10 [--faults 50] [--seed 1] [--loopback] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from books import Bulk, Witness, audit, gaps
from faults import CONFIGS, FADING, Tormentor
from pipeline import Pipeline
from progress import Client, scene, stuck_after
from real_cluster import Namespaces, RealCluster
from real_disk import RealDisk
from reborn import Reborn

from headrace.testing.checker import check

TOPIC = "torture"
WITNESSED = "witnessed"
ORDERS, SHIPPED = "orders", "shipped"
FADING_TOPIC = "fading"
STUCK_S = 60.0
"""So long after the last fault every client must have got on."""
SETTINGS = {
    # A topic that is gone must stay gone until its manager creates it.
    "HEADRACE_AUTO_CREATE_TOPICS": "false",
    "HEADRACE_RETENTION_CHECK_INTERVAL_MS": "2000",
}
SIGNS = {"disk full": "until there is more", "fsync failure": "fsync failed"}
"""What a broker whose disk has that trouble says of it."""
ONCE = ("config changed", "kill any", "etcd away beyond the lease", "start without etcd", "rolling stop")
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
    faults: int = 0,
) -> dict[str, Any]:
    with _tormented(directory, namespaces=namespaces, disks=disks) as cluster:
        return _Torment(cluster, seed, per_second).run(minutes, faults)


def everything_at_once(directory: Path, kinds: Sequence[str], stuck_s: float) -> dict[str, Any]:
    """The same load and the same books in short: a few faults of our choice."""
    with _tormented(directory) as cluster:
        return _Torment(cluster, 1, 300).go_through(kinds, stuck_s)


@contextlib.contextmanager
def _tormented(directory: Path, **options: Any) -> Iterator[RealCluster]:
    with RealCluster(directory, settings=SETTINGS, **options) as cluster:
        try:
            yield cluster
        except BaseException:
            print(scene(cluster))
            raise


class _Torment:
    """Every kind of load at once, drawn faults for minutes, and then everybody must get on and the books must agree."""

    def __init__(self, cluster: RealCluster, seed: int, per_second: int) -> None:
        changing = {TOPIC: CONFIGS, ORDERS: CONFIGS, SHIPPED: CONFIGS, FADING_TOPIC: FADING}
        self._cluster = cluster
        self._dice = random.Random(seed)
        self._tormentor = Tormentor(cluster, TOPIC, seed, changing)
        self._topics = {TOPIC: 6, WITNESSED: 2, ORDERS: 3, SHIPPED: 3, FADING_TOPIC: 2}
        for topic, partitions in self._topics.items():
            Tormentor(cluster, topic, seed).create_topic(partitions)
        where = cluster.bootstrap
        self._bulk = Bulk(where, TOPIC, self._topics[TOPIC], per_second)
        self._fading = Bulk(where, FADING_TOPIC, self._topics[FADING_TOPIC], per_second // 10, size=1000)
        self._witness = Witness(where, WITNESSED, self._topics[WITNESSED])
        self._pipeline = Pipeline(
            where,
            ORDERS,
            SHIPPED,
            self._topics[ORDERS],
            workers=3,
            per_second=max(100, per_second // 10),
            seed=seed,
        )
        self._reborn = Reborn(where, "reborn", 3, seed=seed)
        self._clients: list[Client] = [
            self._bulk, self._fading, self._witness, self._pipeline, self._reborn
        ]  # fmt: skip

    def run(self, minutes: float, faults: int) -> dict[str, Any]:
        """Drawn faults for so many minutes, and then until there were so many of them."""
        self._start()
        began = time.monotonic()
        until = began + minutes * 60
        while (left := until - time.monotonic()) > 0 or sum(self._tormentor.done.values()) < faults:
            # A quarter of the time nothing happens, so that the cluster can recover.
            time.sleep(self._dice.uniform(0.1, 2) if self._dice.random() < 0.75 else 5)
            at = time.strftime("%H:%M:%S")
            kind = self._tormentor.once()
            print(f"{left:6.0f} s left, {at}: {kind}; {len(self._bulk.books.acked)} acked", flush=True)
        return {"minutes": round((time.monotonic() - began) / 60, 1), **self._finish(STUCK_S)}

    def go_through(self, kinds: Sequence[str], stuck_s: float) -> dict[str, Any]:
        """These faults, one after the other, each when everybody has got on since the last."""
        self._start()
        for kind in kinds:
            stuck = stuck_after(self._clients, stuck_s)
            assert not stuck, f"before {kind}: {stuck}\n{self._pipeline.last_words()}"
            self._tormentor.once(kind)
        return self._finish(stuck_s)

    def _start(self) -> None:
        for client in self._clients:
            client.start()

    def _finish(self, stuck_s: float) -> dict[str, Any]:
        stuck = stuck_after(self._clients, stuck_s)
        if stuck:
            print(
                f"stuck {stuck_s} s after the last fault: {stuck}\n{self._pipeline.last_words()}\n--- reborn reader\n"
                f"{self._reborn.last_words()}\n{scene(self._cluster)}",
                flush=True,
            )
        self._reborn.settle()
        if stuck:
            print(
                f"still stuck when nothing is deleted any more: {stuck_after(self._clients, stuck_s)}",
                flush=True,
            )
        for topic in self._topics:
            Tormentor(self._cluster, topic, 1).wait_whole(120)
        return self._result(stuck)

    def _result(self, stuck: list[str]) -> dict[str, Any]:
        where, tormentor = self._cluster.bootstrap, self._tormentor
        history, rebirths, once = self._witness.stop(), self._reborn.stop(), self._pipeline.stop()
        books, fading = self._bulk.stop(), self._fading.stop()
        tormentor.set_config(FADING_TOPIC, "retention.bytes", "-1")
        audits = {
            TOPIC: audit(where, TOPIC, self._topics[TOPIC], books),
            ORDERS: audit(where, ORDERS, self._topics[ORDERS], self._pipeline.feed.books),
            FADING_TOPIC: audit(where, FADING_TOPIC, self._topics[FADING_TOPIC], fading, may_fade=True),
        }
        checked = check(history.operations)
        return {
            "faults": sum(tormentor.done.values()),
            "kinds": dict(tormentor.done),
            "stuck": stuck,
            "acked": audits[TOPIC].acked,
            "audits": {topic: dataclasses.asdict(row) for topic, row in audits.items()},
            "failures": len(books.failures) + len(fading.failures) + len(self._pipeline.feed.books.failures),
            "first_failures": books.failures[:3],
            "exactly_once": dataclasses.asdict(once),
            "rebirths": dict(vars(rebirths)),  # asdict takes a Counter's pairs for its keys
            "history": checked.describe(),
            "operations": len(history.operations),
            "clean": not stuck and checked.is_valid and once.is_clean and rebirths.is_clean
            and all(row.is_clean for row in audits.values()),
        }  # fmt: skip


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
    parser.add_argument("--faults", type=int, default=0, help="Go on until there were so many.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=2500)
    parser.add_argument("--loopback", action="store_true", help="No network namespaces, so no cut links.")
    parser.add_argument("--only", choices=("kills", "faults", "once", "rolling", "outage", "disks"))
    parser.add_argument(
        "--no-disks", action="store_true", help="No file systems of our own, so no failing disks."
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--outage-s", type=float, default=120)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    has_disks = not options.no_disks and RealDisk.are_possible()
    home = Path(tempfile.mkdtemp(prefix="torture-"))
    try:
        if options.only in (None, "kills"):
            results["kills"] = _show("kills", leader_kills(home / "kills", options.kills))
        if options.only in (None, "rolling"):
            results["rolling"] = _show("rolling restart", rolling_restart(home / "rolling"))
        if options.only in (None, "outage"):
            results["outage"] = _show("coordinator away", coordinator_away(home / "outage", options.outage_s))
        if options.only in (None, "disks") and has_disks:
            results["disks"] = _show("failing disks", failing_disks(home / "disks", DISK_FAULTS))
        if options.only == "once":
            once = everything_at_once(home / "once", ONCE, stuck_s=300.0)
            results["faults"] = _show("each fault once", once)
        if options.only in (None, "faults"):
            results["faults"] = _show("faults", _in_namespaces(home / "faults", options, has_disks))
    except BaseException:
        print(f"what is left of it: {home}", flush=True)
        raise
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))
    if not results.get("faults", {}).get("clean", True):
        print(f"what is left of it: {home}", flush=True)
        return 1
    shutil.rmtree(home, ignore_errors=True)
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
            faults=options.faults,
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
