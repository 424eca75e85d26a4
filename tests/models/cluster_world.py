"""A coordinator in a dictionary and an image that hears everything at once: for tests of the pure deciders."""

from __future__ import annotations

from collections.abc import Iterable

from tiny_coordinator import TinyCoordinator

from headrace.cluster import keys, membership
from headrace.cluster.changes import Change
from headrace.cluster.controller import DataLoss, reconcile
from headrace.cluster.deltas import Delta
from headrace.cluster.image import ClusterImage
from headrace.cluster.membership import PreviousLife
from headrace.cluster.rows import Topic
from headrace.cluster.state import BrokerRegistration, PartitionState
from headrace.cluster.topics import CreatedTopic, CreateTopic, create_topic
from headrace.core.plan import Rejected


class ClusterWorld:
    def __init__(self, *brokers: int, racks: dict[int, str] | None = None, **static: str) -> None:
        self.store = TinyCoordinator()
        self.image = ClusterImage(1, {name.replace("_", "."): value for name, value in static.items()})
        self.racks = racks or {}
        self.losses: list[DataLoss] = []
        self._seen = 0
        self._topics = 0
        for broker in brokers:
            self.register(broker)
        if brokers:
            change = membership.become_controller(self.image, brokers[0], self.epoch(brokers[0]), 0)
            assert change is not None
            self.do(change)
            self.settle()

    # -- changes ------------------------------------------------------------------------------------------------------

    def attempt(self, change: Change) -> bool:
        done = self.store.txn(change)
        self.catch_up()
        return done

    def do(self, *changes: Change) -> list[Delta]:
        deltas: list[Delta] = []
        for change in changes:
            assert not isinstance(change, Rejected), change
            assert self.store.txn(change), change
            deltas += self.catch_up()
        return deltas

    def catch_up(self) -> list[Delta]:
        events = self.store.history[self._seen :]
        self._seen = len(self.store.history)
        return [delta for event in events for delta in self.image.apply(event)]

    def settle(self) -> None:
        """What the controller does until there is nothing left to do."""
        for _ in range(20):
            decisions = reconcile(self.image, self.controller_epoch)
            self.losses += decisions.losses
            if not decisions.changes:
                return
            self.do(*decisions.changes)
        raise AssertionError("the controller never comes to rest")

    # -- brokers ------------------------------------------------------------------------------------------------------

    def register(
        self,
        broker: int,
        *,
        incarnation: str = "",
        previous: PreviousLife | None = None,
        durable: bool = True,
    ) -> None:
        name = incarnation or f"{broker}@{self.store.revision}"
        registration = BrokerRegistration(
            "127.0.0.1", 9090 + broker, "127.0.0.1", 9320, name, self.racks.get(broker)
        )
        change = membership.register(
            self.image, broker, registration, lease=broker, previous=previous, durable=durable
        )
        assert isinstance(change, Change), change
        self.do(change)

    def expire(self, *brokers: int) -> None:
        """The leases of these brokers end."""
        self.store.delete(*(keys.broker(broker) for broker in brokers))
        self.catch_up()

    def fail(self, *brokers: int) -> None:
        self.expire(*brokers)
        self.settle()

    def come_back(self, broker: int, *, clean: bool = False, durable: bool = True) -> None:
        epoch = self.image.mod_revision(keys.epoch(broker))
        self.register(broker, previous=PreviousLife(epoch, clean), durable=durable)
        self.settle()

    def epoch(self, broker: int) -> int:
        found = self.image.broker(broker)
        assert found is not None
        return found.epoch

    @property
    def controller_epoch(self) -> int:
        assert self.image.controller is not None
        return self.image.controller.epoch

    # -- topics -------------------------------------------------------------------------------------------------------

    def decide_topic(self, request: CreateTopic) -> CreatedTopic | Rejected:
        self._topics += 1
        return create_topic(
            self.image,
            request,
            topic_id=self._topics.to_bytes(16, "big"),
            wall_ms=1_000,
            controller_epoch=self.controller_epoch,
        )

    def create(self, name: str, *assignments: Iterable[int], **configs: str) -> Topic:
        """A topic with the given replicas per partition, or one on broker 1."""
        replicas = {number: tuple(brokers) for number, brokers in enumerate(assignments)} or {0: (1,)}
        named = {key.replace("_", "."): value for key, value in configs.items()}
        created = self.decide_topic(CreateTopic(name, assignments=replicas, configs=named))
        assert isinstance(created, CreatedTopic), created
        self.do(*created.changes)
        topic = self.image.topic(name)
        assert topic is not None
        return topic

    def partition(self, name: str = "t", number: int = 0) -> PartitionState:
        found = self.image.partition(name, number)
        assert found is not None
        return found
