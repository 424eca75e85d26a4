"""What Spark on Headrace moves: source, Parquet, archive, sink, mirror, micro-batches, beside Spark's own Parquet reader.

    .venv/bin/python bench/spark_source.py [--millions 4] [--json results.json] [--only source,archive,…] [--sizes 100,1000] [--scratch /dev/shm]

One run, one machine: broker, JVM and Python workers share its cores. Each figure is the best of three after a warm-up
(the median for latencies). Rows are 8-byte keys with 100 B or 1 KB values (half as many of these), in 4 partitions. CPU is that of
everything together, broker and JVM too, so it holds on a busy machine; rates do not. "2 cores" is what that CPU allows when two
cores are free. A Spark query costs a fifth of a second whatever it reads (the row "a query over nothing"): it is in every figure. Archives, sinks and mirrors sync what they write, so
no figure of theirs can pass what the disk alone does ("the disk"); `--scratch` puts their targets elsewhere, as on tmpfs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka.admin import AdminClient

from headrace.core.ids import TopicPartition
from headrace.spark import register
from headrace.spark.columns.encode import BytesColumn, ProducerStamp, encode_batches
from headrace.spark.columns.ragged import Ragged
from headrace.spark.connection import ClusterAccess
from headrace.spark.pipelines.definition import parse
from headrace.spark.pipelines.run import run
from headrace.spark.producer import idempotent_producer
from headrace.spark.session import local_session
from headrace.spark.sync_client import SyncClient
from headrace.testing.broker_process import BrokerProcess

sys.path.insert(0, str(Path(__file__).parent))
import spark_latency

PARTITIONS = 4
GOALS = {
    ("source", 100): "2 M/s",
    ("source", 1000): "700 MB/s",
    ("archive", 100): "2 M/s",
    ("archive", 1000): "600 MB/s",
    ("mirror", 1000): "500 MB/s",
    ("topic sink", 100): "0.8 M/s",
    ("micro-batch p50", 100): "100 ms",
}


def fill(client: SyncClient, topic: str, records: int, size: int) -> None:
    """With the sink's own encoder: a few hundred thousand records at a time."""
    client.create_topic(topic, PARTITIONS, {"segment.bytes": str(64 << 20)})
    producer = idempotent_producer(client)
    chunk = max(1, (16 << 20) // size)
    rng = np.random.default_rng(7)
    value = rng.integers(32, 127, chunk * size, dtype=np.uint8)
    now = int(time.time() * 1000)
    done = 0
    while done < records:
        count = min(chunk, records - done)
        keys = np.frombuffer(np.arange(done, done + count, dtype=">i8").tobytes(), dtype=np.uint8)
        tp = TopicPartition(topic, (done // chunk) % PARTITIONS)
        stamp = ProducerStamp(*producer.identity, producer.next_sequence(tp, count))
        for batch in encode_batches(
            BytesColumn(Ragged(keys, np.arange(count + 1) * 8)),
            BytesColumn(Ragged(value, np.arange(count + 1) * size)),
            np.full(count, now),
            max_batch_bytes=1 << 20,
            producer=stamp,
        ):
            producer.send(tp, batch)
        done += count
    producer.flush()


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    started, cpu = time.perf_counter(), used_cpu()
    work()
    return time.perf_counter() - started, used_cpu() - cpu


def used_cpu() -> float:
    """CPU seconds of this process and everything below it, those that have ended included."""
    rows: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            rows[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"))
    total, wanted = 0.0, {os.getpid()}
    while wanted:
        total += sum(rows[pid][1] for pid in wanted if pid in rows)
        wanted = {pid for pid, (parent, _) in rows.items() if parent in wanted}
    return total


class Bench:
    def __init__(self, millions: float, only: set[str], scratch: str | None) -> None:
        self.records = {100: int(millions * 1e6), 1000: int(millions * 1e6 / 2)}
        self.only = only
        self.work = Path(tempfile.mkdtemp(prefix="headrace-spark-bench-", dir=scratch))
        self.results: list[dict[str, Any]] = []
        self.turn = 0

    def note(self, what: str, size: int, runs: list[tuple[float, float]]) -> None:
        """`runs`: seconds and CPU seconds of each."""
        count = self.records[size]
        # The median: a worker that ends takes its CPU along, and then a run seems to have used too little.
        seconds, cpu = min(run[0] for run in runs), statistics.median(run[1] for run in runs)
        row = {
            "what": what,
            "value_bytes": size,
            "records_per_s": round(count / seconds),
            "mb_per_s": round(count * (size + 8) / seconds / 1e6, 1),
            "seconds": round(seconds, 3),
            "cpu_us_per_record": round(cpu / count * 1e6, 3),
            "two_core_records_per_s": round(2 * count / cpu),
        }
        self.results.append(row)
        goal = GOALS.get((what, size), "")
        print(
            f"{what:32} {size:5} B {row['records_per_s'] / 1e6:6.2f} M/s {row['mb_per_s']:7.1f} MB/s  "
            f"{row['cpu_us_per_record']:6.2f} us CPU, 2 cores: {2 * count / cpu / 1e6:5.2f} M/s "
            f"{2 * count * (size + 8) / cpu / 1e6:6.0f} MB/s   {goal}",
            flush=True,
        )

    def best(self, what: str, size: int, work: Callable[[], Any], rounds: int = 3) -> None:
        if self.only and not any(what.startswith(name) for name in self.only):
            return
        for _ in range(3):  # The JVM compiles what it has seen often enough.
            work()
        self.note(what, size, [timed(work) for _ in range(rounds)])

    def once_each(
        self,
        what: str,
        size: int,
        work: Callable[[int], Any],
        rounds: int = 3,
        clear: Callable[[int], Any] = lambda turn: None,
    ) -> None:
        """For work that leaves something behind, so that each time is a new one; `clear` takes it away."""
        if self.only and not any(what.startswith(name) for name in self.only):
            return
        runs = []
        for _ in range(rounds + 1):
            self.turn += 1
            runs.append(timed(lambda: work(self.turn)))
            clear(self.turn)
        self.note(what, size, runs[1:])

    def read(self, spark: Any, bootstrap: str, topic: str, **options: str) -> Any:
        reader = spark.read.format("headrace").option("bootstrap", bootstrap).option("subscribe", topic)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader

    def size(self, spark: Any, broker: BrokerProcess, client: SyncClient, size: int) -> None:
        topic = f"bench-{size}"
        fill(client, topic, self.records[size], size)
        boot = broker.bootstrap

        def noop(frame: Any) -> None:
            frame.write.format("noop").mode("overwrite").save()

        self.best("source", size, lambda: noop(self.read(spark, boot, topic).load()))
        self.best(
            "source, directRead", size, lambda: noop(self.read(spark, boot, topic, directRead="true").load())
        )
        pruned = "key binary, value binary"
        self.best(
            "source, key+value", size, lambda: noop(self.read(spark, boot, topic).schema(pruned).load())
        )
        self.best(
            "source, key+value, directRead", size,
            lambda: noop(self.read(spark, boot, topic, directRead="true").schema(pruned).load()),
        )  # fmt: skip
        self.best("source, raw rows", size, lambda: noop(self.read(spark, boot, topic, raw="true").load()))

        def to_parquet(turn: int) -> None:
            frame = self.read(spark, boot, topic).load()
            frame.write.option("compression", "snappy").parquet(str(self.work / f"spark-{size}-{turn}"))

        self.once_each("source -> Spark's Parquet", size, to_parquet, rounds=2)
        for name, extra in (("archive", "direct_read=false"), ("archive, directRead", "direct_read=true")):
            self.once_each(
                name, size, lambda turn, extra=extra: self.archive(spark, boot, topic, turn, extra),
                clear=lambda turn: shutil.rmtree(self.work / f"archive-{turn}"),
            )  # fmt: skip
        native = str(self.work / f"native-{size}")
        self.read(spark, boot, topic).load().write.parquet(native)
        self.best("Spark's own Parquet -> noop", size, lambda: noop(spark.read.parquet(native)))
        # Else the copies push the source out of the page cache.
        admin = AdminClient({"bootstrap.servers": boot})
        for name, delivery in (("topic sink", "at-least-once"), ("topic sink, exactly-once", "exactly-once")):
            self.once_each(
                name, size,
                lambda turn, delivery=delivery: self.sink(spark, client, boot, topic, turn, delivery), rounds=2,
                clear=lambda turn: admin.delete_topics([f"{topic}-sink-{turn}"])[f"{topic}-sink-{turn}"].result(),
            )  # fmt: skip

    def disk(self) -> None:
        """A gigabyte written and synced in one go, three times: what no archive can pass here."""
        piece, target = os.urandom(32 << 20), self.work / "disk"
        speeds = []
        for _ in range(3):
            started = time.perf_counter()
            with target.open("wb") as file:
                for _ in range(32):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            speeds.append((32 * len(piece)) / (time.perf_counter() - started) / 1e6)
            target.unlink()
        self.results.append({"what": "the disk", "mb_per_s": [round(speed) for speed in speeds]})
        print("the disk: " + ", ".join(f"{speed:.0f}" for speed in speeds) + " MB/s with fsync", flush=True)

    def nothing(self, spark: Any, client: SyncClient, boot: str) -> None:
        """What a query costs before its first row."""
        client.create_topic("bench-nothing", PARTITIONS)
        frame = self.read(spark, boot, "bench-nothing")
        runs = [timed(lambda: frame.load().write.format("noop").mode("overwrite").save()) for _ in range(15)]
        row = {
            "what": "a query over nothing",
            "p50_ms": round(statistics.median(run[0] for run in runs[5:]) * 1000),
            "cpu_ms": round(statistics.median(run[1] for run in runs[5:]) * 1000),
        }
        self.results.append(row)
        print(f"a query over nothing: {row['p50_ms']} ms, {row['cpu_ms']} ms CPU", flush=True)

    def archive(self, spark: Any, boot: str, topic: str, turn: int, extra: str) -> None:
        path = self.work / f"archive-{turn}"
        text = f'kind="archive"\nname="bench-{turn}"\ntopics=["{topic}"]\npath="{path}"\nbootstrap="{boot}"\n'
        definition = parse(text + f'compression="snappy"\nheaders=false\ncompact_files=1000\n{extra}')
        run(definition, once=True, spark=spark)

    def sink(self, spark: Any, client: SyncClient, boot: str, topic: str, turn: int, delivery: str) -> None:
        target = f"{topic}-sink-{turn}"
        client.create_topic(target, PARTITIONS)
        frame = self.read(spark, boot, topic).schema("key binary, value binary").load()
        writer = frame.write.format("headrace").mode("append").option("bootstrap", boot)
        writer.option("topic", target).option("delivery", delivery).save()

    def mirror(self, spark: Any, boot: str, size: int) -> None:
        def copy(turn: int) -> None:
            with BrokerProcess(self.work / f"mirror-{turn}") as other:
                text = f'kind="mirror"\nname="bench-{turn}"\ntopics=["bench-{size}"]\n'
                definition = parse(text + f'bootstrap="{boot}"\ntarget_bootstrap="{other.bootstrap}"')
                runs.append(timed(lambda: run(definition, once=True, spark=spark)))

        if self.only and "mirror" not in self.only:
            return
        runs: list[tuple[float, float]] = []
        for _ in range(3):
            self.turn += 1
            copy(self.turn)
        self.note("mirror", size, runs[1:])

    def latency(self) -> None:
        """Micro-batches of a few rows, in sessions of their own: `spark_latency.py` says which."""
        if not self.only or "latency" in self.only:
            self.results += spark_latency.measure(triggers=300)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, default=4.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--sizes", default="100,1000")
    parser.add_argument("--scratch")
    arguments = parser.parse_args()
    only = {name for name in arguments.only.split(",") if name}
    bench = Bench(arguments.millions, only, arguments.scratch)
    bench.disk()
    spark = local_session("headrace bench", master="local[2]", settings={"spark.driver.memory": "3g"})
    register(spark)
    try:
        with (
            BrokerProcess(bench.work / "broker") as broker,
            SyncClient(ClusterAccess(broker.bootstrap)) as client,
        ):
            bench.nothing(spark, client, broker.bootstrap)
            for size in map(int, arguments.sizes.split(",")):
                bench.size(spark, broker, client, size)
                bench.mirror(spark, broker.bootstrap, size)
    finally:
        spark.stop()
        shutil.rmtree(bench.work, ignore_errors=True)
    bench.latency()
    if arguments.json:
        arguments.json.write_text(json.dumps(bench.results, indent=2) + "\n")


if __name__ == "__main__":
    main()
