"""A group that has committed something, and no members."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from webhook_endpoint import until

from headrace.testing.broker_process import BrokerProcess

NOT_YET = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError._WAIT_COORD)  # fmt: skip


def make_group(broker: BrokerProcess, group: str, topic: str, offset: int = 0) -> None:
    """librdkafka does not try again by itself when the coordinator is only about to be one."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "c\x1b[5m", "log_level": 0}
    )

    def committed() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        except KafkaException as refused:
            if refused.args[0].code() in NOT_YET:
                return False
            raise
        return True

    try:
        until(committed, 120)
    finally:
        consumer.close()
