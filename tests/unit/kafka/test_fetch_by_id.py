"""R34, F1: a fetch by topic id is never answered from the log of another topic of the same name (torture seed 608)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.broker.fetch import FetchReader
from headrace.broker.fetch_sessions import SessionPartition
from headrace.core.errors import ErrorKind
from headrace.kafka.handlers.k01_fetch import _target

OLD, NEW = b"o" * 16, b"n" * 16


def target(partition_id: bytes, wanted_id: bytes, replica: int) -> Any:
    """The image knows the topic that was made again; the replica here may still be the one of the topic before."""
    partition = SimpleNamespace(topic_id=partition_id, is_leader=False, config=None)
    broker = SimpleNamespace(
        image=SimpleNamespace(topic_by_id=lambda found: SimpleNamespace(name="t") if found == NEW else None),
        find_partition=lambda topic, number: (partition, ErrorKind.NONE),
    )
    services: Any = SimpleNamespace(broker=broker)
    return _target(services, SessionPartition("", wanted_id, 0), True, FetchReader(replica), 1, None)


def test_r34_what_lies_here_of_the_topic_before_is_not_served_as_the_new_one() -> None:
    for replica in (-1, 2):
        found = target(OLD, NEW, replica)
        assert found.partition is None and found.verdict.error is ErrorKind.UNKNOWN_TOPIC_ID
    assert target(NEW, NEW, -1).partition is not None
