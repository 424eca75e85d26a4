"""Which news of the metadata, and of a broker's own state, are worth a line."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import msgspec

from headrace.broker.happenings import Observer
from headrace.broker.history import QueueNow
from headrace.cluster.configs import TopicConfig
from headrace.cluster.deltas import BrokerDown, OpaqueChanged, PartitionChanged, TopicGone
from headrace.cluster.rows import Topic
from headrace.cluster.state import PartitionState, TopicState


class Stage:
    """One broker's state, as an observer looks at it."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.health: dict[str, str | None] = {"disk": None, "loop": "late"}
        self.queues = {"dead": QueueNow()}
        spec = SimpleNamespace(queue_config=SimpleNamespace(dead_letter="dead"))
        sampler: Any = SimpleNamespace(
            lately=SimpleNamespace(queues=self.queues), queues=SimpleNamespace(specs=lambda: [spec])
        )
        image: Any = SimpleNamespace(broker_id=1, opaque=lambda space: {})
        clock: Any = SimpleNamespace(wall_ms=lambda: self.now_ms)
        self.observer = Observer(clock, image, sampler, lambda: self.health)

    def told(self) -> list[tuple[str, str, str, bool]]:
        rows = reversed(self.observer.happenings.rows())
        return [(row.kind, row.names[0], row.text, row.everywhere) for row in rows]


def test_partitions_that_lose_and_find_leaders_and_followers() -> None:
    stage = Stage()
    topic = Topic("orders", TopicState("1" * 32, 1, {}, 0), TopicConfig())

    def state(leader: int, *isr: int) -> PartitionState:
        return PartitionState((1, 2, 3), leader, 1, 1, isr)

    steps = [state(1, 1, 2, 3), state(2, 2, 3), state(-1, 2), state(2, 2, 3)]
    stage.observer.heard([PartitionChanged(topic, 0, None, steps[0], 1)])
    for old, new in pairwise(steps):
        stage.observer.heard([PartitionChanged(topic, 0, old, new, 2)])
    assert [(kind, text) for kind, _, text, _ in stage.told()] == [
        ("leader-elected", "is led by broker 2 instead of broker 1"),
        ("isr-shrunk", "is not in sync at broker 1 any more"),
        ("leader-lost", "has no leader; broker 2 was the last"),
        ("isr-shrunk", "is not in sync at broker 3 any more"),
        ("leader-elected", "is led by broker 2"),
        ("isr-grown", "is in sync at broker 3"),
    ]
    assert all(name == "orders-0" and everywhere for _, name, _, everywhere in stage.told())


def test_webhooks_and_moves_are_told_when_their_state_changes() -> None:
    stage = Stage()

    def hear(key: str, value: object) -> None:
        raw = None if value is None else msgspec.json.encode(value)
        stage.observer.heard([OpaqueChanged(key, raw)])

    hear(
        "webhooks/partner", {"state": "active", "url": "https://x"}
    )  # it is new, which is no news of its state
    hear("webhooks/partner", {"state": "active", "url": "https://y"})
    hear("webhooks/partner", {"state": "disabled", "reason": "410 Gone"})
    hear("moves/dead", [{"id": "m1", "act": "redrive", "status": "RUNNING"}])
    hear("moves/dead", [{"id": "m1", "act": "redrive", "status": "RUNNING", "moved": 3}])
    hear("moves/dead", [{"id": "m1", "act": "redrive", "status": "COMPLETED", "moved": 7}])
    hear("moves/dead", None)
    stage.observer.heard([OpaqueChanged("webhooks/partner", b"not JSON"), TopicGone("__own", b"", 1)])
    stage.observer.heard([BrokerDown(2, 1, fenced=True)])
    assert [(kind, name, text) for kind, name, text, _ in stage.told()] == [
        ("webhook-disabled", "partner", "is disabled: 410 Gone"),
        ("move-begun", "dead", "has a redrive under way"),
        ("move-ended", "dead", "had a redrive that ended after 7 messages"),
        ("webhook-changed", "partner", "is"),
        ("broker-down", "2", "does not answer, and is fenced"),
    ]


def test_its_own_troubles_and_dead_letters_begin_and_end() -> None:
    stage = Stage()
    stage.observer.look()
    assert stage.told() == [], "what is so from the beginning is no news, and a late loop is a moment"
    stage.health["disk"] = "full"
    stage.queues["dead"].ready = 4
    stage.observer.look()
    stage.observer.look()
    stage.health["disk"] = None
    stage.queues["dead"].ready = 0
    stage.queues["dead"].paused = True
    stage.observer.look()
    assert stage.told() == [
        ("trouble", "1", "is not well: disk: full", False),
        ("dead-letters-begin", "dead", "has dead letters", False),
        ("trouble-over", "1", "is well again: disk", False),
        ("dead-letters-end", "dead", "has no dead letters any more", False),
        ("queue-paused", "dead", "is paused", False),
    ]
