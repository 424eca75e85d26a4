"""Streaming on real Spark: nothing lost, nothing repeated, and the job is a consumer group (S1, S2)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.core.ids import TopicPartition
from headrace.spark.sync_client import SyncClient
from headrace.testing.broker_process import BrokerProcess


class Job:
    """A query into a memory table or a function, always from the same checkpoint."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, checkpoint: Path, **options: Any) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self.bootstrap = bootstrap
        self.seen: list[int] = []
        self.batches: list[int] = []
        self._reader = spark.readStream.format("headrace").option("bootstrap", bootstrap)
        self._reader = self._reader.option("subscribe", topic)
        for name, value in options.items():
            self._reader = self._reader.option(name, value)

    def start(self, *, now: bool = True, fail: Callable[[int], None] | None = None) -> Any:
        def keep(frame: Any, batch: int) -> None:
            rows = [int(bytes(row.value)) for row in frame.select("value").collect()]
            if fail is not None:
                fail(batch)
            self.seen += rows
            self.batches.append(len(rows))

        writer = self._reader.load().writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (
            writer.trigger(availableNow=True) if now else writer.trigger(processingTime="0 seconds")
        ).start()

    def run(self, **extra: Any) -> None:
        query = self.start(**extra)
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()


@pytest.fixture
def job(spark: Any, broker: BrokerProcess, topic: str, tmp_path: Path) -> Any:
    return lambda **options: Job(spark, broker.bootstrap, topic, tmp_path / "checkpoint", **options)


def _lag(client: SyncClient, group: str, topic: str, ends: Any) -> int:
    done = client.committed_offsets(group)
    return sum(
        end - (done[TopicPartition(topic, number)].offset if TopicPartition(topic, number) in done else 0)
        for number, end in ends(topic).items()
    )


def test_available_now_in_limited_batches_and_no_lag_afterwards(
    job: Any, topic: str, publish: Any, client: SyncClient, ends: Any
) -> None:
    """S2; trap 5: the last batch of availableNow reaches the group too."""
    publish(topic, range(1000))
    group = f"g-{uuid.uuid4().hex[:8]}"
    one = job(groupId=group, maxRecordsPerTrigger=300)
    one.run()
    assert sorted(one.seen) == list(range(1000))
    assert max(one.batches) <= 300 and len(one.batches) >= 4
    assert _lag(client, group, topic, ends) == 0


def test_a_restart_goes_on_where_the_checkpoint_is(job: Any, topic: str, publish: Any) -> None:
    publish(topic, range(100))
    one = job()
    one.run()
    publish(topic, range(100, 250))
    two = job()
    two.run()
    three = job()
    three.run()
    assert (sorted(one.seen), sorted(two.seen), three.seen) == (list(range(100)), list(range(100, 250)), [])


def test_latest_is_resolved_once(job: Any, topic: str, publish: Any, client: SyncClient) -> None:
    """Trap 4: batch 0 fails, and the restart still starts where the first run did."""
    publish(topic, range(50))
    group = f"g-{uuid.uuid4().hex[:8]}"
    one = job(groupId=group, startingOffsets="latest")

    def fail(batch: int) -> None:
        raise RuntimeError("the sink is down")

    query = one.start(now=False, fail=fail)
    try:
        # The pin is the sign that the query has decided where it starts.
        _until(lambda: len(client.committed_offsets(group)) == 4, query)
        publish(topic, range(50, 80))
        with pytest.raises(Exception, match="the sink is down"):
            query.awaitTermination(180)
    finally:
        query.stop()
    publish(topic, range(80, 120))
    two = job(groupId=group, startingOffsets="latest")
    two.run()
    assert sorted(two.seen) == list(range(50, 120))


def test_a_new_checkpoint_with_an_old_group_starts_anew(
    spark: Any, broker: BrokerProcess, topic: str, publish: Any, tmp_path: Path
) -> None:
    publish(topic, range(10))
    options = {"groupId": f"g-{uuid.uuid4().hex[:8]}", "startingOffsets": "earliest"}
    one = Job(spark, broker.bootstrap, topic, tmp_path / "one", **options)
    one.run()
    two = Job(spark, broker.bootstrap, topic, tmp_path / "two", **options)
    two.run()
    assert sorted(one.seen) == sorted(two.seen) == list(range(10))


def test_a_topic_grows_partitions_under_a_running_query(
    job: Any, topic: str, publish: Any, client: SyncClient
) -> None:
    publish(topic, range(100))
    one = job()
    query = one.start(now=False)
    try:
        _until(lambda: len(one.seen) == 100, query)
        client.grow_topic(topic, 7)
        _publish_afresh(one, topic, range(100, 300), 7)
        _until(lambda: len(one.seen) >= 300, query)
    finally:
        query.stop()
    assert sorted(one.seen) == list(range(300))


def test_retention_passes_under_a_query(
    job: Any, topic: str, publish: Any, broker: BrokerProcess, spark: Any, tmp_path: Path
) -> None:
    """Rows that are gone end the query with words, or with failOnDataLoss=false it goes on behind the gap."""
    publish(topic, range(100))
    one = job()
    one.run()
    publish(topic, range(100, 200))
    _delete_records(broker.bootstrap, topic, dict.fromkeys(range(4), 40))
    publish(topic, range(200, 220))
    with pytest.raises(Exception, match="are gone"):
        job().run()
    careless = job(failOnDataLoss="false")
    careless.run()
    # Each partition has 55 records and lost its first 40, of which 25 were read already.
    assert sorted(careless.seen) == list(range(160, 220))


def test_a_task_that_fails_is_tried_again_without_loss(
    spark: Any, broker: BrokerProcess, topic: str, publish: Any, tmp_path: Path
) -> None:
    """A task dies in the middle of its partition (once); Spark tries it again and the rows are all there once."""
    publish(topic, range(2000))
    mark = str(tmp_path / "died")

    def die_once(batches: Any) -> Any:
        import os

        for batch in batches:
            if not os.path.exists(mark):
                open(mark, "w").close()
                raise RuntimeError("this task dies once")
            yield batch

    frame = (
        spark.read.format("headrace")
        .option("bootstrap", broker.bootstrap)
        .option("subscribe", topic)
        .option("maxRecordsPerPartition", 100)
        .load()
        .mapInArrow(die_once, "key binary, value binary, topic string, partition int, offset bigint, "
                              "timestamp timestamp, timestampType int")
    )  # fmt: skip
    rows = frame.collect() if spark.sparkContext.master != "local[2]" else _retried(frame)
    assert sorted(int(bytes(row.value)) for row in rows) == list(range(2000))


def _retried(frame: Any) -> Any:
    """local[n] gives a task one attempt, so the job is tried again as a whole."""
    with pytest.raises(Exception, match="dies once"):
        frame.collect()
    return frame.collect()


def _publish_afresh(job: Job, topic: str, numbers: range, partitions: int) -> None:
    """With a producer that has not heard of the topic before, so that it knows all partitions."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": job.bootstrap})
    for number in numbers:
        producer.produce(topic, str(number).encode(), None, number % partitions)
    assert producer.flush(120) == 0


def _delete_records(bootstrap: str, topic: str, before: dict[int, int]) -> None:
    import confluent_kafka
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [confluent_kafka.TopicPartition(topic, number, offset) for number, offset in before.items()]
    for future in admin.delete_records(wanted).values():
        future.result(20)


def _until(done: Callable[[], bool], query: Any, seconds: float = 240.0) -> None:
    import time

    deadline = time.monotonic() + seconds
    while not done():
        if (problem := query.exception()) is not None:
            raise problem
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)
