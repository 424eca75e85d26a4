"""F40, F36: what an AdminClient sets changes what the broker does; what it can't set says why; what it is shown is true."""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from raw_client import RawClient

from headrace.records.build import Record, build_batch
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest

pytestmark = pytest.mark.client


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.kafka_port) as client:
        yield client


def alter(broker: BrokerProcess, kind: ResourceType, name: str, **configs: str | None) -> None:
    entries = [
        ConfigEntry(
            key.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in configs.items()
    ]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    resource = ConfigResource(kind, name, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(15)


def described(broker: BrokerProcess, kind: ResourceType, name: str) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    found: dict[str, Any] = future.result(15)
    return found


def text_like(count: int) -> list[bytes]:
    """Neither noise nor one letter: what levels differ on."""
    words = [os.urandom(4).hex().encode() for _ in range(400)]
    return [b" ".join(words[(i * 7 + j * j) % 400] for j in range(60)) for i in range(count)]


@pytest.mark.parametrize(
    ("codec", "fast", "small"), [("gzip", "1", "9"), ("zstd", "-5", "19"), ("lz4", "9", "12")]
)
def test_f40_a_topic_compresses_at_the_level_that_was_set(
    broker: BrokerProcess, raw: RawClient, topic: str, codec: str, fast: str, small: str
) -> None:
    raw.create_topic(topic, compression_type=codec)
    batch = build_batch([Record(None, value) for value in text_like(300)], wall_ms=int(time.time() * 1000))
    sizes = []
    for number, level in enumerate((fast, small)):
        alter(broker, ResourceType.TOPIC, topic, **{f"compression_{codec}_level": level})
        assert raw.produce(topic, batch, acks=-1).error_code == 0
        sizes.append(len(raw.fetch(topic, number * 300, max_bytes=10 << 20).records or b""))
    assert sizes[1] < sizes[0] < len(batch)


def test_f40_an_idle_producer_is_forgotten_when_the_broker_is_told_so(
    fresh_broker: Callable[..., BrokerProcess],
) -> None:
    broker = fresh_broker(environment={"HEADRACE_RETENTION_CHECK_INTERVAL_MS": "100"})
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic("t")
        batch = build_batch(
            [Record(None, b"v")],
            wall_ms=int(time.time() * 1000),
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
        )
        assert raw.produce("t", batch).error_code == 0

        def producers() -> int:
            asked = DescribeProducersRequest([TopicRequest("t", [0])])
            answer = raw.call(ApiKey.DESCRIBE_PRODUCERS, 0, asked)
            return len(answer.topics[0].partitions[0].active_producers)

        assert producers() == 1
        alter(broker, ResourceType.BROKER, "1", producer_id_expiration_ms="1")
        while producers():
            time.sleep(0.05)


def test_f40_a_full_index_starts_a_segment(broker: BrokerProcess, raw: RawClient, topic: str) -> None:
    """segment.index.bytes: of two topics with the same batches, one may have four entries in an index."""

    def segments() -> int:
        text = urllib.request.urlopen(f"{broker.url}/metrics").read().decode()
        (line,) = (line for line in text.splitlines() if line.startswith("mq_log_segments"))
        return int(float(line.split()[-1]))

    before = segments()
    kinds: list[tuple[str, dict[str, Any]]] = [(f"{topic}-plain", {}), (topic, {"segment_index_bytes": "64"})]
    for name, configs in kinds:
        raw.create_topic(name, index_interval_bytes="100", **configs)
        for _ in range(50):
            batch = build_batch([Record(None, b"x" * 100)], wall_ms=int(time.time() * 1000))
            assert raw.produce(name, batch).error_code == 0
    assert segments() - before > 10


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("num.io.threads", "One broker is one event loop"),
        ("num.replica.fetchers", "one carries all of its partitions"),
        ("log.cleaner.backoff.ms", "log.retention.check.interval.ms"),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "one data directory"),
        ("transaction.partition.verification.enable", "always"),
        ("offsets.topic.num.partitions", "settings"),
    ],
)
def test_f40_what_would_change_nothing_is_refused_with_the_reason(
    broker: BrokerProcess, config: str, why: str
) -> None:
    entry = described(broker, ResourceType.BROKER, "1")[config]
    assert entry.is_read_only
    with pytest.raises(KafkaException, match=why):
        alter(broker, ResourceType.BROKER, "1", **{config.replace(".", "_"): entry.value})


def test_f40_a_topic_config_that_would_change_nothing_is_refused(
    broker: BrokerProcess, raw: RawClient, topic: str
) -> None:
    raw.create_topic(topic)
    with pytest.raises(KafkaException, match="recovery goes by the sizes"):
        alter(broker, ResourceType.TOPIC, topic, preallocate="true")
    assert described(broker, ResourceType.TOPIC, topic)["preallocate"].is_read_only


def test_f36_a_broker_shows_where_it_is_and_where_its_data_lies(
    fresh_broker: Callable[..., BrokerProcess],
) -> None:
    broker = fresh_broker(arguments=("--advertised-host", "127.0.0.1", "--rack", "north"))
    configs = described(broker, ResourceType.BROKER, "1")
    assert configs["listeners"].value == f"PLAINTEXT://127.0.0.1:{broker.kafka_port}"
    assert configs["advertised.listeners"].value == f"PLAINTEXT://127.0.0.1:{broker.kafka_port}"
    assert configs["log.dirs"].value == str(broker.data_dir / "topics")
    assert configs["headrace.coordinator"].value == f"sqlite://{broker.data_dir}/coordinator.db"
    assert configs["broker.rack"].value == "north"
    assert not configs["listeners"].is_default
