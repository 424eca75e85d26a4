"""S7: Spark's own Kafka connector reads and writes Headrace unchanged."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker_process import BrokerProcess

ROWS = 20_000
PARTITIONS = 3


@pytest.mark.timeout(900)
def test_batch_and_streaming_both_ways(
    connector_python: Path, connector_jars: list[Path], tmp_path: Path
) -> None:
    with BrokerProcess() as broker:
        topics = [NewTopic(name, PARTITIONS) for name in ("numbers", "doubled")]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics(topics).values():
            made.result()
        job = Path(__file__).parent / "spark_connector_job.py"
        jars = ",".join(map(str, connector_jars))
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": str(connector_python),
            "PYSPARK_DRIVER_PYTHON": str(connector_python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        subprocess.run([connector_python, job, broker.bootstrap, tmp_path, jars], check=True, env=environment)
        seen = json.loads((tmp_path / "seen.json").read_text())
        per_partition = {number: len(values) for number, values in contents(broker, "numbers").items()}
        doubled = contents(broker, "doubled")
    assert (seen["count"], seen["sum"]) == (ROWS, ROWS * (ROWS - 1) // 2)
    assert seen["with_headers"] == seen["since_2001"] == ROWS
    # A thousand rows more were written after that reading, ten of each key.
    assert sum(per_partition.values()) == ROWS + 1000
    before = {number: count * ROWS // (ROWS + 1000) for number, count in per_partition.items()}
    assert seen["part"] == {"0": before[0] - 10, "1": before[1], "2": 5}
    # Two runs of one checkpoint: everything, and nothing twice.
    written = Counter(int(value) for values in doubled.values() for value in values)
    assert written == Counter(range(0, 2 * (ROWS + 1000), 2))


def contents(broker: BrokerProcess, topic: str) -> dict[int, list[bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "look", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found[message.partition()].append(message.value())
    consumer.close()
    return found
