"""Batch reads on real Spark: every way to say what to read, and that nothing is missing or there twice (S1)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.spark import register
from headrace.testing.broker_process import BrokerProcess


def _numbers(frame: Any) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


@pytest.fixture(scope="module")
def filled(client: Any, publish: Any) -> str:
    client.create_topic("filled", 4)
    publish("filled", range(10_000), headers=[("colour", b"red")])
    return "filled"


@pytest.fixture
def read(spark: Any, broker: BrokerProcess) -> Any:
    def load(topic: str, **options: Any) -> Any:
        reader = (
            spark.read.format("headrace").option("bootstrap", broker.bootstrap).option("subscribe", topic)
        )
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return reader.load()

    return load


def test_every_record_once_with_sparks_columns(read: Any, filled: str) -> None:
    frame = read(filled)
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    rows = frame.collect()
    assert sorted(int(bytes(row.value)) for row in rows) == list(range(10_000))
    assert all(row.key == row.value and row.topic == filled for row in rows)
    assert {(row.partition, int(bytes(row.value)) % 4) for row in rows} == {(n, n) for n in range(4)}
    for partition in range(4):
        own = [row for row in rows if row.partition == partition]
        assert sorted(row.offset for row in own) == list(range(2500))


def test_offsets_per_partition(read: Any, filled: str) -> None:
    starting = json.dumps({filled: {"0": 100, "1": -1, "2": -2, "3": 2499}})
    ending = json.dumps({filled: {"0": 110, "2": 5}})
    frame = read(filled, startingOffsets=starting, endingOffsets=ending)
    counts = {row.partition: row["count"] for row in frame.groupBy("partition").count().collect()}
    assert counts == {0: 10, 2: 5, 3: 1}


def test_a_time_range(read: Any, client: Any, publish: Any) -> None:
    client.create_topic("timed", 1)
    for hour in range(5):
        publish("timed", range(hour * 10, hour * 10 + 10), 1, timestamp=1_700_000_000_000 + hour * 3_600_000)
    frame = read(
        "timed", startingTimestamp=1_700_000_000_000 + 3_600_000, endingTimestamp="2023-11-15T01:13:20Z"
    )
    assert _numbers(frame) == list(range(10, 30))


def test_large_partitions_are_split(read: Any, filled: str) -> None:
    frame = read(filled, maxRecordsPerPartition=1000)
    assert frame.rdd.getNumPartitions() == 12
    assert _numbers(frame) == list(range(10_000))
    assert read(filled, minPartitions=8).rdd.getNumPartitions() == 8


def test_a_pattern_and_several_topics(spark: Any, broker: BrokerProcess, client: Any, publish: Any) -> None:
    for name in ("many.a", "many.b", "manyc"):
        client.create_topic(name, 1)
    publish("many.a", range(3), 1)
    publish("many.b", range(3, 5), 1)
    publish("manyc", range(5, 9), 1)
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", broker.bootstrap)
    assert _numbers(reader.option("subscribePattern", r"many\..*").load()) == list(range(5))
    reader = spark.read.format("headrace").option("bootstrap", broker.bootstrap)
    assert _numbers(reader.option("subscribe", "many.a,manyc").load()) == [0, 1, 2, 5, 6, 7, 8]
    reader = spark.read.format("headrace").option("bootstrap", broker.bootstrap)
    assert _numbers(reader.option("assign", '{"many.b":[0]}').load()) == [3, 4]


def test_filters_are_pushed_down_and_right(spark: Any, broker: BrokerProcess, filled: str) -> None:
    other = spark.newSession()
    register(other, push_down=True)

    def frame(where: str) -> Any:
        reader = (
            other.read.format("headrace").option("bootstrap", broker.bootstrap).option("subscribe", filled)
        )
        return reader.load().where(where)

    narrow = "partition = 2 and offset >= 100 and offset < 110"
    assert [row.offset for row in frame(narrow).orderBy("offset").collect()] == list(range(100, 110))
    assert frame(narrow).rdd.getNumPartitions() == 1
    assert frame("key = cast('77' as binary)").count() == 1
    assert frame("timestamp > timestamp'2100-01-01'").count() == 0
    assert frame("timestamp > timestamp'2020-01-01' and partition in (1, 3)").count() == 5000


def test_a_frame_that_was_asked_with_a_filter_answers_without_one(read: Any, filled: str) -> None:
    """Spark keeps the plan of a filter that it gave to the source for the next query of the same frame: counts were too small in silence."""
    frame = read(filled)
    assert frame.where("partition = 2 and offset >= 100").count() == 2400
    assert frame.count() == 10_000
    assert frame.where("partition = 1").count() == 2500
    assert frame.join(frame.where("offset < 10"), "offset").count() == 10 * 4 * 4


def test_headers_are_opt_in_and_can_be_filtered(read: Any, filled: str, publish: Any, topic: str) -> None:
    row = read(filled, includeHeaders="true").first()
    assert [(one.key, bytes(one.value)) for one in row.headers] == [("colour", b"red")]
    publish(topic, range(10), headers=[("colour", b"blue"), ("size", b"1")])
    publish(topic, range(10, 20), headers=[("colour", b"red")])
    publish(topic, range(20, 22))
    assert _numbers(read(topic, headerFilter="colour=red")) == list(range(10, 20))
    assert _numbers(read(topic, includeHeaders="true").where("size(headers) = 0")) == [20, 21]


def test_a_schema_prunes_columns(spark: Any, broker: BrokerProcess, filled: str) -> None:
    reader = spark.read.format("headrace").option("bootstrap", broker.bootstrap).option("subscribe", filled)
    frame = reader.schema("offset long, value binary").load()
    assert frame.columns == ["offset", "value"]
    assert frame.count() == 10_000
    with pytest.raises(Exception, match='no column "colour"'):
        reader.schema("colour string").load().count()


def test_json_and_text_values(read: Any, broker: BrokerProcess, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for text in ('{"id": 1, "name": "a"}', '{"id": 2,\n "extra": [1]}', "not json", '{"id": 4}'):
        producer.produce(topic, text, partition=0)
    producer.produce(topic, None, partition=0)
    producer.flush(120)
    assert read(topic, valueFormat="string").select("value").first().value == '{"id": 1, "name": "a"}'
    rows = (
        read(topic, valueFormat="json", valueSchema="id bigint, name string")
        .orderBy("offset")
        .select("value")
        .collect()
    )
    assert [row.value and (row.value.id, row.value.name) for row in rows] == [
        (1, "a"), (2, None), (None, None), (4, None), None,
    ]  # fmt: skip


def test_raw_gives_whole_batches(read: Any, filled: str) -> None:
    from headrace.records.read import read_records

    rows = read(filled, raw="true").collect()
    values = [
        int(record.value or b"")
        for row in rows
        for record in read_records(bytes(row.batch), max_bytes=1 << 24)
    ]
    assert sorted(values) == list(range(10_000))
    assert sum(row.records for row in rows) == 10_000


def test_direct_read_gives_the_same(read: Any, client: Any, publish: Any, topic: str) -> None:
    client.create_topic("sealed", 1, {"segment.bytes": "1048576"})
    for start in range(0, 60_000, 20_000):
        publish("sealed", range(start, start + 20_000), 1, headers=[("padding", b"x" * 60)])
    for options in (
        {},
        {"startingOffsets": '{"sealed":{"0":12345}}', "endingOffsets": '{"sealed":{"0":54321}}'},
    ):
        through_broker = read("sealed", **options).orderBy("offset").select("offset", "value").collect()
        direct = (
            read("sealed", directRead="true", **options).orderBy("offset").select("offset", "value").collect()
        )
        assert direct == through_broker


def test_wrong_options_are_refused_in_words(read: Any, spark: Any, filled: str) -> None:
    with pytest.raises(Exception, match="topic nowhere does not exist"):
        read("nowhere").count()
    with pytest.raises(Exception, match='"bootstrap" is missing'):
        spark.read.format("headrace").option("subscribe", "x").load()
    with pytest.raises(Exception, match="startingOffsets"):
        read(filled, startingOffsets="yesterday").count()
    with pytest.raises(Exception, match="can't be reached"):
        spark.read.format("headrace").option("bootstrap", "127.0.0.1:1").option("subscribe", "x").option(
            "requestTimeoutMs", "1000"
        ).load().count()


def test_the_module_registers_itself(spark: Any, broker: BrokerProcess, filled: str) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    frame = (
        other.read.format("headrace").option("bootstrap", broker.bootstrap).option("subscribe", filled).load()
    )
    assert frame.where("partition = 1").count() == 2500
