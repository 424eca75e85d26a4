"""The sink on real Spark: columns, placement, clear errors (at-least-once)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.testing.broker_process import BrokerProcess


@pytest.fixture
def write(spark: Any, broker: BrokerProcess) -> Any:
    def save(frame: Any, **options: Any) -> None:
        writer = frame.write.format("headrace").mode("append").option("bootstrap", broker.bootstrap)
        for name, value in options.items():
            writer = writer.option(name, value)
        writer.save()

    return save


@pytest.fixture
def rows_of(spark: Any, broker: BrokerProcess) -> Any:
    def read(topic: str) -> list[Any]:
        reader = (
            spark.read.format("headrace").option("bootstrap", broker.bootstrap).option("subscribe", topic)
        )
        return reader.option("includeHeaders", "true").load().collect()

    return read


def test_keys_land_where_every_kafka_client_puts_them(
    spark: Any, write: Any, rows_of: Any, topic: str, broker: BrokerProcess, client: Any
) -> None:
    from confluent_kafka import Producer

    frame = spark.range(500).selectExpr("concat('key-', id) as key", "cast(id as string) as value")
    write(frame, topic=topic, compression="lz4")
    other = f"{topic}-other"
    client.create_topic(other, 4)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for number in range(500):
        producer.produce(other, str(number), f"key-{number}")
    producer.flush(120)
    ours = {(bytes(row.key), bytes(row.value), row.partition) for row in rows_of(topic)}
    assert ours == {(bytes(row.key), bytes(row.value), row.partition) for row in rows_of(other)}
    assert len(ours) == 500


def test_all_columns_arrive(spark: Any, write: Any, rows_of: Any, topic: str) -> None:
    frame = spark.sql(
        f"""select '{topic}' as topic, 2 as partition, cast('k' as binary) as key, cast(null as string) as value,
        timestamp'2024-02-29 12:00:00' as timestamp,
        array(named_struct('key', 'a', 'value', cast('1' as binary)),
              named_struct('key', 'b', 'value', cast(null as binary))) as headers"""
    )
    write(frame)
    (row,) = rows_of(topic)
    assert (bytes(row.key), row.value, row.partition) == (b"k", None, 2)
    assert row.timestamp.isoformat() == "2024-02-29T12:00:00"
    assert [(one.key, one.value and bytes(one.value)) for one in row.headers] == [("a", b"1"), ("b", None)]


def test_several_topics_in_one_write(spark: Any, write: Any, rows_of: Any, client: Any) -> None:
    for name in ("fan-a", "fan-b"):
        client.create_topic(name, 2)
    write(
        spark.range(1000).selectExpr(
            "if(id % 3 = 0, 'fan-a', 'fan-b') as topic", "cast(id as string) as value"
        )
    )
    assert (len(rows_of("fan-a")), len(rows_of("fan-b"))) == (334, 666)


def test_errors_say_what_is_wrong(spark: Any, write: Any, topic: str) -> None:
    one = spark.range(1)
    with pytest.raises(Exception, match='column "value" is missing'):
        write(one, topic=topic)
    with pytest.raises(Exception, match='column "value" is bigint, not binary or string'):
        write(one.selectExpr("id as value"), topic=topic)
    text = one.selectExpr("cast(id as string) as value")
    with pytest.raises(Exception, match='the option "topic", or a column "topic"'):
        write(text)
    with pytest.raises(Exception, match='topic "nowhere" does not exist'):
        write(text, topic="nowhere")
    with pytest.raises(Exception, match=r"more than the topic takes \(max.message.bytes\)"):
        write(one.selectExpr("repeat('x', 3000000) as value"), topic=topic)
    with pytest.raises(Exception, match="partition 9 is asked for"):
        write(text.selectExpr("value", "9 as partition"), topic=topic)


def test_a_stream_into_a_topic(
    spark: Any, broker: BrokerProcess, topic: str, publish: Any, rows_of: Any, client: Any, tmp_path: Path
) -> None:
    publish(topic, range(1000))
    target = f"{topic}-copy"
    client.create_topic(target, 2)
    query = (
        spark.readStream.format("headrace")
        .option("bootstrap", broker.bootstrap)
        .option("subscribe", topic)
        .option("maxRecordsPerTrigger", 400)
        .load()
        .select("key", "value")
        .writeStream.format("headrace")
        .option("bootstrap", broker.bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    assert sorted(int(bytes(row.value)) for row in rows_of(target)) == list(range(1000))
