"""What scripts/spark-versions runs in the venv of each version: python versions_job.py VERSION. Says what worked, and ends with 1 if something did not.

Batch and streams both ways everywhere; limits, losses that are skipped and queues where Spark has them, and one clear sentence where not."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyspark

from headrace.spark import register
from headrace.spark.connection import ClusterAccess
from headrace.spark.session import local_session
from headrace.spark.sync_client import SyncClient
from headrace.testing.broker_process import BrokerProcess


class Job:
    def __init__(self, spark: Any, bootstrap: str, directory: Path) -> None:
        self.spark, self.bootstrap, self.directory = spark, bootstrap, directory

    def read(self, topic: str, **options: str) -> Any:
        reader = (
            self.spark.read.format("headrace").option("bootstrap", self.bootstrap).option("subscribe", topic)
        )
        return reader.options(**options).load()

    def values(self, topic: str) -> Counter[str]:
        return Counter(row.value for row in self.read(topic, valueFormat="string").select("value").collect())

    def stream(self, topic: str, **options: str) -> Any:
        reader = self.spark.readStream.format("headrace").option("bootstrap", self.bootstrap)
        return (
            reader.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()
        )

    def run(self, frame: Any, topic: str, name: str) -> None:
        writer = (
            frame.writeStream.format("headrace").option("bootstrap", self.bootstrap).option("topic", topic)
        )
        writer = writer.option("delivery", "exactly-once").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.directory / name))
        for tries_left in (3, 2, 1, 0):
            try:
                writer.start().awaitTermination()
                return
            except Exception as problem:
                # Spark gives a Python process 10 s to start, which is too little on a busy machine; the query goes on from its checkpoint.
                if "failed to connect back" not in str(problem) or not tries_left:
                    raise

    def batch(self) -> None:
        rows = self.spark.range(300).selectExpr(
            "cast(id as string) key", "cast(id as string) value",
            "array(named_struct('key', 'h', 'value', cast('x' as binary))) headers",
        )  # fmt: skip
        writer = rows.write.format("headrace").option("bootstrap", self.bootstrap).option("topic", "in")
        writer.option("delivery", "exactly-once").mode("append").save()
        assert self.values("in") == Counter(str(number) for number in range(300))
        row = self.read("in", includeHeaders="true").first()
        assert row.headers[0].key == "h" and bytes(row.headers[0].value) == b"x"
        assert (
            self.read("in").where("offset >= 10").count() + self.read("in").where("offset < 10").count()
            == 300
        )
        parsed = self.read("in", valueFormat="json", valueSchema="a int, b array<string>, c struct<d:double>")
        assert parsed.count() == 300

    def streams(self) -> None:
        frame = self.stream("in", includeHeaders="true").select("key", "value", "timestamp", "headers")
        self.run(frame, "out", "plain")
        self.spark.range(300, 350).selectExpr("cast(id as string) value").write.format("headrace").option(
            "bootstrap", self.bootstrap
        ).option("topic", "in").mode("append").save()
        self.run(frame, "out", "plain")
        assert self.values("out") == Counter(str(number) for number in range(350)), (
            "goes on from its checkpoint"
        )
        row = self.read("out", includeHeaders="true").where("key = '1'").first()
        assert bytes(row.headers[0].value) == b"x"

    def limits(self) -> None:
        frame = self.stream("in", maxRecordsPerTrigger="100").select("value")
        try:
            self.run(frame, "few", "few")
        except Exception as problem:
            assert "needs Spark 4.2" in str(problem), str(problem)[:500]
            print("  refused with a clear word: maxRecordsPerTrigger")
            return
        assert sum(self.values("few").values()) == 350

    def push_down(self) -> None:
        try:
            register(self.spark, push_down=True)
        except ValueError as problem:
            assert "needs Spark 4.1" in str(problem)
            print("  refused with a clear word: push_down")
            return
        assert (
            self.read("in").where("offset >= 10").count() + self.read("in").where("offset < 10").count()
            == 350
        )

    def losses(self) -> None:
        """A topic that was made again is not the one of the checkpoint."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics(["in"])["in"].result(60)
        with SyncClient(ClusterAccess(self.bootstrap)) as client:
            while "in" in client.topics():
                pass
            client.create_topic("in", 2)
        try:
            self.run(
                self.stream("in", includeHeaders="true").select("key", "value", "timestamp", "headers"),
                "out",
                "plain",
            )
        except Exception as problem:
            assert "another topic" in str(problem) or "again" in str(problem), str(problem)[:800]
            return
        raise AssertionError("a topic that was made again was read as if it were the old one")


def main() -> int:
    assert pyspark.__version__ == sys.argv[1], pyspark.__version__
    with tempfile.TemporaryDirectory() as directory, BrokerProcess() as broker:
        with SyncClient(ClusterAccess(broker.bootstrap)) as client:
            for topic in ("in", "out", "few"):
                client.create_topic(topic, 2)
        spark = local_session(
            "versions", master="local[2]", settings={"spark.sql.shuffle.partitions": "2"}, quiet=True
        )
        register(spark)
        job = Job(spark, broker.bootstrap, Path(directory))
        for part in (job.batch, job.streams, job.limits, job.push_down, job.losses):
            part()
            print(f"  {part.__name__}: ok", flush=True)
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
