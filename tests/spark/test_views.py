"""D3: views read by Spark, and a filter that is pushed down to the broker without leaving anything behind there."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.core.ids import TopicPartition
from headrace.spark.fetching import fetch_range
from headrace.spark.options import OptionError, source_options
from headrace.spark.plan import OffsetRange
from headrace.spark.sync_client import SyncClient
from headrace.testing.broker_process import BrokerProcess

RECORDS = int(os.environ.get("HEADRACE_VIEW_RECORDS", "20000"))
WANTED = list(range(42, RECORDS, 100))


@pytest.fixture(scope="module")
def orders(broker: BrokerProcess) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("vorders", 2, -1)])["vorders"].result(20)
    view = {"headrace.view.source": "vorders", "headrace.view.where": 'tag == "eu"'}
    admin.create_topics([NewTopic("vorders-eu", -1, -1, config=view)])["vorders-eu"].result(20)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "compression.type": "zstd", "log_level": 0}
    )
    for number in range(RECORDS):
        tag = b"eu" if number % 100 == 42 else b"us"
        value = json.dumps({"n": number, "pad": "x" * 100})
        while True:
            try:
                producer.produce("vorders", value, partition=number // 100 % 2, headers=[("tag", tag)])
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    return "vorders"


def _numbers(frame: Any) -> list[int]:
    return sorted(json.loads(bytes(row.value))["n"] for row in frame.select("value").collect())


@pytest.fixture
def read(spark: Any, broker: BrokerProcess) -> Any:
    def load(topic: str, **options: Any) -> Any:
        reader = spark.read.format("headrace").option("bootstrap", broker.bootstrap)
        return reader.option("subscribe", topic).options(**options).load()

    return load


def test_a_view_is_a_topic_to_spark(read: Any, orders: str) -> None:
    frame = read("vorders-eu", minPartitions=4)
    assert _numbers(frame) == WANTED
    whole = {(row.partition, row.offset) for row in read(orders).select("partition", "offset").collect()}
    rows = frame.select("topic", "partition", "offset").collect()
    assert {row.topic for row in rows} == {"vorders-eu"}
    assert {(row.partition, row.offset) for row in rows} < whole


def test_a_stream_over_a_view_ends_where_the_source_ends(
    spark: Any, broker: BrokerProcess, orders: str, tmp_path: Any
) -> None:
    stream = spark.readStream.format("headrace").option("bootstrap", broker.bootstrap)
    query = (
        stream.option("subscribe", "vorders-eu").option("maxRecordsPerTrigger", RECORDS // 3).load()
        .writeStream.format("parquet").option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    assert _numbers(spark.read.parquet(str(tmp_path / "out"))) == WANTED


def test_where_is_exact_and_needs_no_view(read: Any, orders: str) -> None:
    assert _numbers(read(orders, where='tag == "eu" and value.n > 1000')) == [n for n in WANTED if n > 1000]
    assert read(orders, where='tag == "mars"').count() == 0
    assert read("vorders-eu", where="value.n < 1000").count() == len([n for n in WANTED if n < 1000])


def test_where_is_done_by_the_broker(client: SyncClient, orders: str) -> None:
    def size(where: str) -> int:
        wanted = OffsetRange("vorders", 0, 0, RECORDS // 2)
        pieces = fetch_range(
            client, wanted, isolation=1, fail_on_data_loss=True, max_bytes=1 << 20, where=where
        )
        return sum(header.size for piece in pieces for _, header in piece.batches)

    ends = client.list_offsets({TopicPartition("vorders", 0): -1})
    assert ends[TopicPartition("vorders", 0)] == RECORDS // 2
    assert 0 < size('tag == "eu"') < size("") * 0.2
    assert size('tag == "mars"') == 0
    assert [name for name in client.topics(None) if name.startswith("vorders")] == ["vorders", "vorders-eu"]


@pytest.mark.parametrize(
    ("options", "words"), [({"where": "tag =="}, "makes no sense"), ({"where": "true", "raw": "true"}, "raw")]
)
def test_what_where_can_not_be(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        source_options({"bootstrap": "localhost:9092", "subscribe": "t", **options})
