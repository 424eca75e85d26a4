"""K11: group.protocol=consumer (KIP-848) with confluent-kafka: who has what while members come and go."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]

# librdkafka gives a heartbeat up after one interval. With 300 ms a busy machine made it drop answers with new epochs, hear
# that it was fenced and give up what it had; and a starved member's session ended after 6 s, while it went on reading.
QUICK = {
    "HEADRACE_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "2000",
    "HEADRACE_GROUP_CONSUMER_SESSION_TIMEOUT_MS": "45000",
    "HEADRACE_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
}


@pytest.fixture(scope="module")
def quick_broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(environment=QUICK) as running:
        yield running


def create(broker: BrokerProcess, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(15)


def until(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


class Ledger:
    """Who was told to have what, as it happened. Two owners at once is what must never be (R55)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.owners: dict[tuple[str, int], str] = {}
        self.clashes: list[str] = []
        self.taken_back = 0
        """Partitions that a member gave up and got again with nobody in between: work stopped for nothing."""
        self._gave_up: dict[tuple[str, int], str] = {}

    def taken(self, member: str, partitions: list[tuple[str, int]]) -> None:
        with self._lock:
            for key in partitions:
                owner = self.owners.get(key)
                if owner is not None:
                    self.clashes.append(f"{key} went to {member} while {owner} had it")
                self.owners[key] = member
                self.taken_back += self._gave_up.get(key) == member

    def given_up(self, member: str, partitions: list[tuple[str, int]], *, asked: bool = True) -> None:
        """`asked`: by the group. A member that was starved and is fenced gives up what it has by itself, which measures the machine."""
        with self._lock:
            for key in partitions:
                if self.owners.get(key) == member:
                    del self.owners[key]
                    self._gave_up[key] = member if asked else ""

    def shares(self) -> Counter[str]:
        with self._lock:
            return Counter(self.owners.values())


class Member(threading.Thread):
    def __init__(
        self, broker: BrokerProcess, group: str, name: str, topics: list[str], ledger: Ledger, **config: Any
    ):
        super().__init__(name=name, daemon=True)
        self.ledger = ledger
        self._ended = threading.Event()
        self.seen: list[bytes] = []
        self.consumer = ck.Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0,
             "group.protocol": "consumer", "fetch.wait.max.ms": 100, "client.id": name, **config}
        )  # fmt: skip
        self.consumer.subscribe(topics, on_assign=self._gained, on_revoke=self._revoked, on_lost=self._lost)
        self.start()

    def _gained(self, _: Any, partitions: list[ck.TopicPartition]) -> None:
        self.ledger.taken(self.name, [(entry.topic, entry.partition) for entry in partitions])

    def _revoked(self, _: Any, partitions: list[ck.TopicPartition]) -> None:
        self.ledger.given_up(self.name, [(entry.topic, entry.partition) for entry in partitions])

    def _lost(self, _: Any, partitions: list[ck.TopicPartition]) -> None:
        places = [(entry.topic, entry.partition) for entry in partitions]
        self.ledger.given_up(self.name, places, asked=False)

    def run(self) -> None:
        while not self._ended.is_set():
            for message in self.consumer.consume(100, 0.1):
                if message.error() is None:
                    self.seen.append(message.value())
        self.consumer.close()

    def stop(self) -> None:
        self._ended.set()
        self.join(30)


class Feed(threading.Thread):
    """A little for every partition, all the time."""

    def __init__(self, broker: BrokerProcess, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._topic, self._partitions = topic, partitions
        self._ended = threading.Event()
        self._producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 0})
        self.sent = 0
        self.start()

    def run(self) -> None:
        while not self._ended.wait(0.2):
            for number in range(self._partitions):
                self._producer.produce(self._topic, f"{number}:{self.sent}", partition=number)
            self.sent += 1
            self._producer.poll(0)
        self._producer.flush(120)

    def stop(self) -> None:
        self._ended.set()
        self.join(30)


@pytest.mark.slow
def test_twenty_members_come_and_go(quick_broker: BrokerProcess, topic: str) -> None:
    """No partition has two owners, what need not move stays where it is, and nothing is missed."""
    partitions = 40
    create(quick_broker, topic, partitions)
    ledger = Ledger()

    def join(number: int) -> Member:
        return Member(quick_broker, f"g-{topic}", f"m{number}", [topic], ledger)

    feed = Feed(quick_broker, topic, partitions)
    members = [join(number) for number in range(10)]
    until(lambda: sum(ledger.shares().values()) == partitions and len(ledger.shares()) == 10)
    for number in range(10, 20):
        members.append(join(number))
        time.sleep(0.3)
    until(lambda: len(ledger.shares()) == 20 and set(ledger.shares().values()) == {2})
    gone = [members.pop(0) for _ in range(6)]
    for number, member in enumerate(gone):
        member.stop()
        members.append(join(20 + number))
    until(lambda: len(ledger.shares()) == 20 and set(ledger.shares().values()) == {2})
    feed.stop()
    seen = Counter[bytes]()
    wanted = {f"{number}:{count}".encode() for number in range(partitions) for count in range(feed.sent)}

    def all_seen() -> bool:
        seen.clear()
        for member in (*members, *gone):
            seen.update(list(member.seen))
        return wanted <= set(seen)

    until(all_seen)
    for member in members:
        member.stop()
    assert not ledger.clashes, ledger.clashes[:5]
    assert ledger.taken_back == 0, "a partition left its owner only to come back"


def test_a_classic_group_becomes_a_consumer_group_and_back(quick_broker: BrokerProcess, topic: str) -> None:
    """KIP-848: member by member, with nothing owned twice, and offsets that stay."""
    create(quick_broker, topic, 6)
    ledger = Ledger()
    group = f"g-{topic}"
    classic = {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 3000,
        "heartbeat.interval.ms": 300,
    }
    admin = AdminClient({"bootstrap.servers": quick_broker.bootstrap, "log_level": 0})

    def kind() -> str:
        return str(admin.describe_consumer_groups([group])[group].result(15).type)

    def settled(*names: str) -> bool:
        shares = ledger.shares()
        return set(shares) == set(names) and sum(shares.values()) == 6

    feed = Feed(quick_broker, topic, 6)
    old = [Member(quick_broker, group, f"old{number}", [topic], ledger, **classic) for number in range(2)]
    until(lambda: settled("old0", "old1"))
    assert kind().endswith("CLASSIC")
    new = [Member(quick_broker, group, "new0", [topic], ledger)]
    until(lambda: settled("old0", "old1", "new0"))
    assert kind().endswith("CONSUMER"), "one member is enough"
    old[0].stop()
    new.append(Member(quick_broker, group, "new1", [topic], ledger))
    old[1].stop()
    until(lambda: settled("new0", "new1"))
    # and back
    back = [Member(quick_broker, group, "back0", [topic], ledger, **classic)]
    until(lambda: settled("new0", "new1", "back0"))
    new[0].stop()
    new[1].stop()
    until(lambda: settled("back0"))
    assert kind().endswith("CLASSIC"), "the last member of the new protocol is gone"
    feed.stop()
    back[0].stop()
    assert not ledger.clashes, ledger.clashes[:5]


def test_a_pattern_takes_in_new_topics(quick_broker: BrokerProcess, topic: str) -> None:
    ledger = Ledger()
    create(quick_broker, f"{topic}-a", 2)
    member = Member(quick_broker, f"g-{topic}", "m", [f"^{topic}-.*"], ledger)
    until(lambda: len(ledger.owners) == 2)
    create(quick_broker, f"{topic}-b", 3)
    create(quick_broker, f"other-{topic}", 3)
    until(lambda: len(ledger.owners) == 5)
    assert {name for name, _ in ledger.owners} == {f"{topic}-a", f"{topic}-b"}
    member.stop()


def test_a_static_member_comes_back_to_what_it_had(quick_broker: BrokerProcess, topic: str) -> None:
    create(quick_broker, topic, 6)
    group = f"g-{topic}"
    ledgers = [Ledger(), Ledger()]
    members = [
        Member(quick_broker, group, f"m{number}", [topic], ledger, **{"group.instance.id": f"i{number}"})
        for number, ledger in enumerate(ledgers)
    ]
    until(lambda: all(len(ledger.owners) == 3 for ledger in ledgers))
    had = set(ledgers[1].owners)
    members[1].stop()
    time.sleep(1.0)  # its place is kept: nobody else gets its partitions meanwhile
    assert len(ledgers[0].owners) == 3
    ledgers[1].owners.clear()
    members[1] = Member(quick_broker, group, "m1", [topic], ledgers[1], **{"group.instance.id": "i1"})
    until(lambda: set(ledgers[1].owners) == had)
    for member in members:
        member.stop()


def test_offsets_are_committed_and_fetched_by_epoch(quick_broker: BrokerProcess, topic: str) -> None:
    create(quick_broker, topic, 1)
    producer = ck.Producer({"bootstrap.servers": quick_broker.bootstrap, "log_level": 0})
    for number in range(10):
        producer.produce(topic, str(number))
    producer.flush(120)
    config = {
        "bootstrap.servers": quick_broker.bootstrap, "group.id": f"g-{topic}", "group.protocol": "consumer",
        "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0,
    }  # fmt: skip
    for start, stop in ((0, 4), (4, 10)):
        consumer = ck.Consumer(config)
        consumer.subscribe([topic])
        found: list[bytes] = []
        deadline = time.monotonic() + 240
        while len(found) < stop - start:
            assert time.monotonic() < deadline
            found += [message.value() for message in consumer.consume(stop - start - len(found), 0.5)]
        assert found == [str(number).encode() for number in range(start, stop)]
        consumer.commit(offsets=[ck.TopicPartition(topic, 0, stop)], asynchronous=False)
        committed = consumer.committed([ck.TopicPartition(topic, 0)], 10)
        assert committed[0].offset == stop
        consumer.close()
