"""R47 where partitions are led: which connections are still heard."""

from __future__ import annotations

from headrace.core.ids import TopicPartition
from headrace.transactions.connections import Leaderships, MarkerSenders, NewestConnections

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def test_an_older_connection_of_a_producer_is_not_heard() -> None:
    newest = NewestConnections()
    assert newest.admit(1, 0, 5)
    assert newest.admit(1, 0, 7)
    assert not newest.admit(1, 0, 5)
    assert newest.admit(1, 1, 5), "a new epoch begins anew"
    assert newest.admit(2, 0, 5), "another producer"


def test_an_older_connection_of_a_coordinator_is_not_heard() -> None:
    senders = MarkerSenders()
    assert senders.admit("broker-1", 5)
    assert senders.admit("broker-1", 5)
    assert senders.admit("broker-1", 9)
    assert not senders.admit("broker-1", 5)
    assert senders.admit("broker-2", 5), "another coordinator"


def test_what_is_remembered_is_bounded() -> None:
    """X31: names come from outside."""
    senders = MarkerSenders(limit=3)
    for number in range(10):
        senders.admit(f"broker-{number}", number)
    assert not senders.admit("broker-9", 1)
    assert senders.admit("broker-0", 0), "forgotten"


def test_connections_from_before_a_leadership_are_not_heard() -> None:
    leaderships = Leaderships()
    leaderships.began(TP, 3, newest_connection_id=8)
    assert not leaderships.admits(TP, 8)
    assert leaderships.admits(TP, 9)
    assert leaderships.admits(OTHER, 1)
    leaderships.ended(TP)
    leaderships.began(TP, 5, newest_connection_id=12)
    assert not leaderships.admits(TP, 9)


def test_a_partition_nobody_led_before_has_no_past() -> None:
    """A client that has just created a topic keeps its connection."""
    leaderships = Leaderships()
    leaderships.began(TP, 0, newest_connection_id=8)
    assert leaderships.admits(TP, 1)
