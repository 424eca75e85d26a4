"""R38, R39: a batch that was refused comes before those behind it, by frames on a real broker.

Issue 12, torture seed 603: whoever refuses the first batch of a producer and takes the second, which was on its way already,
makes librdkafka report the first as delivered (it takes the second's success for the proof), and it is nowhere.
"""

from __future__ import annotations

from raw_client import RawClient, produce_request

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


def test_r39_frames_that_arrive_together_keep_their_order_too(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as client, RawClient(broker.kafka_port) as admin:
        for sequence in (0, 10, 20):
            client.send(ApiKey.PRODUCE, 9, produce_request(topic, batch(sequence), 0, -1))
        rows = [client.answer(ApiKey.PRODUCE, 9).topics[0].partitions[0] for _ in range(3)]
        assert [ErrorKind(row.error_code) for row in rows] == [REFUSED[0], AGAIN[0], AGAIN[0]]
        admin.create_topic(topic)
        assert send(client, topic, 30) == AGAIN
        assert send(client, topic, 0) == (ErrorKind.NONE, 0)


def test_a_refused_batch_bars_its_own_producer_epoch_and_connection_only(
    broker: BrokerProcess, topic: str
) -> None:
    with RawClient(broker.kafka_port) as client, RawClient(broker.kafka_port) as admin:
        assert send(client, topic, 0) == REFUSED
        admin.create_topic(topic)
        assert send(client, topic, 40, producer_id=PRODUCER + 1) == (ErrorKind.NONE, 0)
        assert send(client, topic, 10) == AGAIN
        assert send(client, topic, 0, epoch=1) == (ErrorKind.NONE, 10), "it was given up and numbered anew"
        assert send(admin, topic, 30, producer_id=PRODUCER + 2) == (ErrorKind.NONE, 20)


def test_a_client_that_goes_on_without_the_refused_batch_gets_on(broker: BrokerProcess, topic: str) -> None:
    """Not more is held up than can have been under way: five batches (R38)."""
    with RawClient(broker.kafka_port) as client, RawClient(broker.kafka_port) as admin:
        assert send(client, topic, 0) == REFUSED
        admin.create_topic(topic)
        assert [send(client, topic, 10) for _ in range(5)] == [AGAIN] * 4 + [(ErrorKind.NONE, 0)]
        assert send(client, topic, 20) == (ErrorKind.NONE, 10)


def test_a_topic_that_was_made_again_takes_a_producer_where_it_stands(
    broker: BrokerProcess, topic: str
) -> None:
    """As Kafka does: a client that has not noticed must not die of it."""
    with RawClient(broker.kafka_port) as client:
        client.create_topic(topic)
        assert send(client, topic, 0) == (ErrorKind.NONE, 0)
        gone = client.call(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=[topic]))
        assert gone.responses[0].error_code == 0
        client.create_topic(topic)
        assert send(client, topic, 10) == (ErrorKind.NONE, 0)
        assert send(client, topic, 20) == (ErrorKind.NONE, 10)
