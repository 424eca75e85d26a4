"""A data directory of an earlier version is opened by this one, and everything in it is there. Each archive beside this file is one."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from furniture import CODECS, FAR_MS, ask

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))
assert ARCHIVES


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    home = tmp_path_factory.mktemp("yesterday")
    with tarfile.open(request.param) as archive:
        archive.extractall(home, filter="data")
    with BrokerProcess(home / "data") as running:
        yield running


def read(broker: BrokerProcess, topic: str, partitions: int = 1) -> list[ck.Message]:
    """Everything that is committed, partition by partition."""
    consumer = ck.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "look", "enable.auto.commit": False, "enable.partition.eof": True,
         "check.crcs": True}
    )  # fmt: skip
    try:
        found = []
        for number in range(partitions):
            consumer.assign([ck.TopicPartition(topic, number, 0)])
            while True:
                message = consumer.poll(240)
                assert message is not None, f"{topic}-{number} says nothing"
                if message.error() is not None:
                    assert message.error().code() == ck.KafkaError._PARTITION_EOF, message.error()
                    break
                found.append(message)
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_as_they_were_sent(broker: BrokerProcess, codec: str) -> None:
    found = read(broker, f"codec-{codec}")
    assert [message.offset() for message in found] == list(range(50))
    for number, message in enumerate(found):
        assert message.value() == b"value %d " % number * 20 and message.key() == b"key %d" % number
        assert message.headers() == [("n", str(number).encode())]


def test_groups_are_where_they_were(broker: BrokerProcess) -> None:
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
    places = consumer.committed([ck.TopicPartition("orders", number) for number in range(3)], timeout=240)
    consumer.close()
    assert [place.offset for place in places] == [4, 5, 6]


def test_transactions_end_as_they_ended(broker: BrokerProcess) -> None:
    assert [message.value() for message in read(broker, "paid")] == [b"kept", b"kept too"]
    writer = ck.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "till"})
    writer.init_transactions(240)
    writer.begin_transaction()
    writer.abort_transaction(240)


def test_newest_values_of_a_compacted_topic(broker: BrokerProcess) -> None:
    newest = {message.key(): message.value() for message in read(broker, "prices")}
    assert newest == {b"p%d" % number: b"%d" % (25 + number) for number in range(5)}


def test_a_view_shows_what_it_showed(broker: BrokerProcess) -> None:
    assert sorted(int(message.key()) for message in read(broker, "large", 3)) == list(range(21, 30))


def test_queues_know_what_became_of_each_message(broker: BrokerProcess) -> None:
    jobs = ask(broker.url, "GET", "/api/v1/queues/jobs")
    assert (jobs["ready"], jobs["in_flight"], jobs["delayed"], jobs["dead_letter"]) == (4, 0, 1, "jobs-dead")
    received = ask(broker.url, "GET", "/queues/jobs/messages?max=10&visibility=1s")["items"]
    assert [message["value"] for message in received] == [f"job {number}" for number in range(2, 6)]
    (waiting,) = ask(broker.url, "GET", "/api/v1/queues/jobs/scheduled")["items"]
    assert (waiting["value"], waiting["due_ms"]) == ("not before 2100", FAR_MS)
    (dead,) = ask(broker.url, "GET", "/queues/jobs-dead/messages?max=10&visibility=1s")["items"]
    assert dead["value"] == "job 1"


def test_a_line_keeps_its_order(broker: BrokerProcess) -> None:
    received = ask(broker.url, "GET", "/queues/line.fifo/messages?max=10&visibility=1s")["items"]
    assert [message["value"] for message in received] == [f"in line {number}" for number in range(3)]


def test_the_calendar_is_kept(broker: BrokerProcess) -> None:
    (nightly,) = ask(broker.url, "GET", "/api/v1/schedules")["items"]
    assert (nightly["name"], nightly["cron"], nightly["topic"]) == ("nightly", "0 3 1 1 *", "jobs")
