"""What a queue still owes somebody is not past retention, and what is gone is not counted (decision 0061)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.testing import LocalBroker


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    """Its topics keep records for seven days."""
    with LocalBroker() as broker:
        broker.create_queue("jobs")
        yield broker


def send(broker: LocalBroker, body: str, **options: str) -> None:
    broker.ask("POST", "/queues/jobs/messages", {"value": body, **options})


def counted(broker: LocalBroker) -> tuple[int, int, int]:
    shown = broker.ask("GET", "/api/v1/queues/jobs")
    return shown["ready"], shown["delayed"], shown["in_flight"]


def receive(broker: LocalBroker, **query: str) -> dict[str, str]:
    """Bodies, with their receipts."""
    found = broker.ask("POST", "/queues/jobs/receive", query={"max": "10", **query})["items"]
    return {one["value"]: one["receipt"] for one in found}


def test_a_delay_longer_than_retention_is_kept_and_has_its_time_when_it_is_due(broker: LocalBroker) -> None:
    """It was deleted while it waited, and the queue counted it as ready for ever."""
    send(broker, "later", delay="30d")
    broker.clock.advance(days=29)
    assert counted(broker) == (0, 1, 0)
    broker.clock.advance(days=7)
    assert counted(broker) == (1, 0, 0), "due six days ago: nobody came, and it may be had for a day more"
    assert list(receive(broker, visibility="1s")) == ["later"]
    broker.clock.advance(days=9)
    assert counted(broker) == (0, 0, 0) and receive(broker) == {}, "as any other that nobody finishes"


def test_what_is_in_flight_is_not_taken_away_under_its_receiver(broker: LocalBroker) -> None:
    send(broker, "long work")
    broker.clock.advance(days=6)
    (receipt,) = receive(broker, visibility="5d").values()
    broker.clock.advance(days=4)
    assert counted(broker) == (0, 0, 1), "sent ten days ago"
    broker.ask("POST", f"/queues/jobs/messages/{receipt}/nack", query={"delay": "1d"})
    assert counted(broker) == (0, 1, 0)
    broker.clock.advance(days=1, seconds=1)
    assert list(receive(broker, visibility="1s")) == ["long work"]
    broker.clock.advance(days=8)
    assert counted(broker) == (0, 0, 0), "a retention time after its first receive it counts no more"


def test_what_is_only_ready_goes_by_its_age_and_is_not_counted_any_more(broker: LocalBroker) -> None:
    for number in range(3):
        send(broker, f"{number}")
    broker.clock.advance(days=8)
    assert counted(broker) == (0, 0, 0) and receive(broker) == {}
    send(broker, "next")
    assert list(receive(broker)) == ["next"]


def test_deleted_records_are_not_counted_any_more(broker: LocalBroker) -> None:
    for number in range(4):
        send(broker, f"{number}")
    send(broker, "later", delay="1h")
    assert len(receive(broker, max="1")) == 1
    assert counted(broker) == (3, 1, 1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition("jobs", 0, 3)])[TopicPartition("jobs", 0)].result(30)
    assert counted(broker) == (1, 1, 0)
    assert list(receive(broker)) == ["3"]
