"""Where the parts of a queue are: looked up once, and again when anything is different."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.broker.queueing.layout import Layouts
from headrace.broker.queueing.specs import QueueSpec
from headrace.cluster import keys
from headrace.cluster.deltas import BrokerDown
from headrace.cluster.image import ClusterImage
from headrace.cluster.state import BrokerRegistration, Fence, FenceReason, PartitionState, TopicState, encode

SPEC = QueueSpec(name="q", id="1", topics=("q",))
TOPIC = bytes(15) + b"q"
JOURNAL = bytes(15) + b"j"


class Cluster:
    """The image of broker 1, as events make it."""

    def __init__(self) -> None:
        self.image = ClusterImage(1)
        self.revision = 0
        for name, topic_id in (("q", TOPIC), ("__queue.q", JOURNAL)):
            self.put(keys.topic(name), TopicState(id=topic_id.hex(), partitions=1, configs={}, created_ms=1))
            self.put(keys.partition(topic_id, 0), PartitionState((2,), 2, 1, 1, (2,)))
        self.put(keys.broker(2), BrokerRegistration("b2", 9092, "b2", 9324, "x"))

    def put(self, key: str, value: Any) -> list[Any]:
        return self.event(key, encode(value))

    def event(self, key: str, value: bytes | None) -> list[Any]:
        self.revision += 1
        item: Any = SimpleNamespace(key=key, value=value, mod_revision=self.revision)
        return self.image.apply(item)


def test_a_broker_that_goes_when_it_is_fenced_already_is_not_asked_any_more() -> None:
    """Nobody is told of that, because nobody could use the broker; found by a simulation."""
    cluster = Cluster()
    layouts = Layouts(cluster.image, 1, {})
    assert layouts.of(SPEC).others == [2]
    kept = layouts.of(SPEC)
    assert layouts.of(SPEC) is kept
    told = cluster.put(keys.fence(2), Fence(FenceReason.SUSPECTED, cluster.image.brokers[2].epoch))
    assert any(isinstance(delta, BrokerDown) for delta in told)
    assert layouts.of(SPEC).others == [2]
    assert cluster.event(keys.broker(2), None) == [], "silently"
    assert layouts.of(SPEC).others == [] and layouts.home_of(layouts.of(SPEC).sources[0]) == -1


def test_what_is_the_same_is_looked_up_once_and_what_has_changed_again() -> None:
    cluster = Cluster()
    hosted: dict[tuple[str, int], Any] = {}
    layouts = Layouts(cluster.image, 1, hosted)
    assert layouts.of(SPEC).local == []
    hosted["q", 0] = shard = object()
    layouts.forget()
    assert [here for _, here in layouts.of(SPEC).local] == [shard]
    other = QueueSpec(name="q", id="2", topics=())
    assert layouts.of(other).sources == [], "another queue of that name"
