"""K5: consumer groups with real clients: rebalancing, static members, cooperative, restarts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka as ck
import kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

SESSION_MS = 3000
QUICK = {
    "log_level": 0,
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": 300,
    "auto.offset.reset": "earliest",
}
SHORT_SESSIONS = {"HEADRACE_GROUP_MIN_SESSION_TIMEOUT_MS": "1000"}


def create(broker: BrokerProcess, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(15)


def publish(broker: BrokerProcess, topic: str, values: list[bytes], partitions: int = 1) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    failures: list[Any] = []
    for number, value in enumerate(values):
        producer.produce(
            topic, value, partition=number % partitions,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )  # fmt: skip
        producer.poll(0)
    assert producer.flush(120) == 0 and not failures


class Ownership:
    """Who holds which partition, as the members themselves were told; two holders at once is what must never be."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.holders: dict[int, str] = {}
        self.clashes: list[str] = []

    def taken(self, member: str, partitions: list[int]) -> None:
        with self._lock:
            for partition in partitions:
                holder = self.holders.get(partition)
                if holder not in (None, member):
                    self.clashes.append(f"{partition} went to {member} while {holder} had it")
                self.holders[partition] = member

    def given_up(self, member: str, partitions: list[int]) -> None:
        with self._lock:
            for partition in partitions:
                if self.holders.get(partition) == member:
                    del self.holders[partition]

    def of(self, members: set[str]) -> int:
        return sum(holder in members for holder in self.holders.values())


class ConfluentMember(threading.Thread):
    def __init__(
        self, broker: BrokerProcess, name: str, topic: str, owners: Ownership, **config: Any
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._owners = owners
        self._ended = threading.Event()
        self.frozen = threading.Event()
        self.cooperative = config.get("partition.assignment.strategy") == "cooperative-sticky"
        self.rebalances = 0
        self.seen: list[bytes] = []
        self.consumer = ck.Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": f"g-{topic}", **QUICK, **config}
        )
        self.consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.rebalances += 1
        self._owners.taken(self.name, [entry.partition for entry in partitions])

    def _revoked(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self._owners.given_up(self.name, [entry.partition for entry in partitions])

    def run(self) -> None:
        while not self._ended.is_set():
            message = self.consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.seen.append(message.value())
        self.consumer.close()

    def stop(self) -> None:
        self._ended.set()
        self.join(20)


class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, name: str, owners: Ownership) -> None:
        self._name, self._owners = name, owners

    def on_partitions_revoked(self, revoked: set[Any]) -> None:
        self._owners.given_up(self._name, [entry.partition for entry in revoked])

    def on_partitions_assigned(self, assigned: set[Any]) -> None:
        self._owners.taken(self._name, [entry.partition for entry in assigned])


async def until(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.05)


async def test_three_and_three_members_share_and_take_over(broker: BrokerProcess, topic: str) -> None:
    """K5 as features.md states it: kill one; all is reassigned within the session timeout; nothing is owned twice."""
    create(broker, topic, 12)
    owners = Ownership()
    confluent = [
        ConfluentMember(broker, f"c{number}", topic, owners, **{"partition.assignment.strategy": "range"})
        for number in range(3)
    ]
    for member in confluent:
        member.start()
    aio = []
    for number in range(3):
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap, group_id=f"g-{topic}", auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=300, rebalance_timeout_ms=10_000,
            partition_assignment_strategy=[RangePartitionAssignor],
        )  # fmt: skip
        consumer.subscribe([topic], listener=Listener(f"a{number}", owners))
        await consumer.start()
        aio.append(consumer)
    everyone = {"c0", "c1", "c2", "a0", "a1", "a2"}
    try:
        await until(lambda: set(owners.holders.values()) == everyone and len(owners.holders) == 12)
        # A kill: the client stops without a word. Its heartbeats end, its socket closes.
        victim = aio.pop()
        await drop_dead(victim)
        survivors = everyone - {"a2"}
        owners.given_up("a2", list(range(12)))
        await until(lambda: owners.of(survivors) == 12)
        assert not owners.clashes
        publish(broker, topic, [b"%d" % number for number in range(240)], 12)
        seen = asyncio.gather(*[drain(consumer) for consumer in aio])
        got = [value for values in await seen for value in values] + [
            value for member in confluent for value in member.seen
        ]
        assert Counter(got) == Counter(b"%d" % number for number in range(240))
    finally:
        for consumer in aio:
            await consumer.stop()
        for member in confluent:
            member.stop()


async def drain(consumer: aiokafka.AIOKafkaConsumer) -> list[bytes]:
    values: list[bytes] = []
    for _ in range(4):
        for messages in (await consumer.getmany(timeout_ms=500)).values():
            values += [message.value for message in messages]
    return values


async def drop_dead(consumer: aiokafka.AIOKafkaConsumer) -> None:
    """What kill -9 leaves: no LeaveGroup, closed sockets."""
    coordinator = consumer._coordinator
    for task in (
        coordinator._coordination_task,
        coordinator._heartbeat_task,
        coordinator._commit_refresh_task,
    ):
        if task is not None:
            task.cancel()
    consumer._closed = True
    await consumer._fetcher.close()
    await consumer._client.close()


async def test_static_members_come_back_without_a_rebalance(broker: BrokerProcess, topic: str) -> None:
    """KIP-345."""
    create(broker, topic, 4)
    owners = Ownership()

    def member(name: str) -> ConfluentMember:
        return ConfluentMember(
            broker, name, topic, owners, **{"group.instance.id": name, "session.timeout.ms": 10_000}
        )

    first, second = member("s1"), member("s2")
    first.start()
    second.start()
    await until(lambda: Counter(owners.holders.values()) == {"s1": 2, "s2": 2})
    mine = {partition for partition, holder in owners.holders.items() if holder == "s2"}
    before = first.rebalances
    second.stop()
    owners.given_up("s2", list(mine))
    again = member("s2")
    again.start()
    await until(lambda: len(owners.holders) == 4)
    assert {partition for partition, holder in owners.holders.items() if holder == "s2"} == mine
    assert first.rebalances == before and not owners.clashes
    first.stop()
    again.stop()


async def test_cooperative_members_keep_what_they_have(broker: BrokerProcess, topic: str) -> None:
    """KIP-429: a newcomer takes its share; what stays was never given up."""
    create(broker, topic, 6)
    owners = Ownership()
    strategy = {"partition.assignment.strategy": "cooperative-sticky"}
    first = ConfluentMember(broker, "m1", topic, owners, **strategy)
    first.start()
    await until(lambda: owners.of({"m1"}) == 6)
    second = ConfluentMember(broker, "m2", topic, owners, **strategy)
    second.start()
    await until(lambda: Counter(owners.holders.values()) == {"m1": 3, "m2": 3})
    assert not owners.clashes
    second.stop()
    await until(lambda: owners.of({"m1"}) == 6)
    first.stop()


def test_commits_and_groups_survive_kill_and_restart(fresh_broker: Callable[..., BrokerProcess]) -> None:
    """R53: an acknowledged commit is there after kill -9, with its metadata; after SIGTERM too."""
    broker = fresh_broker(environment=SHORT_SESSIONS)
    create(broker, "t", 2)
    publish(broker, "t", [b"%d" % number for number in range(20)], 2)
    consumer = ck.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False, **QUICK,
         "session.timeout.ms": 20_000}
    )  # fmt: skip
    consumer.subscribe(["t"])
    assert len(consumer.consume(20, 15)) == 20
    ends: tuple[Callable[[], object], ...] = (broker.kill, broker.stop, broker.kill)
    for round_number, end in enumerate(ends):
        offset, note = 3 + round_number, f"round {round_number}"
        consumer.commit(offsets=[ck.TopicPartition("t", 0, offset, note)], asynchronous=False)
        end()
        broker.start()
        (found,) = consumer.committed([ck.TopicPartition("t", 0)], 15)
        assert (found.offset, found.metadata) == (offset, note)
        # The member itself is still in the group, in the same generation: its next commit is taken.
    publish(broker, "t", [b"more"] * 4, 2)
    assert [message.value() for message in consumer.consume(4, 15)] == [b"more"] * 4
    consumer.close()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert "g" in {found.group_id for found in admin.list_consumer_groups().result(15).valid}


def test_two_groups_each_see_everything_and_may_go_back(broker: BrokerProcess, topic: str) -> None:
    """K6."""
    create(broker, topic, 1)
    values = [b"%d" % number for number in range(50)]
    publish(broker, topic, values)
    by_hand = {"enable.auto.commit": False}
    for group in ("one", "two"):
        consumer = ck.Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": f"{group}-{topic}", **QUICK, **by_hand}
        )
        consumer.subscribe([topic])
        assert [message.value() for message in consumer.consume(50, 15)] == values
        consumer.seek(ck.TopicPartition(topic, 0, 40))
        assert [message.value() for message in consumer.consume(10, 15)] == values[40:]
        consumer.commit(offsets=[ck.TopicPartition(topic, 0, 5)], asynchronous=False)
        consumer.close()
        again = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"{group}-{topic}", **QUICK})
        again.subscribe([topic])
        assert [message.value() for message in again.consume(45, 15)] == values[5:]
        again.close()


def test_a_simple_consumer_commits_without_a_group(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic, 1)
    here = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id=f"simple-{topic}", enable_auto_commit=False
    )
    consumer.assign([here])
    consumer.commit({here: kafka.OffsetAndMetadata(0, "by hand", -1)})
    assert consumer.committed(here) == 0
    consumer.close()


def test_a_commit_of_a_member_that_was_thrown_out_is_refused(broker: BrokerProcess, topic: str) -> None:
    """R54: a zombie's commit changes nothing."""
    create(broker, topic, 1)
    publish(broker, topic, [b"v"] * 10)
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"g-{topic}",
        "enable.auto.commit": False,
        **QUICK,
    }
    zombie = ck.Consumer({**config, "max.poll.interval.ms": 3000})
    zombie.subscribe([topic])
    assert len(zombie.consume(10, 15)) == 10
    heir = ck.Consumer(config)
    heir.subscribe([topic])
    assert len(heir.consume(10, 20)) == 10, "the zombie has not polled for too long: its partition is free"
    heir.commit(offsets=[ck.TopicPartition(topic, 0, 10)], asynchronous=False)
    taken: list[bool] = []

    def commit() -> None:
        try:
            zombie.commit(offsets=[ck.TopicPartition(topic, 0, 1)], asynchronous=False)
            taken.append(True)
        except ck.KafkaException:
            taken.append(False)

    # librdkafka may keep the commit of a member that has just left to itself for ever: it has no deadline, and sends nothing.
    late = threading.Thread(target=commit, daemon=True)
    late.start()
    late.join(60)
    assert taken in ([False], [])
    assert heir.committed([ck.TopicPartition(topic, 0)], 15)[0].offset == 10
    heir.close()
    if not late.is_alive():
        zombie.close()
