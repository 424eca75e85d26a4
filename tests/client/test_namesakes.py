"""F1 with the client that decision 0085 is for: librdkafka keeps a topic's leader epochs by its name, and the name is made again."""

from __future__ import annotations

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.client, pytest.mark.timeout(300)]
QUIET = {"log_level": 0}


def told(broker: BrokerProcess, value: str) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    producer.produce("orders", value)
    assert producer.flush(240) == 0


def heard(consumer: ck.Consumer, value: str) -> int:
    """The leader epoch that it was written in. The test's own limit of time is the only one."""
    while (message := consumer.poll(1)) is None or message.error() or message.value() != value.encode():
        pass
    epoch: int = message.leader_epoch()
    return epoch


def test_f1_a_reader_follows_a_name_through_its_lives() -> None:
    with BrokerProcess() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result()
        consumer = ck.Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest", **QUIET}
        )
        consumer.subscribe(["orders"])
        told(broker, "first")
        heard(consumer, "first")
        broker.kill()
        broker.start()
        told(broker, "elected")
        epochs = [heard(consumer, "elected")]
        assert epochs[0] > 0
        for life in ("second", "third"):
            admin.delete_topics(["orders"])["orders"].result()
            admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result()
            told(broker, life)
            epochs.append(heard(consumer, life))
        consumer.close()
    assert epochs == sorted(set(epochs)), "each life is above the one before it"
