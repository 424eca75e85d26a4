"""R38, R39: the first batch that a log takes of a producer is its earliest, by frames on a real broker.

Issue 12, torture seeds 603 and 604: whoever refuses the first batch of a producer and takes the second, which was on its way
already, makes librdkafka report the first as delivered (it takes the second's success for the proof), and it is nowhere.
"""

from __future__ import annotations

from raw_client import RawClient

from headrace.core.errors import ErrorKind
from headrace.records.build import Record, build_batch
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.delete_topics import DeleteTopicsRequest

PRODUCER = 77_000
TEN = 10


def batch(sequence: int, producer_id: int = PRODUCER, epoch: int = 0) -> bytes:
    """Ten messages."""
    rows = [Record(None, b"%d" % (sequence + number), (), 1_750_000_000_000) for number in range(TEN)]
    return bytes(
        build_batch(
            rows,
            wall_ms=1_750_000_000_000,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


def send(
    client: RawClient, topic: str, sequence: int, producer_id: int = PRODUCER, epoch: int = 0
) -> tuple[ErrorKind, int]:
    row = client.produce(topic, batch(sequence, producer_id, epoch), acks=-1)
    return ErrorKind(row.error_code), row.base_offset


REFUSED = (ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, -1)
"""Its topic is not there yet: it was deleted, and is made again a moment later."""
AGAIN = (ErrorKind.NOT_LEADER_OR_FOLLOWER, -1)


def test_r39_what_was_sent_behind_a_refused_batch_does_not_overtake_it(
    broker: BrokerProcess, topic: str
) -> None:
    with RawClient(broker.kafka_port) as client, RawClient(broker.kafka_port) as admin:
        assert send(client, topic, 0) == REFUSED
        admin.create_topic(topic)
        # These were on their way already.
        assert send(client, topic, 10) == AGAIN
        assert send(client, topic, 20) == AGAIN
        assert [send(client, topic, sequence) for sequence in (0, 10, 20)] == [
            (ErrorKind.NONE, 0), (ErrorKind.NONE, 10), (ErrorKind.NONE, 20)
        ]  # fmt: skip
        assert send(client, topic, 10) == (ErrorKind.NONE, 10), "R38: once, and at its place"


def test_r39_nor_does_it_on_another_connection(broker: BrokerProcess, topic: str) -> None:
    """The one before was refused by another broker, or its connection is gone."""
    with RawClient(broker.kafka_port) as client, RawClient(broker.kafka_port) as other:
        assert send(client, topic, 40) == REFUSED
        other.create_topic(topic)
        assert send(other, topic, 50) == AGAIN
        assert send(other, topic, 40) == AGAIN, "earlier, and perhaps not the earliest"
        assert send(client, topic, 50) == AGAIN
        assert [send(client, topic, sequence) for sequence in (40, 50)] == [
            (ErrorKind.NONE, 0), (ErrorKind.NONE, 10)
        ]  # fmt: skip


def test_r39_what_went_into_the_topic_before_comes_first_in_the_new_one(
    broker: BrokerProcess, topic: str
) -> None:
    with RawClient(broker.kafka_port) as client:
        client.create_topic(topic)
        for sequence in (0, 10):
            assert send(client, topic, sequence) == (ErrorKind.NONE, sequence)
        remove(client, topic)
        client.create_topic(topic)
        # The client never heard of 10, say.
        assert send(client, topic, 20) == AGAIN
        assert [send(client, topic, 10) for _ in range(2)] == [AGAIN, (ErrorKind.NONE, 0)]
        assert send(client, topic, 20) == (ErrorKind.NONE, 10)


def test_a_topic_that_was_made_again_takes_a_producer_where_it_stands(
    broker: BrokerProcess, topic: str
) -> None:
    """As Kafka does: a client that has not noticed must not die of it."""
    with RawClient(broker.kafka_port) as client:
        client.create_topic(topic)
        assert send(client, topic, 0) == (ErrorKind.NONE, 0)
        remove(client, topic)
        client.create_topic(topic)
        assert [send(client, topic, 10) for _ in range(2)] == [AGAIN, (ErrorKind.NONE, 0)]
        assert send(client, topic, 20) == (ErrorKind.NONE, 10)


def test_a_client_that_goes_on_without_the_refused_batch_gets_on(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as client, RawClient(broker.kafka_port) as admin:
        admin.create_topic(topic)
        assert send(client, topic, 10) == AGAIN
        # It gives 10 up. Four more could have been under way behind it, so a fifth tells.
        assert [send(client, topic, 20) for _ in range(6)] == [AGAIN] * 5 + [(ErrorKind.NONE, 0)]
        assert send(client, topic, 30) == (ErrorKind.NONE, 10)
        assert send(client, topic, 0, epoch=1) == (ErrorKind.NONE, 20), "or it numbers anew"


def remove(client: RawClient, topic: str) -> None:
    gone = client.call(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=[topic]))
    assert gone.responses[0].error_code == 0, gone
