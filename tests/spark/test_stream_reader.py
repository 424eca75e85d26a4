"""The driver's half of a streaming read, asked as Spark asks it, without a JVM."""

from __future__ import annotations

import uuid
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from headrace.core.ids import TopicPartition
from headrace.spark.options import source_options
from headrace.spark.reader import HeadraceReader, ReadTask
from headrace.spark.stream_reader import HeadraceStreamReader
from headrace.spark.sync_client import SyncClient
from headrace.testing.broker_process import BrokerProcess

SCHEMA = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])


def _reader(broker: BrokerProcess, topic: str, **options: str) -> HeadraceStreamReader:
    return HeadraceStreamReader(
        source_options({"bootstrap": broker.bootstrap, "subscribe": topic, **options}), SCHEMA
    )


def _total(offsets: dict[str, Any], topic: str) -> int:
    return sum(offsets[topic].values())


def test_bytes_limit_a_micro_batch(broker: BrokerProcess, topic: str, publish: Any) -> None:
    publish(topic, range(4000), headers=[("padding", b"x" * 200)])
    reader = _reader(broker, topic, maxBytesPerTrigger="100000")
    assert isinstance(reader.getDefaultReadLimit(), ReadMaxBytes)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert 200 <= _total(end, topic) <= 600
    assert _total(reader.latestOffset(start, ReadAllAvailable()), topic) == 4000


def test_the_start_is_pinned_until_the_first_batch_is_done(
    broker: BrokerProcess, client: SyncClient, topic: str, publish: Any
) -> None:
    """Trap 4, step by step; a group whose first batch is done is free for a new query."""
    options = {"groupId": uuid.uuid4().hex, "startingOffsets": "latest"}
    publish(topic, range(100))
    first = _reader(broker, topic, **options).initialOffset()
    publish(topic, range(100, 200))
    again = _reader(broker, topic, **options)
    assert again.initialOffset() == first and _total(first, topic) == 100
    end = again.latestOffset(first, ReadMaxRows(50))
    again.latestOffset(end, ReadMaxRows(50))
    done = client.committed_offsets(options["groupId"])
    assert sum(entry.offset for entry in done.values()) == _total(end, topic) == 150
    assert _total(_reader(broker, topic, **options).initialOffset(), topic) == 200


def test_available_now_ends_where_it_was_prepared(broker: BrokerProcess, topic: str, publish: Any) -> None:
    publish(topic, range(100))
    reader = _reader(broker, topic)
    reader.prepareForTriggerAvailableNow()
    publish(topic, range(100, 200))
    assert _total(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()), topic) == 100
    assert _total(reader.reportLatestOffset() or {}, topic) == 200


def test_a_small_batch_is_one_task_and_reading_it_again_gives_the_same(
    broker: BrokerProcess, topic: str, publish: Any
) -> None:
    publish(topic, range(400))
    reader = _reader(broker, topic)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    tasks = reader.partitions(reader.initialOffset(), end)
    assert len(tasks) == 1 and isinstance(tasks[0], ReadTask) and len(tasks[0].ranges) == 4
    rows = [batch.to_pylist() for batch in reader.read(tasks[0])]
    assert rows == [batch.to_pylist() for batch in reader.read(tasks[0])]
    assert sorted(int(row["value"]) for batch in rows for row in batch) == list(range(400))


def test_a_reader_survives_a_broken_connection(broker: BrokerProcess, topic: str, publish: Any) -> None:
    publish(topic, range(100))
    options = source_options({"bootstrap": broker.bootstrap, "subscribe": topic})
    reader = HeadraceReader(options, SCHEMA)
    (first, *rest) = reader.partitions()
    from headrace.spark.fetching import shared_client

    list(reader.read(first))
    for connection in list(shared_client(options.access)._connections.values()):
        connection._socket.close()
    read = [batch.num_rows for task in rest for batch in reader.read(task)]
    assert sum(read) == 75


def test_a_deleted_partition_is_data_loss(broker: BrokerProcess, client: SyncClient, topic: str) -> None:
    import pytest

    reader = _reader(broker, topic)
    start = {topic: {"0": 0, "9": 5}}
    with pytest.raises(RuntimeError, match="no longer exist"):
        reader.latestOffset(start, ReadAllAvailable())
    careless = _reader(broker, topic, failOnDataLoss="false")
    assert TopicPartition(topic, 9).partition not in careless.latestOffset(start, ReadAllAvailable())[topic]


def test_a_worker_that_knew_the_topic_before_it_grew(
    broker: BrokerProcess, client: SyncClient, topic: str, publish: Any
) -> None:
    """Spark reuses Python workers, so what they remember of a topic gets old."""
    publish(topic, range(8))
    reader = _reader(broker, topic)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    for task in reader.partitions(start, end):
        list(reader.read(task))
    client.grow_topic(topic, 6)
    later = _reader(broker, topic)
    from headrace.spark.fetching import shared_client

    assert len(shared_client(later._options.access).topic(topic).leaders) == 4
    assert shared_client(later._options.access).leader(TopicPartition(topic, 5))
